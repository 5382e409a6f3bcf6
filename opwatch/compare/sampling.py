"""The entries of a run -> what was counted in each stretch of it, disk by disk.

However long the run was, there are no more than MOST_STRETCHES: neighbours are added up, which is exact.
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
    """One operation in one stretch. `slots` are those of its latencies that were hit."""

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
    """All operations of one disk in some seconds. `requests` are those of every disk that was read with it;
    `cpu` is what the machine worked meanwhile, None where that is not known."""

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
    """What one disk did. `blur_s`: how far off the length of the whole may be, for a reading takes time;
    `most_ns`: the longest latency by operation, and how much less it may be; `doubts`: what was lost for no
    known cause, `explained` for a known one;
    `no_cpu`: why there is no CPU time, if that was said."""

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
        """Operations of which there were any, in the order of the counters."""
        return list(dict.fromkeys(op for stretch in self.stretches for op in stretch.ops))

    def add(self, stretch: CountedStretch) -> None:
        """Add one stretch more. When there are too many, each two neighbours become one."""
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
    """All disks of a run by name, and what was read of its drives. `command_s` is what the command that ran
    under it took of the CPUs, None where that is not known."""

    disks: dict[str, DiskCourse] = field(default_factory=dict)
    looks: dict[str, list[FirmwareSample]] = field(default_factory=dict)
    command_s: float | None = None


@dataclass(slots=True)
class _Stay:
    """A disk from its begin until it left."""

    course: DiskCourse
    first: DiskSample
    last: DiskSample


def sampled(entries: Iterable[RunEntry]) -> SampledRun:
    """What was counted in all of a run."""
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
    """What was counted between two samples; None of no time."""
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
    """Add what only all of the time tells."""
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
