"""Parts of a run, and longer intervals: the figures agree with the whole run."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest

from opwatch.recording.reading.steps import Steps
from opwatch.recording.reading.window import between, ended, in_steps
from opwatch.samples.entries import Began, Ended, Left, Looked, NotWatched, RunEntry, Ticked
from opwatch.samples.entry_parts import first_moment
from tests.unit.support.recordings import shown
from tests.unit.support.runs import MadeUpRun, S, a_run


def documents(run: Iterable[RunEntry], kind: str, device: str = "nvme0n1") -> list[dict[str, Any]]:
    every = [json.loads(line) for line in shown(run).splitlines()]
    return [one for one in every if one["type"] == kind and one["device"] == device]


def counts(run: Iterable[RunEntry], kind: str) -> list[int]:
    return [one["ops"]["read"]["count"] for one in documents(run, kind)]


def test_steps_add_up() -> None:
    run = list(a_run(12))
    fine, coarse = counts(run, "interval"), counts(in_steps(run, Steps(3 * S, S)), "interval")
    # An incomplete step follows the four full steps.
    assert coarse[:4] == [sum(fine[at : at + 3]) for at in range(0, 12, 3)]
    assert sum(coarse) == sum(fine)
    assert counts(in_steps(run, Steps(3 * S, S)), "summary") == counts(run, "summary")


def test_incomplete_step_is_shown_at_the_end() -> None:
    run = list(a_run(8))
    run[-1] = Ended(run[-1].samples) if isinstance(run[-1], Ended) else run[-1]
    assert len(counts(in_steps(run, Steps(3 * S, S)), "interval")) == 3
    assert sum(counts(in_steps(run, Steps(3 * S, S)), "interval")) == sum(counts(run, "interval"))


def test_removed_disk_is_not_in_the_incomplete_step() -> None:
    run = MadeUpRun()
    entries: list[RunEntry] = [run.begin(0, "nvme0n1"), run.begin(1, "sda")]
    entries += [run.tick([0, 1]), run.tick([0, 1]), run.leave(1)]
    entries.append(Ended(run.end([0]).samples))
    fine, coarse = counts(entries, "interval"), counts(in_steps(entries, Steps(5 * S, S)), "interval")
    assert coarse == [sum(fine)]
    assert len(documents(in_steps(entries, Steps(5 * S, S)), "interval", "sda")) == 1


def test_a_disk_that_comes_and_goes_keeps_its_events() -> None:
    run = list(a_run(12))
    events = [
        json.loads(line)["event"]
        for line in shown(in_steps(run, Steps(5 * S, S))).splitlines()
        if "event" in line
    ]
    assert events == ["came", "not_watched", "left"]


def test_part_begins_with_the_last_samples_before() -> None:
    run = list(a_run(20))
    ticks = [first_moment(entry) for entry in run if isinstance(entry, Ticked)]
    part = list(between(run, ticks[4], ticks[9]))
    begun = [entry for entry in part if isinstance(entry, Began)]
    assert [one.place for one in begun] == [0, 1, 2]
    assert all(one.arrival is None for one in begun)
    assert counts(part, "interval") == counts(run, "interval")[5:10]
    assert counts(part, "summary") == [sum(counts(run, "interval")[5:10])]
    # The drive's figures start at its last answer before the part.
    assert any(isinstance(entry, Looked) for entry in part[3:4])


def test_a_part_without_a_begin_or_an_end_is_the_rest() -> None:
    run = list(a_run(9))
    assert shown(between(run, 0, None)) == shown(run)
    assert shown(between(run, 0, None), plain=True) == shown(run, plain=True)
    assert list(between(run, 1 << 62, None)) == []
    ticks = [first_moment(entry) for entry in run if isinstance(entry, Ticked)]
    rest = list(between(run, ticks[2], None))
    assert counts(rest, "interval") == counts(run, "interval")[3:]


def test_disks_removed_before_the_part_are_absent() -> None:
    run = list(a_run(30))
    gone = next(first_moment(entry) for entry in run if isinstance(entry, Left))
    part = list(between(run, gone + 1, None))
    assert [entry.place for entry in part if isinstance(entry, Began)] == [0, 1]
    assert not any(isinstance(entry, NotWatched | Left) for entry in part)


def test_run_without_an_end_is_ended() -> None:
    run = list(a_run(9))
    assert list(ended(run)) == run
    cut = list(ended(run[:-3]))
    assert cut[:-1] == run[:-3]
    assert isinstance(cut[-1], Ended)
    assert counts(cut, "summary") == [sum(counts(cut, "interval"))]
    assert list(ended(run[:0])) == []


@pytest.mark.parametrize("late_ns", [-400_000_000, 0, 400_000_000])
def test_readings_that_are_late_or_early_fall_into_their_step(late_ns: int) -> None:
    run = MadeUpRun()
    entries: list[RunEntry] = [run.begin(0, "nvme0n1")]
    for second in range(12):
        entries.append(run.tick([0]))
        if second == 5:
            run.shift(late_ns)
        if second == 6:
            run.shift(-late_ns)
    entries.append(run.end([0]))
    fine, coarse = counts(entries, "interval"), counts(in_steps(entries, Steps(4 * S, S)), "interval")
    assert coarse[:3] == [sum(fine[at : at + 4]) for at in range(0, 12, 4)]
