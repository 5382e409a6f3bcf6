"""Levels as files: file sizes, the interval of the over-provisioning, and levels that do not fit."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest

from opwatch.codec import decode, encode
from opwatch.errors import BadInput, RefusedError, UsageError
from opwatch.journal.request import SweepRequest
from opwatch.journal.undo import FilesUndo, parse_undo
from opwatch.steady.coverage import WriteSpread
from opwatch.sweep.figures import make_verdict_inputs
from opwatch.sweep.levels import LevelFiles, LevelScale, parse_levels
from opwatch.sweep.plan import StepKind, SweepPace, SweepSpeed, plan_steps
from opwatch.sweep.room import (
    FilesPlace,
    FilesystemRoom,
    make_file_levels,
    make_fill_levels,
    require_planned_usage,
)
from opwatch.tools.cli import main
from tests.unit.sweep.test_journal import REQUEST

GIB, MIB = 1 << 30, 1 << 20
# 3 % for metadata, other files and a partition in front; 5 % reserved for root.
ROOM = FilesystemRoom(100 * GIB, 98 * GIB, 97 * GIB, 92 * GIB)
LEVELS = parse_levels("10,28%", LevelScale(100 * GIB), flash_bytes=110 * GIB)


def test_file_fills_the_level_and_its_over_provisioning_is_an_interval() -> None:
    for level, planned in zip(make_file_levels(LEVELS, ROOM), LEVELS, strict=True):
        assert level.usable_bytes == planned.usable_bytes
        assert level.load_bytes == level.active_bytes == planned.usable_bytes - 3 * GIB
        assert level.of_used_ratio == planned.of_used_ratio
        assert level.most_of_used_ratio == pytest.approx(100 * GIB / level.load_bytes - 1)
        # For the models, the file system's own space is in use and never rewritten.
        assert level.active_flash_bytes == 107 * GIB
        ground = make_verdict_inputs(level, WriteSpread(1.0, None, "fio"))
        # No verdict before all possible spare area was used and the file was rewritten once.
        assert (ground.active_bytes, ground.spare_bytes) == (level.load_bytes, 110 * GIB - level.load_bytes)


def test_ballast_fills_the_level_beside_a_constant_file() -> None:
    levels = make_fill_levels(LEVELS, ROOM, None)
    assert {level.load_bytes for level in levels} == {(LEVELS[1].usable_bytes - 3 * GIB) // 2 // 4096 * 4096}
    for level, planned in zip(levels, LEVELS, strict=True):
        assert level.active_bytes == planned.usable_bytes - 3 * GIB == level.load_bytes + level.ballast_bytes
    assert {level.load_bytes for level in make_fill_levels(LEVELS, ROOM, 20 * GIB)} == {20 * GIB}
    for size in (1 << 20, 80 * GIB):
        with pytest.raises(UsageError, match="--file-size"):
            make_fill_levels(LEVELS, ROOM, size)


def test_level_that_does_not_fit_names_a_size_that_does() -> None:
    levels = parse_levels("5%", LevelScale(100 * GIB))
    with pytest.raises(UsageError, match=r"at least [0-9.]+%") as refusal:
        make_file_levels(levels, ROOM)
    least = str(refusal.value).rpartition("at least ")[2].partition("%")[0]
    make_file_levels(parse_levels(f"{least}%", LevelScale(100 * GIB)), ROOM)
    with pytest.raises(UsageError, match="smaller"):
        make_file_levels(parse_levels("900%", LevelScale(100 * GIB)), replace(ROOM, free_bytes=85 * GIB))


def test_changed_free_space_is_another_level() -> None:
    [level, _] = make_file_levels(LEVELS, ROOM)
    full = replace(ROOM, free_bytes=100 * GIB - level.usable_bytes)
    require_planned_usage(level, full, "/mnt")
    for moved in (-1, 1):
        require_planned_usage(level, replace(full, free_bytes=full.free_bytes + moved * 50 * MIB), "/mnt")
        with pytest.raises(RefusedError, match=rf"^/mnt: .*\b{level.usable_bytes}\b"):
            require_planned_usage(
                level, replace(full, free_bytes=full.free_bytes + moved * 200 * MIB), "/mnt"
            )


@pytest.mark.parametrize("ballast", [False, True])
def test_plan_accounts_for_every_byte(ballast: bool) -> None:
    levels = make_fill_levels(LEVELS, ROOM, 20 * GIB) if ballast else make_file_levels(LEVELS, ROOM)
    pace = SweepPace(fill_passes=2)
    steps = plan_steps(levels, "fill" if ballast else "file", pace, SweepSpeed())
    for level in levels:
        own = [step for step in steps if step.level is level]
        assert [step.kind for step in own[:5]] == [
            *(StepKind.GUARD, StepKind.PURGE, StepKind.SETTLE, StepKind.LIMIT, StepKind.FILL)
        ]
        _, purge, _, limit, fill, rounds, _ = own
        assert purge.discard_bytes == 97 * GIB
        assert limit.write_bytes == level.ballast_bytes
        assert (fill.write_bytes, fill.at_most) == (level.load_bytes, 2)
        assert rounds.write_bytes == pytest.approx(0.1 * level.active_bytes, abs=4096)
        assert rounds.at_least * rounds.write_bytes >= 110 * GIB
    assert steps[-1].kind is StepKind.RESTORE


def is_same_request(change: Mapping[str, object]) -> bool:
    levels = make_fill_levels(LEVELS, ROOM, None)
    place = FilesPlace("/mnt/a b", MIB, 98 * GIB)
    request = replace(REQUEST, method="fill", levels=levels, place=place)
    document = json.loads(json.dumps(encode(request))) | dict(change)
    return decode(SweepRequest, document, "a journal") == request


def test_journal_keeps_path_and_size_of_the_files() -> None:
    assert is_same_request({}) is True
    changes: list[Mapping[str, object]] = [{"place": None}, {"method": "window"}, {"place": {"point": 3}}]
    for change in changes:
        with pytest.raises(BadInput):
            is_same_request(change)
    levels = json.loads(json.dumps(encode(replace(REQUEST, levels=make_file_levels(LEVELS, ROOM)))))["levels"]
    for files in ({"load_bytes": 0, "ballast_bytes": 0}, {"load_bytes": 1 << 50, "ballast_bytes": 0}):
        with pytest.raises(BadInput):
            is_same_request({"levels": [levels[0] | {"files": files}]})


def test_files_undo_only_names_a_folder_at_the_mount_point() -> None:
    undo = FilesUndo(".opwatch-sweep-20260101-000000-abcd")
    assert parse_undo(str(undo)) == undo
    for text in ("files in /etc", "files in .opwatch-sweep-../..", "files in .opwatch-sweep-", "files in ."):
        with pytest.raises(BadInput):
            parse_undo(text)


def test_spare_bytes_ignore_the_files() -> None:
    assert replace(LEVELS[0], files=LevelFiles(GIB)).spare_bytes == LEVELS[0].spare_bytes


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--method", "file"), "--dir MOUNT"),
        (("--dir", "/mnt"), "--dir: "),
        (("--method", "file", "--dir", "/mnt", "--file-size", "1G"), "--file-size: "),
        (("--method", "fill", "--dir", "/mnt", "--sprandom"), "--sprandom: "),
        (("--method", "file", "--dir", "/mnt", "--purge", "format"), "--purge: "),
        (("--test", "wsat", "--dir", "/mnt"), "--dir: "),
    ],
)
@pytest.mark.parametrize("verb", ["plan", "run"])
def test_conflicting_options_are_refused(
    verb: str, words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sweep", verb, "--dev", "loop0", *words]) == 2
    assert said in capsys.readouterr().err
