"""A journal is readable however its writer ended."""

from __future__ import annotations

import errno
import json
import os
import random
import re
import resource
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from opwatch.codec import encode
from opwatch.errors import BadInput, OpwatchError, RefusedError, UsageError
from opwatch.guard.budget import Budget, Health, find_overruns
from opwatch.guard.identity import DiskIdentity
from opwatch.journal.file import (
    JournalFile,
    create_sweep_journal,
    list_journals,
    read_states,
    reopen_sweep_journal,
)
from opwatch.journal.request import SweepRequest
from opwatch.journal.results import LevelRecord
from opwatch.journal.state import SweepState, parse_journal
from opwatch.load.workload import find_workload
from opwatch.steady.coverage import WriteSpread
from opwatch.steady.rounds import Round
from opwatch.steady.strict import StrictState, VerdictInputs
from opwatch.sweep.levels import LevelScale, OpLevel, parse_levels
from opwatch.sweep.outcome import HostBytes, LevelFigures
from opwatch.sweep.plan import SweepPace

REQUEST = SweepRequest(
    name="20260101-000000-abcd",
    created="2026-01-01T00:00:00+00:00",
    identity=DiskIdentity("nvme0n1", (259, 1), "boot", 3, 1 << 30, "M", "S1", None, 1),
    levels=parse_levels("0,10,28%", LevelScale(1 << 30), 1200 << 20),
    method="window",
    pattern=find_workload("jesd219"),
    pace=SweepPace(),
    budget=Budget(1 << 40),
    secret="x",
    refresh_s=2.5,
)
RECORD = LevelRecord(
    place=1,
    rounds=tuple(Round(100 << 20, 1.5 + at / 100, 25600, 1e6, 3 * (100 << 20)) for at in range(40)),
    ground=VerdictInputs(976 << 20, 224 << 20, WriteSpread(1.0, -0.5, "fio"), spare_is_bound=True),
    figures=LevelFigures(
        host=HostBytes(None, 5, 6),
        nand_bytes=7,
        waf=3.0,
        waf_error=0.01,
        latency_by_fio={"p99": 1e6},
        cpu_ns_per_io=1.5,
        temperature_c=-3,
        missing={"trace": "it was not traced"},
    ),
)


def write_journal(folder: Path) -> Path:
    """Write a journal with one finished level, one started level and one change still to undo."""
    with create_sweep_journal(folder, REQUEST) as journal:
        journal.append_entry("step", {"level": 0, "kind": "fill", "write_bytes": 1000})
        journal.append_entry("outcome", encode(RECORD))
        journal.append_entry("changed", {"undo": "delete partition 1"})
        journal.append_entry("changed", {"undo": "delete partition 2"})
        journal.append_entry("restored", {"undo": "delete partition 1"})
        journal.append_entry("of a later opwatch", {"level": "?"})
        journal.append_entry("step", {"level": 2, "kind": "round", "write_bytes": 500})
        journal.append_entry("stopped", {"reason": "SIGINT"})
        return journal.path


def test_journal_is_read_back_as_written(tmp_path: Path) -> None:
    path = write_journal(tmp_path / "sweeps")
    assert path.stat().st_mode & 0o777 == 0o600
    journal, state = reopen_sweep_journal(path.parent, path.stem)
    journal.close()
    assert state.request == REQUEST
    assert state.records == {1: RECORD}
    assert state.remaining_levels == (0, 2)
    assert state.announced_bytes == 1500
    assert state.undo == ["delete partition 2"]
    assert state.stops == ["SIGINT"]
    assert not state.is_ended
    outcome = state.records[1].make_outcome(state.request.levels[1])
    assert outcome == RECORD.make_outcome(REQUEST.levels[1])
    assert outcome.pts
    assert outcome.pts.is_steady
    [(name, listed)] = read_states(path.parent)
    assert name == path.stem
    assert isinstance(listed, SweepState)
    assert listed.remaining_levels == (0, 2)


def test_truncated_journal_continues_from_the_last_complete_entry(tmp_path: Path) -> None:
    raw = write_journal(tmp_path).read_bytes()
    ends = [at + 1 for at, byte in enumerate(raw) if byte == ord("\n")]
    last = 0
    for size in range(ends[0], len(raw), 37):
        state = parse_journal(raw[:size], "it")
        whole = max(end for end in ends if end <= size)
        assert state.cut_bytes == size - whole
        assert len(state.records) >= last
        last = len(state.records)
    with pytest.raises(BadInput, match=r"^it has no "):
        parse_journal(raw[: ends[0] - 1], "it")


def test_entry_appended_after_a_truncated_entry_is_intact(tmp_path: Path) -> None:
    path = write_journal(tmp_path)
    os.truncate(path, path.stat().st_size - 7)
    journal, state = reopen_sweep_journal(tmp_path, path.stem)
    with journal:
        assert state.stops == []
        journal.append_entry("stopped", {"reason": "power"})
    assert parse_journal(path.read_bytes(), "it").stops == ["power"]


@pytest.mark.parametrize(
    "change",
    [
        {"schema": "opwatch-sweep/9"},
        {"entry": "end"},
        {"levels": [5]},
        {"disk": {}},
        {"workload": {"name": "x", "description": "", "jobs": [{"rw": "write", "exec_prerun": "true"}]}},
        {"pace": None},
        {"secret": 5},
    ],
)
def test_another_first_entry_is_refused(change: dict[str, object], tmp_path: Path) -> None:
    first, _, rest = write_journal(tmp_path).read_bytes().partition(b"\n")
    changed = json.dumps(json.loads(first) | change).encode()
    with pytest.raises(BadInput, match="it: line 1"):
        parse_journal(changed + b"\n" + rest, "it")


