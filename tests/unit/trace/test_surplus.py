"""Requests that complete before or during the first reading of a disk: every request is counted."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest

from opwatch.clock import Anchor
from opwatch.samples.entries import DiskAdded, IntervalEnded, RunEnded
from opwatch.samples.observation import Arrival, Event, Observation
from opwatch.samples.presenter import RunPresenter
from opwatch.samples.sample import DiskSample, WatchedDisk
from opwatch.trace.stat import StatSample
from opwatch.trace.surplus import SurplusBounds, compute_bounds
from opwatch.trace.trust import Reading
from tests.unit.support.sample_run import S, get_wall_time
from tests.unit.support.samples import Op, make_sample

WRITES = ("write", "requests")
# Writes by the kernel's count at the last poll before the disk was in the watched stack.
WRITES_AT_LAST_POLL = 17


@dataclass
class Disk:
    """A disk with writes, by the kernel's count and by the tracer's."""

    kernel: int = WRITES_AT_LAST_POLL
    tracer: int = 0
    now: int = 1

    def add_writes(self, count: int) -> None:
        self.kernel += count
        self.tracer += count

    def make_stat(self) -> StatSample:
        return StatSample(0, 0, {"write": self.kernel}, {"write": 4096 * self.kernel})

    def read_sample(self, before: int = 0, after: int = 0) -> DiskSample:
        """Read the disk; `before` writes complete before the tracer's counts are read, and `after` writes
        afterwards."""
        self.now += 1
        first = self.make_stat()
        self.add_writes(before)
        counts = make_sample(self.now * S, write=Op([1000] * self.tracer, [4096] * self.tracer))
        self.add_writes(after)
        disk = WatchedDisk("sda", "dm-0", "requests by hand")
        return DiskSample(disk, Reading(counts, first, self.make_stat()), 0, Anchor(0, 0, 0))


def make_began(first: DiskSample) -> DiskAdded:
    """The disk is found at this reading; the kernel's earlier count is the unseen part."""
    assert first.reading.before
    unseen = first.reading.before.requests["write"] - WRITES_AT_LAST_POLL
    arrival = Arrival(get_wall_time(1), S, 0, {"write": unseen}, {"write": 4096 * unseen})
    return DiskAdded(0, first, arrival=arrival, text="sda has come")


def get_summary(story: RunPresenter, last: DiskSample) -> Observation:
    [final] = [one for one in story.process_entry(RunEnded({0: last})) if isinstance(one, Observation)]
    return final


def bound_requests(shown: Observation) -> tuple[int, int]:
    """Return the least and the largest number of requests that were counted or reported missing."""
    assert shown.arrival
    assert shown.arrival.unseen
    assert shown.arrival.slack
    assert shown.arrival.unseen_bytes == {"write": 4096 * shown.arrival.unseen["write"]}
    count = shown.interval.ops["write"].count if "write" in shown.interval.ops else 0
    least = count + shown.arrival.unseen["write"]
    return least, least + shown.arrival.slack["write"]


def test_completions_during_the_first_reading_are_accounted_for() -> None:
    disk, story = Disk(), RunPresenter()
    disk.kernel += 690
    [news] = story.process_entry(make_began(disk.read_sample(before=1, after=2)))
    assert isinstance(news, Event)
    assert news.arrival
    assert (news.arrival.unseen, news.arrival.slack) == ({"write": 690}, {"write": 3})
    [words] = news.arrival.unexplained
    assert " 693 write " in words
    disk.add_writes(14_320)
    final = get_summary(story, disk.read_sample())
    assert bound_requests(final) == (15_013, 15_013)
    assert final.arrival
    assert (final.arrival.unseen, final.arrival.slack) == ({"write": 691}, {"write": 0})
    assert {drift.drift for drift in final.trust.drift.values()} == {0}


def test_account_of_a_busy_disk_is_an_interval() -> None:
    disk, story = Disk(), RunPresenter()
    story.process_entry(make_began(disk.read_sample(before=3, after=4)))
    disk.add_writes(100)
    [interval] = story.process_entry(IntervalEnded({0: disk.read_sample(before=5, after=1)}))
    assert isinstance(interval, Observation)
    # At the end of that reading, 5 + 100 requests were in the rows, and 3 before.
    assert bound_requests(interval) == (3 + 104 + 5 - 3, 3 + 104 + 5 + 1)
    final = get_summary(story, disk.read_sample(before=2, after=7))
    least, most = bound_requests(final)
    assert least <= disk.kernel - WRITES_AT_LAST_POLL - 7 <= most == least + 3


@pytest.mark.parametrize("seed", range(7))
def test_every_request_is_accounted_for_at_any_time(seed: int) -> None:
    chance, disk, story = random.Random(seed), Disk(), RunPresenter()
    disk.kernel += chance.randrange(1000)
    story.process_entry(make_began(disk.read_sample(chance.randrange(5), chance.randrange(5))))
    for _ in range(20):
        disk.add_writes(chance.randrange(100))
        behind = chance.randrange(5)
        [shown] = story.process_entry(IntervalEnded({0: disk.read_sample(chance.randrange(5), behind)}))
        assert isinstance(shown, Observation)
        assert not shown.trust.drift["write"].drift
    least, most = bound_requests(get_summary(story, disk.read_sample()))
    assert least == most == disk.kernel - WRITES_AT_LAST_POLL


def test_later_losses_are_not_attributed_to_the_arrival() -> None:
    disk, story = Disk(), RunPresenter()
    story.process_entry(make_began(disk.read_sample()))
    disk.kernel += 5
    final = get_summary(story, disk.read_sample())
    assert final.arrival
    assert (final.arrival.unseen, final.arrival.slack) == ({"write": 0}, {"write": 0})
    assert final.trust.drift["write"].drift == 5


def test_bounds_are_missing_without_a_witness() -> None:
    assert compute_bounds(Reading(make_sample(1), None, None, "statistics are off")) is None


def test_later_bounds_narrow_earlier_bounds() -> None:
    wide, near = SurplusBounds({WRITES: 3}, {WRITES: 9}), SurplusBounds({WRITES: 5}, {WRITES: 11})
    assert wide.narrow(near) == near.narrow(wide) == SurplusBounds({WRITES: 5}, {WRITES: 9})
    other = SurplusBounds({WRITES: 10}, {WRITES: 11})
    assert wide.narrow(other) == wide
    # Groups that one side does not know stay unchanged.
    assert wide.narrow(SurplusBounds({}, {})) == wide
