"""Parts of a run, and longer intervals: the figures agree with the whole run."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest

from opwatch.recording.reading.steps import IntervalSteps
from opwatch.recording.reading.window import close_run, merge_intervals, select_window
from opwatch.samples.entries import (
    CountersRead,
    DiskAdded,
    DiskRemoved,
    EventReported,
    IntervalEnded,
    RunEnded,
    RunEntry,
)
from opwatch.samples.entry_parts import find_start_ns
from tests.unit.support.recordings import format_run
from tests.unit.support.runs import GeneratedRun, S, generate_run


def list_documents(run: Iterable[RunEntry], kind: str, device: str = "nvme0n1") -> list[dict[str, Any]]:
    every = [json.loads(line) for line in format_run(run).splitlines()]
    return [one for one in every if one["type"] == kind and one["device"] == device]


def list_read_counts(run: Iterable[RunEntry], kind: str) -> list[int]:
    return [one["ops"]["read"]["count"] for one in list_documents(run, kind)]


def test_steps_sum_to_the_run() -> None:
    run = list(generate_run(12))
    fine, coarse = (
        list_read_counts(run, "interval"),
        list_read_counts(merge_intervals(run, IntervalSteps(3 * S, S)), "interval"),
    )
    # An incomplete step follows the four full steps.
    assert coarse[:4] == [sum(fine[at : at + 3]) for at in range(0, 12, 3)]
    assert sum(coarse) == sum(fine)
    assert list_read_counts(merge_intervals(run, IntervalSteps(3 * S, S)), "summary") == list_read_counts(
        run, "summary"
    )


def test_incomplete_step_is_shown_at_the_end() -> None:
    run = list(generate_run(8))
    run[-1] = RunEnded(run[-1].samples) if isinstance(run[-1], RunEnded) else run[-1]
    assert len(list_read_counts(merge_intervals(run, IntervalSteps(3 * S, S)), "interval")) == 3
    assert sum(list_read_counts(merge_intervals(run, IntervalSteps(3 * S, S)), "interval")) == sum(
        list_read_counts(run, "interval")
    )


def test_removed_disk_is_not_in_the_incomplete_step() -> None:
    run = GeneratedRun()
    entries: list[RunEntry] = [run.add_disk(0, "nvme0n1"), run.add_disk(1, "sda")]
    entries += [run.make_interval_entry([0, 1]), run.make_interval_entry([0, 1]), run.remove_disk(1)]
    entries.append(RunEnded(run.make_end_entry([0]).samples))
    fine, coarse = (
        list_read_counts(entries, "interval"),
        list_read_counts(merge_intervals(entries, IntervalSteps(5 * S, S)), "interval"),
    )
    assert coarse == [sum(fine)]
    assert len(list_documents(merge_intervals(entries, IntervalSteps(5 * S, S)), "interval", "sda")) == 1


def test_reappearing_disk_keeps_its_events() -> None:
    run = list(generate_run(12))
    events = [
        json.loads(line)["event"]
        for line in format_run(merge_intervals(run, IntervalSteps(5 * S, S))).splitlines()
        if "event" in line
    ]
    assert events == ["came", "not_watched", "left"]


def test_part_starts_with_the_last_samples_before_it() -> None:
    run = list(generate_run(20))
    ticks = [find_start_ns(entry) for entry in run if isinstance(entry, IntervalEnded)]
    part = list(select_window(run, ticks[4], ticks[9]))
    begun = [entry for entry in part if isinstance(entry, DiskAdded)]
    assert [one.place for one in begun] == [0, 1, 2]
    assert all(one.arrival is None for one in begun)
    assert list_read_counts(part, "interval") == list_read_counts(run, "interval")[5:10]
    assert list_read_counts(part, "summary") == [sum(list_read_counts(run, "interval")[5:10])]
    # The drive's figures start at its last answer before the part.
    assert any(isinstance(entry, CountersRead) for entry in part[3:4])


def test_part_without_a_start_or_end_extends_to_the_edge() -> None:
    run = list(generate_run(9))
    assert format_run(select_window(run, 0, None)) == format_run(run)
    assert format_run(select_window(run, 0, None), plain=True) == format_run(run, plain=True)
    assert list(select_window(run, 1 << 62, None)) == []
    ticks = [find_start_ns(entry) for entry in run if isinstance(entry, IntervalEnded)]
    rest = list(select_window(run, ticks[2], None))
    assert list_read_counts(rest, "interval") == list_read_counts(run, "interval")[3:]


def test_disks_removed_before_the_part_are_absent() -> None:
    run = list(generate_run(30))
    gone = next(find_start_ns(entry) for entry in run if isinstance(entry, DiskRemoved))
    part = list(select_window(run, gone + 1, None))
    assert [entry.place for entry in part if isinstance(entry, DiskAdded)] == [0, 1]
    assert not any(isinstance(entry, EventReported | DiskRemoved) for entry in part)


def test_run_without_an_end_is_ended() -> None:
    run = list(generate_run(9))
    assert list(close_run(run)) == run
    cut = list(close_run(run[:-3]))
    assert cut[:-1] == run[:-3]
    assert isinstance(cut[-1], RunEnded)
    assert list_read_counts(cut, "summary") == [sum(list_read_counts(cut, "interval"))]
    assert list(close_run(run[:0])) == []


@pytest.mark.parametrize("late_ns", [-400_000_000, 0, 400_000_000])
def test_readings_that_are_late_or_early_fall_into_their_step(late_ns: int) -> None:
    run = GeneratedRun()
    entries: list[RunEntry] = [run.add_disk(0, "nvme0n1")]
    for second in range(12):
        entries.append(run.make_interval_entry([0]))
        if second == 5:
            run.delay_next_reading(late_ns)
        if second == 6:
            run.delay_next_reading(-late_ns)
    entries.append(run.make_end_entry([0]))
    fine, coarse = (
        list_read_counts(entries, "interval"),
        list_read_counts(merge_intervals(entries, IntervalSteps(4 * S, S)), "interval"),
    )
    assert coarse[:3] == [sum(fine[at : at + 4]) for at in range(0, 12, 4)]
