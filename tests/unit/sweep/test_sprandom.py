"""Fills by fio's sprandom: only if fio supports the option, with the right byte count, and kept in the
journal."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from opwatch.codec import decode, encode
from opwatch.errors import Unsupported
from opwatch.journal.request import SweepRequest
from opwatch.load.fio_arguments import LoadWindow, build_sprandom_arguments
from opwatch.steady.coverage import WriteMap
from opwatch.steady.skew import UNIFORM
from opwatch.sweep.levels import LevelScale, OpLevel
from opwatch.sweep.plan import (
    StepKind,
    SweepPace,
    SweepSpeed,
    compute_fill_size,
    compute_sprandom_ratio,
    plan_steps,
)
from opwatch.tools.acting.fio.options import find_sprandom_refusal, has_option
from opwatch.tools.acting.sweep.tracing import LevelTrace
from opwatch.tools.cli import main
from opwatch.tools.commands.sweep.arguments import drive_arguments
from tests.unit.sweep.test_journal import REQUEST
from tests.unit.sweep.test_offers import make_disk

_GIB = 1 << 30


def write_fio(folder: Path, says: str) -> str:
    """A program that prints this text for any option and exits with 0."""
    path = folder / "fio"
    path.write_text(f"#!/bin/sh\necho '{says}'\n")
    path.chmod(0o755)
    return str(path)


def test_fio_is_probed_for_sprandom(tmp_path: Path) -> None:
    old = write_fio(tmp_path, "No such command: sprandom")
    assert not has_option("sprandom", old)
    assert " no sprandom" in (find_sprandom_refusal(old) or "")
    new = write_fio(tmp_path, "            sprandom: Sprandom option for ssd preconditioning")
    assert has_option("sprandom", new)
    assert find_sprandom_refusal(new) is None
    assert not has_option("sprandom", str(tmp_path / "nothing"))


@pytest.mark.parametrize(
    ("used", "flash", "ratio"),
    [
        (_GIB, 2 * _GIB, 0.99),  # fio's limit is below 1
        (_GIB, int(1.28 * _GIB), 0.28),
        (_GIB, _GIB, 0.01),
        (_GIB, None, 0.07),  # unknown flash size: the usual spare area
        (_GIB // 2, None, 0.99),
        (_GIB * 4 // 5, None, 0.32),
    ],
)
def test_ratio_is_the_drives_spare_area_or_the_usual_value(
    used: int, flash: int | None, ratio: float
) -> None:
    level = OpLevel("it", used, LevelScale(_GIB), flash)
    assert compute_sprandom_ratio(level) == pytest.approx(ratio, abs=1e-3)


def test_plan_writes_spare_and_used_bytes_in_a_single_fill() -> None:
    pace = SweepPace(sprandom=True)
    level = OpLevel("it", _GIB, LevelScale(_GIB), int(1.28 * _GIB))
    steps = plan_steps([level], "window", pace, SweepSpeed(1e9, 1e8))
    [fill] = [step for step in steps if step.kind is StepKind.FILL]
    assert (fill.at_least, fill.at_most) == (1, 1)
    # Random writes are as slow as the workload.
    assert fill.seconds == fill.write_bytes / 1e8
    assert 1.28 * _GIB <= fill.write_bytes <= 1.281 * _GIB
    assert compute_fill_size(level, SweepPace()) == (_GIB, 2)


def test_fio_arguments_of_sprandom() -> None:
    words = build_sprandom_arguments(LoadWindow("/proc/1/fd/3", _GIB), 0.28, 7)
    assert {"--sprandom=1", "--spr_op=0.28", "--rw=randwrite", "--norandommap=1"} <= set(words)
    assert {"--random_generator=lfsr", f"--size={_GIB}", "--randseed=7"} <= set(words)
    # A single job, which ends without a byte limit.
    assert sum(word.startswith("--name") for word in words) == 1
    assert not any(word.startswith("--io_size") for word in words)


@pytest.mark.parametrize("sprandom", [False, True])
def test_journal_keeps_sprandom(sprandom: bool) -> None:
    document = encode(replace(REQUEST, pace=SweepPace(sprandom=sprandom)))
    assert decode(SweepRequest, document, "it").pace.sprandom is sprandom


def test_sweep_without_fio_support_does_not_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_fio(tmp_path, "No such command: sprandom")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    parser = argparse.ArgumentParser()
    drive_arguments.add_drive_arguments(parser)
    drive_arguments.add_sweep_arguments(parser)
    args = parser.parse_args(["--sprandom", "--op", "28%"])
    disk = make_disk(tmp_path / "sys", "sda")
    (disk.sysfs / "size").write_text(f"{_GIB // 512}\n")
    with pytest.raises(Unsupported, match="no sprandom"):
        drive_arguments.make_request(args, disk, REQUEST.identity)
    write_fio(tmp_path, "            sprandom: Sprandom option")
    request = drive_arguments.make_request(args, disk, REQUEST.identity)
    assert request.pace.sprandom
    assert request.budget.write_bytes > 1.28 * request.levels[0].usable_bytes


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--virtual", "ideal", "--sprandom"), "with --dev"),
        (("--dev", "sdzz", "--test", "iops", "--sprandom"), "with --test"),
    ],
)
def test_sprandom_needs_levels_of_a_drive(
    words: tuple[str, ...], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sweep", "plan", *words]) == 2
    assert reason in capsys.readouterr().err


@pytest.mark.parametrize(
    ("is_traced", "filled_ratio", "source", "ratio"),
    [
        (True, None, "block trace", 0.5),
        (True, 1.0, "fio's fill; the block trace has 50 %", 1.0),
        (True, 0.5, "block trace", 0.5),
        (False, 1.0, "fio's fill", 1.0),
    ],
)
def test_spread_of_a_random_fill_comes_from_the_trace(
    is_traced: bool, filled_ratio: float | None, source: str, ratio: float
) -> None:
    trace = LevelTrace.__new__(LevelTrace)
    trace._covered, trace._even = WriteMap(1 << 20), WriteMap(1 << 20)
    trace._covered.record_write(0, 1 << 19, counted=False)
    trace._changes = SimpleNamespace() if is_traced else None  # type: ignore[assignment]  # whether there is one
    spread = trace.measure_spread(filled_ratio, parts=UNIFORM)
    assert (spread.source, spread.coverage_ratio) == (source, ratio)
    trace._changes = None
    assert trace.measure_spread(None, parts=UNIFORM).coverage_ratio is None