@pytest.mark.parametrize(
    "line",
    [
        b"{}",
        b"x",
        b'{"entry":"step","write_bytes":-1}',
        b'{"entry":"outcome","level":9}',
        json.dumps({"entry": "outcome", **encode(replace(RECORD, place=3))}).encode(),
    ],
)
def test_damage_in_the_middle_is_reported_with_its_line(line: bytes, tmp_path: Path) -> None:
    first, _, rest = write_journal(tmp_path).read_bytes().partition(b"\n")
    with pytest.raises(BadInput, match="line 2"):
        parse_journal(b"\n".join((first, line, rest)), "it")


def test_second_writer_of_a_journal_is_refused(tmp_path: Path) -> None:
    path = write_journal(tmp_path)
    with JournalFile(path), pytest.raises(RefusedError, match=f"^{path.stem} "):
        reopen_sweep_journal(tmp_path, path.stem)


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("")
    (tmp_path / f"{REQUEST.name}.journal").symlink_to(tmp_path / "mine")
    with pytest.raises(RefusedError, match="is a link"):
        create_sweep_journal(tmp_path, REQUEST)


@pytest.mark.parametrize("name", ["", "..", "../x", ".hidden", "nothing", "x" * 200])
def test_unknown_name_is_reported(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        reopen_sweep_journal(tmp_path, name)
    assert list_journals(tmp_path) == []


_FULL = """
import sys
from pathlib import Path
from opwatch.errors import OpwatchError
from opwatch.journal.file import reopen_sweep_journal
journal, state = reopen_sweep_journal(Path(sys.argv[1]), sys.argv[2])
try:
    while True:
        journal.append_entry("stopped", {"reason": "x" * 100})
except OpwatchError as error:
    print(error)
"""


def test_a_full_disk_leaves_whole_entries(tmp_path: Path) -> None:
    """A file at its size limit fails in the middle of an entry, like a file on a full disk."""
    path = write_journal(tmp_path)
    limit = path.stat().st_size + 1000

    def limit_file_size() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    argv = [sys.executable, "-c", _FULL, str(tmp_path), path.stem]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, preexec_fn=limit_file_size)
    assert (
        f"{os.strerror(errno.EFBIG)}: " in done.stdout and f"opwatch sweep resume {path.stem}" in done.stdout
    )
    state = parse_journal(path.read_bytes(), "it")
    assert state.cut_bytes == 0
    assert 5 < len(state.stops) < 11


def test_failure_to_create_the_folder_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OpwatchError, match=re.escape(str(tmp_path / "file" / "sweeps"))):
        create_sweep_journal(tmp_path / "file" / "sweeps", REQUEST)


def test_life_limit_applies_to_the_whole_sweep(tmp_path: Path) -> None:
    with create_sweep_journal(tmp_path, REQUEST) as journal:
        journal.append_entry("health", {"percentage_used": 3})
        journal.append_entry("stopped", {"reason": "a signal"})
        journal.append_entry("health", {"percentage_used": 4})
    journal, state = reopen_sweep_journal(tmp_path, REQUEST.name)
    journal.close()
    now = Health(host_bytes=7, percentage_used=5, celsius=40)
    assert state.find_health_baseline(now) == replace(now, percentage_used=3)
    assert SweepState(REQUEST).find_health_baseline(now) == now
    [reason] = find_overruns(
        state.find_remaining_budget(None), state.find_health_baseline(now), now, 0, "nvme0n1"
    )
    assert reason.what.startswith("2 % ") and "--max-life" in reason.remedy
    assert (
        find_overruns(
            state.find_remaining_budget(None, 2), state.find_health_baseline(now), now, 0, "nvme0n1"
        )
        == []
    )
    assert state.find_remaining_budget(None, None, 40).celsius == 40
    assert state.find_remaining_budget(5, 2) == Budget(5, 2)


def test_resume_command_names_the_journal_folder(tmp_path: Path) -> None:
    with create_sweep_journal(tmp_path, REQUEST) as journal:
        assert journal.resume_command == f"opwatch sweep resume {REQUEST.name} --journals {tmp_path}"
    for name in ("", "../x", ".x", "y" * 200, "other"):
        with pytest.raises(UsageError, match=f"available: {REQUEST.name}"):
            reopen_sweep_journal(tmp_path, name)


def test_waf_of_a_level_has_the_error_of_chance() -> None:
    """Counters without an error give the exact WAF of the window, which is not that of the level."""
    draw = random.Random(1)
    waf, host = 3.0, 1 << 30
    rounds = tuple(Round(host, 1.0, 1000, 1e6, round(host * waf * draw.gauss(1, 0.004))) for _ in range(60))
    ground = VerdictInputs(10 * host, host, WriteSpread(1.0, 0.0, "test"))
    record = LevelRecord(0, rounds, ground, LevelFigures(waf=waf, waf_error=0.0))
    outcome = record.make_outcome(OpLevel("0 %", 1 << 40, LevelScale(1 << 40)))
    error = outcome.figures.waf_error
    assert outcome.strict.window and error is not None
    assert outcome.strict.state is StrictState.PASS and 0 < error < 0.02 * waf
    inexact = LevelRecord(0, rounds, ground, LevelFigures(waf=waf, waf_error=0.05))
    assert inexact.make_outcome(outcome.level).figures.waf_error == pytest.approx(0.05 + error)
    unknown = LevelRecord(0, rounds, ground, LevelFigures(missing={"waf": "no pages"}))
    assert unknown.make_outcome(outcome.level).figures.waf_error is None
