"""Aggregate the entries of a run into counts per interval and disk.

A long run is reduced to at most MOST_STRETCHES intervals by adding neighbours, which is exact.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from opwatch.counters.looks.sample import FirmwareSample
from opwatch.cpu import CpuUse, cpu_use
from opwatch.samples.entries import Began, Blinded, Looked, RunEntry
from opwatch.samples.entry_parts import samples_in
from opwatch.samples.observe import losses_of, observe
from opwatch.samples.sample import DiskSample
from opwatch.trace.abi import OpSample
from opwatch.trace.lacking import CPU, lacking

MOST_STRETCHES = 512


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
class CountedStretch:
    """Counts of all operations of a disk in one interval.

    `requests` counts the requests of all disks that were read together. `cpu` is the machine's CPU use during
    the interval, None if unknown.
    """

    seconds: float
    ops: dict[str, CountedOp]
    requests: int = 0
    cpu: CpuUse | None = None

    def add(self, other: CountedStretch) -> None:
        self.seconds += other.seconds
        for op, counted in other.ops.items():
            self.ops.setdefault(op, CountedOp()).add(counted)
        self.requests += other.requests
        self.cpu = self.cpu.plus(other.cpu) if self.cpu and other.cpu else None


@dataclass(slots=True)
class DiskCourse:
    """The timeline of one disk.

    `blur_s`: uncertainty of the total duration, because a reading takes time. `most_ns`: longest latency per
    operation, with its possible overestimate. `doubts`: losses of unknown cause; `explained`: losses with a
    known cause. `no_cpu`: why CPU time is missing, if the recording has a reason.
    """

    device: str
    drive: str | None = None
    stretches: list[CountedStretch] = field(default_factory=list)
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

    def add(self, stretch: CountedStretch) -> None:
        """Add one interval. When there are too many, merge neighbours in pairs."""
        if self._waiting and self.stretches:
            self.stretches[-1].add(stretch)
        else:
            self.stretches.append(stretch)
        self._waiting = (self._waiting + 1) % self._merged
        if len(self.stretches) >= MOST_STRETCHES and not self._waiting:
            pairs = zip(self.stretches[::2], self.stretches[1::2], strict=True)
            for first, second in pairs:
                first.add(second)
            self.stretches = self.stretches[::2]
            self._merged *= 2


@dataclass(slots=True)
class SampledRun:
    """All disks of a run by name, and the samples of its drives. `command_s` is the CPU time of the run's
    command, None if unknown."""

    disks: dict[str, DiskCourse] = field(default_factory=dict)
    looks: dict[str, list[FirmwareSample]] = field(default_factory=dict)
    command_s: float | None = None


@dataclass(slots=True)
class _Stay:
    """A disk from its first sample until it disappeared."""

    course: DiskCourse
    first: DiskSample
    last: DiskSample


def sampled(entries: Iterable[RunEntry]) -> SampledRun:
    """Return the counts of a whole run."""
    run, places = SampledRun(), dict[int, _Stay]()
    is_blind = False
    for entry in entries:
        is_blind = is_blind or isinstance(entry, Blinded)
        if isinstance(entry, Looked):
            run.looks.setdefault(entry.sample.disk, []).append(entry.sample)
        drive = entry.drive if isinstance(entry, Began) else None
        grown: dict[int, CountedStretch] = {}
        for place, sample in samples_in(entry).items():
            watched = places.get(place)
            if watched is None:
                course = run.disks.setdefault(sample.disk.device, DiskCourse(sample.disk.device))
                course.drive = course.drive or drive
                course.no_cpu = course.no_cpu or lacking(sample.disk.lacks).get(CPU)
                places[place] = _Stay(course, sample, sample)
                continue
            stretch = _between(watched.last, sample)
            if stretch:
                grown[place] = stretch
            watched.last = sample
        requests = sum(stretch.requests for stretch in grown.values())
        for place, stretch in grown.items():
            stretch.requests = requests
            places[place].course.add(stretch)
    for watched in places.values():
        _finish(watched, is_blind=is_blind)
    return run


def _between(then: DiskSample, now: DiskSample) -> CountedStretch | None:
    """Return the counts between two samples, or None if no time passed."""
    begin, end = then.reading.sample, now.reading.sample
    if end.end_ns <= begin.end_ns:
        return None
    ops = {op: counted for op, counted in _grown(begin.ops, end.ops) if counted.count}
    requests = sum(counted.count for counted in ops.values())
    cpu = cpu_use(then.cpu, now.cpu, now.anchor.mono_ns - then.anchor.mono_ns)
    return CountedStretch((end.end_ns - begin.end_ns) / 1e9, ops, requests, cpu)


def _grown(begin: dict[str, OpSample], end: dict[str, OpSample]) -> Iterator[tuple[str, CountedOp]]:
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
                slots=after.latency.since(before.latency).in_use(),
            ),
        )


def _finish(watched: _Stay, *, is_blind: bool) -> None:
    """Add the values that require the whole run."""
    course, first, last = watched.course, watched.first, watched.last
    widths = [sample.reading.sample.end_ns - sample.reading.sample.begin_ns for sample in (first, last)]
    course.blur_s += sum(widths) / 1e9
    whole = observe(first, last, final=True, losses=losses_of(first, last, is_blind=is_blind))
    course.doubts += whole.unexplained
    course.explained += [loss.words for loss in whole.explained]
    for op, counted in whole.interval.ops.items():
        if counted.latency.max is not None:
            most = counted.latency.max, counted.latency.max_slack_ns
            course.most_ns[op] = max(course.most_ns.get(op, most), most)
