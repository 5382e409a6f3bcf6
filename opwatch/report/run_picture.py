"""Collect everything a report draws from the entries of a run, in a single pass.

A Story decides what to show, as in a live watch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from opwatch.compare.sampling import SampledRun, sample_run
from opwatch.owners.sample import Owners, merge_owners
from opwatch.report.bins import BinnedTimeline, TimeBin, make_bin, make_histogram
from opwatch.report.interval_counts import IntervalCounts
from opwatch.samples.entries import RunEntry
from opwatch.samples.observation import Event, Observation
from opwatch.samples.presenter import RunPresenter
from opwatch.samples.slow import SlowRequest
from opwatch.samples.slow_tally import select_slowest
from opwatch.trace.abi import OPS
from opwatch.trace.account.stall import Stall
from opwatch.trace.hist import Histogram

# More slow requests than this add nothing to a plot.
MAX_SLOW = 2000


@dataclass(slots=True)
class DiskPicture:
    """One disk of a run.

    `finals` are its summaries; several if the disk disappeared and returned. `slow` holds individually
    reported requests, only the slowest if there were very many; `slow_count` counts all.
    """

    device: str
    label: str
    course: BinnedTimeline = field(default_factory=BinnedTimeline)
    counts: IntervalCounts = field(default_factory=IntervalCounts)
    finals: list[Observation] = field(default_factory=list)
    slow: list[SlowRequest] = field(default_factory=list)
    slow_count: int = 0
    slow_limit_ns: int | None = None
    # The longest stall of any interval.
    stall: Stall | None = None

    @property
    def interval_count(self) -> int:
        """Return the number of intervals in the bins."""
        return len(self.counts)

    @property
    def bins(self) -> list[TimeBin]:
        return self.course.bins

    @property
    def ops(self) -> list[str]:
        """Return the operations with at least one completion, in counter order."""
        return [
            name
            for name in OPS
            if any(name in final.interval.ops and final.interval.ops[name].count for final in self.finals)
        ]

    @property
    def owners(self) -> Owners | None:
        """Return the owners of all requests of the run, or None if any part has no owners."""
        known = [final.owners for final in self.finals if final.owners]
        if not known or len(known) < len(self.finals):
            return None
        return known[0] if len(known) == 1 else merge_owners(known, known[0].by)

    def get_histogram(self, op: str) -> Histogram:
        """Return the latency histogram of an operation over the run."""
        whole = make_histogram({})
        for final in self.finals:
            if op in final.interval.ops:
                whole = whole.merge(final.interval.ops[op].latency.histogram)
        return whole

    def list_sizes(self, op: str) -> list[tuple[int, int, int]]:
        """Return (low, high, count) of request sizes in bytes, by powers of two."""
        amounts: dict[tuple[int, int], int] = {}
        for final in self.finals:
            if op in final.interval.ops:
                for low, high, count in final.interval.ops[op].sizes.list_octaves():
                    amounts[low, high] = amounts.get((low, high), 0) + count
        return [(512 * low, 512 * high, count) for (low, high), count in sorted(amounts.items()) if count]

    def add_interval(self, interval: TimeBin) -> None:
        """Add the next interval."""
        self.course.add_bin(interval)
        self.counts.add_interval(interval)

    def add_observation(self, observation: Observation) -> None:
        """Add an interval, or the summary of a disk."""
        slow = observation.slow
        if observation.final:
            self.finals.append(observation)
            if slow:
                self.slow_count += slow.count
                self.slow_limit_ns = slow.limit_ns
            return
        if observation.stall and (not self.stall or observation.stall.least_ns > self.stall.least_ns):
            self.stall = observation.stall
        newest = make_bin(observation)
        if newest:
            self.add_interval(newest)
        if slow:
            self.slow += slow.requests
            if len(self.slow) > 2 * MAX_SLOW:
                self.slow = list(select_slowest(self.slow, MAX_SLOW))


@dataclass(slots=True)
class RunPicture:
    """A run as the report draws it. `sampled` is the input of comparisons."""

    disks: dict[str, DiskPicture] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    unexplained: list[str] = field(default_factory=list)
    explained: list[str] = field(default_factory=list)
    sampled: SampledRun = field(default_factory=SampledRun)

    @property
    def begin_ns(self) -> int:
        begins = [disk.bins[0].begin_ns for disk in self.disks.values() if disk.bins]
        return min(begins, default=0)

    @property
    def end_ns(self) -> int:
        return max((disk.bins[-1].end_ns for disk in self.disks.values() if disk.bins), default=0)

    @property
    def seconds(self) -> float:
        return (self.end_ns - self.begin_ns) / 1e9

    def add_news(self, news: Observation | Event) -> None:
        if isinstance(news, Event):
            self.events.append(news)
            return
        # Two named devices may share an underlying disk; each has a label and a separate watch.
        if news.label not in self.disks:
            self.disks[news.label] = DiskPicture(news.device, news.label)
        self.disks[news.label].add_observation(news)


def _feed_story(entries: Iterable[RunEntry], story: RunPresenter, picture: RunPicture) -> Iterator[RunEntry]:
    for entry in entries:
        for news in story.process_entry(entry):
            picture.add_news(news)
        yield entry


def gather_run(entries: Iterable[RunEntry]) -> RunPicture:
    """Read a run once and return everything a report draws."""
    story, picture = RunPresenter(), RunPicture()
    picture.sampled = sample_run(_feed_story(entries, story, picture))
    picture.unexplained, picture.explained = story.unexplained, story.explained
    return picture
