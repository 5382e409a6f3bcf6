"""A recorded sweep: one file, with levels and steps as phases."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

from opwatch.recording.reading.phases import find_phase, list_phases
from opwatch.recording.reading.reader import RecordedRun
from opwatch.samples.entries import CountersRead, IntervalEnded
from tests.kernel.support.drives import MIB, create_drive
from tests.kernel.support.watching import run_opwatch
from tests.kernel.sweep.test_sweep import parse_levels, run_sweep

_SHORT = ("--op", "0,28%", "--settle", "0", "--rounds", "5", "--refresh", "0", "--fill", "1")
_NOT_REACHED = 6


def count_written(run: RecordedRun, phase: str) -> int:
    """Return the bytes written from the first to the last sample of a phase, by the kernel's count, because
    some development machines' kernels hide events from the tracer."""
    part = find_phase(run, phase)
    assert part.end_ns
    counts = [
        sample.reading.after.bytes["write"]
        for entry in run.iter_entries(part.begin_ns)
        if isinstance(entry, IntervalEnded)
        for sample in entry.samples.values()
        if sample.reading.after and part.begin_ns <= sample.reading.after.begin_ns < part.end_ns
    ]
    return counts[-1] - counts[0]


def test_levels_and_steps_are_phases_of_the_recording(tmp_path: Path) -> None:
    kept = tmp_path / "s.opw"
    with create_drive(64 * MIB, "10%") as target:
        done = run_sweep("run", target, tmp_path, "--dev", target.device, "-o", str(kept), *_SHORT)
        assert done.returncode == _NOT_REACHED, done.stderr
        again = run_sweep("run", target, tmp_path, "--dev", target.device, "-o", str(kept), *_SHORT)
        assert again.returncode == 2 and f" {kept}: " in again.stderr
    levels = parse_levels(done.stdout)
    with closing(RecordedRun(kept)) as run:
        phases = [phase.name for phase in list_phases(run)]
        steps = ["purge", "fill 1", *(f"round {number}" for number in range(1, 6))]
        assert phases == [
            name
            for label in ("0 %", "28 %")
            for name in (f"level {label}", *(f"level {label}: {step}" for step in steps))
        ]
        assert all(phase.end_ns for phase in list_phases(run))
        for level in levels:
            label = f"level {level['label']}"
            assert count_written(run, f"{label}: fill 1") == level["used_bytes"]
            for number, one in enumerate(level["rounds"], 1):
                assert count_written(run, f"{label}: round {number}") == one["host_bytes"]
        looks = sum(isinstance(entry, CountersRead) for entry in run.iter_entries())
        assert looks > 2 * 2 * 6
    replayed = run_opwatch("replay", str(kept), "--json")
    assert replayed.returncode == 0, replayed.stderr
    assert any(line["type"] == "summary" for line in map(json.loads, replayed.stdout.splitlines()))
