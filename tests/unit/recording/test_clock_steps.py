"""Wall-clock steps and suspend: CLOCK_MONOTONIC ignores both, and rates stay unaffected."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from opwatch.recording.reading.reader import RecordedRun
from opwatch.recording.reading.steps import IntervalSteps
from opwatch.recording.reading.window import close_run, merge_intervals
from opwatch.samples.entries import IntervalEnded, RunEnded, RunEntry
from opwatch.samples.sample import DiskSample
from tests.unit.support.recordings import format_run, record_run
from tests.unit.support.runs import GeneratedRun, S

AT = 70
# Back by an hour; forward by a day; eight hours of suspend, during which the monotonic clock stops.
STEPS_S = (-3600, 86_400, 8 * 3600)


def generate_run() -> Iterator[RunEntry]:
    run = GeneratedRun(9)
    yield run.add_disk(0, "nvme0n1")
    for _ in range(2 * AT):
        yield IntervalEnded(run.make_interval_entry([0]).samples)
    yield RunEnded(run.make_end_entry([0]).samples)


def step_clock(entries: Iterable[RunEntry], by_s: int) -> Iterator[RunEntry]:
    """Return the same run with a wall clock that steps at some second."""

    def move_anchor(sample: DiskSample) -> DiskSample:
        return replace(sample, anchor=replace(sample.anchor, wall_ns=sample.anchor.wall_ns + by_s * S))

    for number, entry in enumerate(entries):
        if number > AT and isinstance(entry, IntervalEnded | RunEnded):
            yield replace(entry, samples={place: move_anchor(one) for place, one in entry.samples.items()})
        else:
            yield entry


def parse_output(run: Iterable[RunEntry]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in format_run(run).splitlines()]


@pytest.mark.parametrize("by_s", STEPS_S)
def test_rates_are_unaffected_by_clock_steps(by_s: int) -> None:
    usual, other = parse_output(generate_run()), parse_output(step_clock(generate_run(), by_s))
    for one, two in zip(usual, other, strict=True):
        late = datetime.fromisoformat(two.pop("time")) - datetime.fromisoformat(one.pop("time"))
        is_after = two["end_mono_ns"] > usual[AT - 1]["end_mono_ns"]
        assert late == timedelta(seconds=by_s if is_after else 0)
        assert one == two
        assert two["type"] == "summary" or 0.99 < two["interval_s"] < 1.01


@pytest.mark.parametrize("by_s", STEPS_S)
def test_recording_of_a_clock_step_shows_the_same(tmp_path: Path, by_s: int) -> None:
    path, run = tmp_path / "run.opw", list(step_clock(generate_run(), by_s))
    record_run(path, run)
    recording = RecordedRun(path)
    assert format_run(recording.iter_entries()) == format_run(run)
    steps = IntervalSteps(60 * S, S)
    minutes = parse_output(merge_intervals(close_run(recording.iter_entries(0, steps)), steps))
    recording.close()
    assert minutes == parse_output(merge_intervals(run, IntervalSteps(60 * S, S)))
    assert [round(one["interval_s"]) for one in minutes if one["type"] == "interval"] == [60, 60, 20]
