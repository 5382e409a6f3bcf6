"""Aggregate the entries of a run into counts per interval and disk.

A long run is reduced to at most MOST_STRETCHES intervals by adding neighbours, which is exact.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from opwatch.counters.looks.sample import FirmwareSample
from opwatch.cpu import CpuUse, compute_cpu_use
from opwatch.samples.entries import CountersRead, DiskAdded, ProgramsSkipped, RunEntry
from opwatch.samples.entry_parts import get_samples
from opwatch.samples.losses import list_losses_between
from opwatch.samples.observe import observe_interval
from opwatch.samples.sample import DiskSample
from opwatch.trace.abi import OpSample
from opwatch.trace.unavailable import CPU, list_unavailable

MAX_INTERVALS = 512


@dataclass(slots=True)
class CountedOp:
    """Counts of one operation in one interval. `slots` holds the latency slots with requests."""

    count: int = 0
    bytes: int = 0
    sum_ns: int = 0
    slots: dict[int, int] = field(default_factory=dict)

    def add(self, other: CountedOp) -> None:
        self.count += other.count
        self.bytes += other.bytes
        self.sum_ns += other.sum_ns
        for slot, count in other.slots.items():
            self.slots[slot] = self.slots.get(slot, 0) + count


@dataclass(slots=True)
class CountedInterval:
    """Counts of all operations of a disk in one interval.

    `requests` counts the requests of all disks that were read together. `cpu` is the machine's CPU use during
    the interval, None if unknown.
    """

    seconds: float
    ops: dict[str, CountedOp]
    requests: int = 0
    cpu: CpuUse | None = None

    def add(self, other: CountedInterval) -> None:
        self.seconds += other.seconds
        for op, counted in other.ops.items():
            self.ops.setdefault(op, CountedOp()).add(counted)
        self.requests += other.requests
        self.cpu = self.cpu.plus(other.cpu) if self.cpu and other.cpu else None


@dataclass(slots=True)
class DiskTimeline:
    """The timeline of one disk.

    `blur_s`: uncertainty of the total duration, because a reading takes time. `most_ns`: longest latency per
    operation, with its possible overestimate. `doubts`: losses of unknown cause; `explained`: losses with a
    known cause. `no_cpu`: why CPU time is missing, if the recording has a reason.
    """

    device: str
    drive: str | None = None
    stretches: list[CountedInterval] = field(default_factory=list)
    blur_s: float = 0.0
    most_ns: dict[str, tuple[int, int]] = field(default_factory=dict)
    doubts: list[str] = field(default_factory=list)
    explained: list[str] = field(default_factory=list)
    no_cpu: str | None = None
    _merged: int = 1
    _waiting: int = 0

    @property
    def seconds(self) -> float:
        return sum(stretch.seconds for stretch in self.stretches)

    @property
    def ops(self) -> list[str]:
        """Return the operations that occurred, in counter order."""
        return list(dict.fromkeys(op for stretch in self.stretches for op in stretch.ops))

    def add_stretch(self, stretch: CountedInterval) -> None:
        """Add one interval. When there are too many, merge neighbours in pairs."""
        if self._waiting and self.stretches:
            self.stretches[-1].add(stretch)
        else:
            self.stretches.append(stretch)
        self._waiting = (self._waiting + 1) % self._merged
        if len(self.stretches) >= MAX_INTERVALS and not self._waiting:
            pairs = zip(self.stretches[::2], self.stretches[1::2], strict=True)
            for first, second in pairs:
                first.add(second)
            self.stretches = self.stretches[::2]
            self._merged *= 2


@dataclass(slots=True)
class SampledRun:
    """All disks of a run by name, and the samples of its drives. `command_s` is the CPU time of the run's
    command, None if unknown."""

    disks: dict[str, DiskTimeline] = field(default_factory=dict)
    looks: dict[str, list[FirmwareSample]] = field(default_factory=dict)
    command_s: float | None = None


@dataclass(slots=True)
class _Presence:
    """A disk from its first sample until it disappeared."""

    course: DiskTimeline
    first: DiskSample
    last: DiskSample


def sample_run(entries: Iterable[RunEntry]) -> SampledRun:
    """Return the counts of a whole run."""
    run, places = SampledRun(), dict[int, _Presence]()
    is_blind = False
    for entry in entries:
        is_blind = is_blind or isinstance(entry, ProgramsSkipped)
        if isinstance(entry, CountersRead):
            run.looks.setdefault(entry.sample.disk, []).append(entry.sample)
        drive = entry.drive if isinstance(entry, DiskAdded) else None
        grown: dict[int, CountedInterval] = {}
        for place, sample in get_samples(entry).items():
            watched = places.get(place)
            if watched is None:
                course = run.disks.setdefault(sample.disk.device, DiskTimeline(sample.disk.device))
                course.drive = course.drive or drive
                course.no_cpu = course.no_cpu or list_unavailable(sample.disk.lacks).get(CPU)
                places[place] = _Presence(course, sample, sample)
                continue
            stretch = _count_between(watched.last, sample)
            if stretch:
                grown[place] = stretch
            watched.last = sample
        requests = sum(stretch.requests for stretch in grown.values())
        for place, stretch in grown.items():
            stretch.requests = requests
            places[place].course.add_stretch(stretch)
    for watched in places.values():
        _finish_disk(watched, is_blind=is_blind)
    return run


def _count_between(then: DiskSample, now: DiskSample) -> CountedInterval | None:
    """Return the counts between two samples, or None if no time passed."""
    begin, end = then.reading.sample, now.reading.sample
    if end.end_ns <= begin.end_ns:
        return None
    ops = {op: counted for op, counted in _diff_ops(begin.ops, end.ops) if counted.count}
    requests = sum(counted.count for counted in ops.values())
    cpu = compute_cpu_use(then.cpu, now.cpu, now.anchor.mono_ns - then.anchor.mono_ns)
    return CountedInterval((end.end_ns - begin.end_ns) / 1e9, ops, requests, cpu)


def _diff_ops(begin: dict[str, OpSample], end: dict[str, OpSample]) -> Iterator[tuple[str, CountedOp]]:
    for op, after in end.items():
        before = begin[op]
        if after.completed == before.completed:
            continue
        yield (
            op,
            CountedOp(
                count=after.completed - before.completed,
                bytes=after.bytes - before.bytes,
                sum_ns=after.sum_ns - before.sum_ns,
                slots=after.latency.subtract(before.latency).counts_by_slot(),
            ),
        )


def _finish_disk(watched: _Presence, *, is_blind: bool) -> None:
    """Add the values that require the whole run."""
    course, first, last = watched.course, watched.first, watched.last
    widths = [sample.reading.sample.end_ns - sample.reading.sample.begin_ns for sample in (first, last)]
    course.blur_s += sum(widths) / 1e9
    whole = observe_interval(
        first, last, final=True, losses=list_losses_between(first, last, is_blind=is_blind)
    )
    course.doubts += whole.unexplained
    course.explained += [loss.words for loss in whole.explained_losses]
    for op, counted in whole.interval.ops.items():
        if counted.latency.max is not None:
            most = counted.latency.max, counted.latency.max_slack_ns
            course.most_ns[op] = max(course.most_ns.get(op, most), most)
