"""Collect the series of a run that can show a cause of latency: one value per interval, per disk. Pure.

A series is an array, so that an hour of 24 disks needs a few megabytes; samples are not kept.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from opwatch.cpu import compute_cpu_use
from opwatch.owners.cells import NO_WAITS, OwnedCounts, OwnerKey, OwnerKind
from opwatch.owners.sample import OwnerCounts, Owners, OwnerSample, compare_owners
from opwatch.samples.entries import (
    CountersRead,
    DiskAdded,
    IntervalEnded,
    PressureRead,
    QueueChanged,
    RunEnded,
    RunEntry,
    SlowRequestsSeen,
)
from opwatch.samples.entry_parts import get_samples
from opwatch.samples.sample import DiskSample, QueueSettings, WatchedDisk
from opwatch.trace.abi import OPS, OpSample
from opwatch.trace.hist import Histogram

if TYPE_CHECKING:
    from opwatch.counters.looks.sample import FirmwareSample

# The quantile that makes an interval slow.
SLOW_QUANTILE = 0.99
# What delays all requests also delays the fastest ones.
FAST_QUANTILE = 0.1
# Requests of at least this size can delay small requests.
LARGE_BYTES = 256 * 1024
_SECTOR = 512
# More slow requests of a disk add little.
_MAX_SLOW = 20_000
NAN = math.nan


def _zeros(count: int) -> array[float]:
    return array("d", bytes(8 * count))


@dataclass(slots=True)
class OpSeries:
    """One operation per interval: completions, their bytes and device time, its 10th and 99th percentile.

    `queue_ns`, `throttle_ns` and `admission_ns` are the mean time before the issue times the completions, so
    that they add to the device time; NaN if not measured. The percentiles are NaN without completions.
    `behind` are requests issued during a discard.
    """

    count: array[float]
    bytes: array[float]
    device_ns: array[float]
    queue_ns: array[float]
    p99_ns: array[float]
    large_bytes: array[float]
    behind: array[float]
    behind_ns: array[float]
    issued: array[float]
    sequential: array[float]
    throttle_ns: array[float]
    admission_ns: array[float]
    p10_ns: array[float]

    @classmethod
    def make_idle(cls, intervals: int) -> OpSeries:
        """Return the series of an operation without requests so far."""
        series = cls(*(_zeros(intervals) for _ in range(13)))
        for at in range(intervals):
            series.p99_ns[at] = series.p10_ns[at] = NAN
        return series

    def add_idle(self) -> None:
        for series in self._list_arrays():
            series.append(0.0)
        self.p99_ns[-1] = self.p10_ns[-1] = NAN

    def add_growth(self, then: OpSample, now: OpSample) -> None:
        """Add the growth between two samples."""
        done = now.completed - then.completed
        latency = now.latency.subtract(then.latency)
        late, early = (
            latency.find_quantile(quantile) if done else None for quantile in (SLOW_QUANTILE, FAST_QUANTILE)
        )
        self.count.append(done)
        self.bytes.append(now.bytes - then.bytes)
        self.device_ns.append(now.sum_ns - then.sum_ns)
        self.queue_ns.append(
            _scale_growth((then.queued, now.queued), now.queue_sum_ns - then.queue_sum_ns, done)
        )
        self.throttle_ns.append(
            _scale_growth(
                (then.throttle_known, now.throttle_known), now.throttle_sum_ns - then.throttle_sum_ns, done
            )
        )
        self.admission_ns.append(
            _scale_growth(
                (then.admission_known, now.admission_known),
                now.admission_sum_ns - then.admission_sum_ns,
                done,
            )
        )
        self.p99_ns.append(late.value if late else NAN)
        self.p10_ns.append(early.value if early else NAN)
        self.large_bytes.append(_sum_large(now.sizes.subtract(then.sizes)) if done else 0.0)
        self.behind.append(now.behind - then.behind)
        self.behind_ns.append(now.behind_sum_ns - then.behind_sum_ns)
        self.issued.append(now.issued - then.issued)
        self.sequential.append(now.sequential - then.sequential)

    def is_known(self, times: array[float]) -> bool:
        """Return whether a time of this operation was measured in an interval with requests."""
        return any(count and value == value for count, value in zip(self.count, times, strict=True))

    def _list_arrays(self) -> tuple[array[float], ...]:
        return (
            *(self.count, self.bytes, self.device_ns, self.queue_ns, self.p99_ns),
            *(self.large_bytes, self.behind, self.behind_ns, self.issued, self.sequential),
            *(self.throttle_ns, self.admission_ns, self.p10_ns),
        )


def _scale_growth(known: tuple[int, int], total_ns: int, done: int) -> float:
    """Return the mean of a time that `known` requests had before and after, times the completions; NaN if the
    recording does not have this time."""
    before, after = known
    if not after:
        return NAN
    count = after - before
    return total_ns / count * done if count else 0.0


def _sum_large(sizes: Histogram) -> float:
    """Return the bytes in large requests; a request counts as its slot's lower edge."""
    slots, running = sizes.rank_slots()
    total, before = 0, 0
    for slot, count in zip(slots, running, strict=True):
        size = sizes.scale.low_edge(slot) * _SECTOR
        if size >= LARGE_BYTES:
            total += (count - before) * size
        before = count
    return float(total)


@dataclass(slots=True)
class OwnedOp:
    """One operation of an owner per interval: completions and their device time."""

    count: array[float]
    device_ns: array[float]


@dataclass(slots=True)
class OwnerSeries:
    """One owner per interval: bytes and device time of reads and writes, and flushes.

    `waits` are the summed times by operation and layer ("throttle", "admission") if they were counted by
    owner. `ops` has reads and writes, if there were any.
    """

    name: str
    bytes: array[float]
    device_ns: array[float]
    requests: array[float]
    flushes: array[float]
    waits: dict[tuple[str, str], array[float]] = field(default_factory=dict)
    ops: dict[str, OwnedOp] = field(default_factory=dict)

    @classmethod
    def make_idle(cls, name: str, intervals: int) -> OwnerSeries:
        size, device_ns, requests, flushes = (_zeros(intervals) for _ in range(4))
        return cls(name, size, device_ns, requests, flushes)

    def add_counts(self, parts: Sequence[OwnerCounts]) -> None:
        """Add the counts of an interval; none without requests."""
        self._add_waits(parts, known=len(self.bytes))
        data = [one.ops[op] for one in parts for op in ("read", "write") if op in one.ops]
        self.bytes.append(sum(counts.bytes for counts in data))
        self.device_ns.append(sum(counts.sum_ns for counts in data))
        self.requests.append(sum(counts.requests for counts in data))
        self.flushes.append(sum(one.ops["flush"].requests for one in parts if "flush" in one.ops))
        for op in ("read", "write"):
            self._add_op(op, [one.ops[op] for one in parts if op in one.ops])

    def _add_op(self, op: str, counts: Sequence[OwnedCounts]) -> None:
        if not counts and op not in self.ops:
            return
        if op not in self.ops:
            known = len(self.bytes) - 1
            self.ops[op] = OwnedOp(_zeros(known), _zeros(known))
        self.ops[op].count.append(sum(one.requests for one in counts))
        self.ops[op].device_ns.append(sum(one.sum_ns for one in counts))

    def _add_waits(self, parts: Sequence[OwnerCounts], known: int) -> None:
        for series in self.waits.values():
            series.append(0.0)
        for one in parts:
            for op, counts in one.ops.items():
                waits = counts.waits or NO_WAITS
                for layer, time in (("throttle", waits.throttle), ("admission", waits.admission)):
                    if time.known:
                        self.waits.setdefault((op, layer), _zeros(known + 1))[-1] += time.sum_ns


class SlowSpan(NamedTuple):
    """A slow request from its issue to its completion."""

    op: str
    begin_ns: int
    end_ns: int


@dataclass(slots=True)
class WitnessedDisk:
    """One disk of a run. All series have a value per interval; an unknown value is NaN.

    `lacks` is the data missing in the recording, and why. `depth` is the mean number of requests in flight.
    `owners` is None if requests were not counted by owner. `slow_requests` are those above the recorder's
    limit, at most a bounded number. `settings` are those of the disk's queue, from a time on. `seams` are the
    intervals before which a part of the run was left out.
    """

    label: str
    device: str
    origin: str = ""
    drive: str | None = None
    lacks: tuple[str, ...] = ()
    begins_ns: array[int] = field(default_factory=lambda: array("q"))
    ends_ns: array[int] = field(default_factory=lambda: array("q"))
    ops: dict[str, OpSeries] = field(default_factory=dict)
    depth: array[float] = field(default_factory=lambda: array("d"))
    errors: array[float] = field(default_factory=lambda: array("d"))
    requeued: array[float] = field(default_factory=lambda: array("d"))
    cpu_busy: array[float] = field(default_factory=lambda: array("d"))
    cpu_irq: array[float] = field(default_factory=lambda: array("d"))
    cpu_steal: array[float] = field(default_factory=lambda: array("d"))
    owners: dict[OwnerKey, OwnerSeries] | None = None
    slow_requests: list[SlowSpan] = field(default_factory=list)
    settings: list[tuple[int, QueueSettings]] = field(default_factory=list)
    seams: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.ends_ns)

    @property
    def seconds(self) -> float:
        return sum(self.list_seconds())

    def list_seconds(self) -> list[float]:
        """Return the length of each interval."""
        return [(end - begin) / 1e9 for begin, end in zip(self.begins_ns, self.ends_ns, strict=True)]

    def list_settings(self) -> list[QueueSettings] | None:
        """Return the queue's settings in each interval, or None if they were not recorded."""
        if not self.settings:
            return None
        times = [at_ns for at_ns, _ in self.settings]
        return [self.settings[max(bisect_right(times, end) - 1, 0)][1] for end in self.ends_ns]

    def add_seam(self) -> None:
        """Note that the next interval does not follow the last one."""
        if len(self) and self.seams[-1:] != [len(self)]:
            self.seams.append(len(self))

    def add_interval(self, then: DiskSample, now: DiskSample, owners: Owners | None) -> None:
        """Add the interval between two samples of the disk."""
        begin, end = then.reading.sample, now.reading.sample
        elapsed_ns = end.end_ns - begin.end_ns
        known = len(self)
        moved = set()
        for op in OPS:
            before, after = begin.ops[op], end.ops[op]
            if (before.completed, before.issued) == (after.completed, after.issued):
                continue
            moved.add(op)
            if op not in self.ops:
                self.ops[op] = OpSeries.make_idle(known)
            self.ops[op].add_growth(before, after)
        for op, series in self.ops.items():
            if op not in moved:
                series.add_idle()
        self._add_totals(begin.ops, end.ops, elapsed_ns)
        cpu = compute_cpu_use(then.cpu, now.cpu, now.anchor.mono_ns - then.anchor.mono_ns)
        cores_s = cpu.cpus * cpu.seconds if cpu else 0.0
        self.cpu_busy.append(cpu.busy_s / cores_s if cpu and cores_s else NAN)
        self.cpu_irq.append(cpu.irq_s / cores_s if cpu and cores_s else NAN)
        self.cpu_steal.append(cpu.steal_s / cores_s if cpu and cores_s else NAN)
        self._add_owners(owners, known)
        self.begins_ns.append(begin.end_ns)
        self.ends_ns.append(end.end_ns)

    def _add_totals(self, then: Mapping[str, OpSample], now: Mapping[str, OpSample], elapsed_ns: int) -> None:
        depth = sum(now[op].in_flight_ns - then[op].in_flight_ns for op in now)
        self.depth.append(max(depth / elapsed_ns, 0.0))
        self.errors.append(sum(now[op].errors - then[op].errors for op in now))
        self.requeued.append(sum(now[op].requeued - then[op].requeued for op in now))

    def _add_owners(self, owners: Owners | None, known: int) -> None:
        if owners is None:
            return
        if self.owners is None:
            self.owners = {}
        current: dict[OwnerKey, list[OwnerCounts]] = {}
        for one in owners.owners:
            key = self._find_owner(one)
            if key not in self.owners:
                self.owners[key] = OwnerSeries.make_idle(one.name or f"{key.kind.value} {key.number}", known)
            current.setdefault(key, []).append(one)
        for key, series in self.owners.items():
            series.add_counts(current.get(key, ()))

    def _find_owner(self, one: OwnerCounts) -> OwnerKey:
        """Return the key of an owner. A control group that was made again is the same owner."""
        if one.key.kind is not OwnerKind.CGROUP or one.name is None or not self.owners:
            return one.key
        for key, series in self.owners.items():
            if key.kind is OwnerKind.CGROUP and series.name == one.name:
                return key
        return one.key


@dataclass(slots=True)
class WitnessedRun:
    """All disks of a run by label, the polls of its drives, and what was left out.

    `polls_ns` are the begin and end of every poll of a drive; `looks` keeps the polls themselves, at most one
    per `look_every_ns`. `clock_jumps` counts intervals without duration, which are left out. Intervals longer
    than `longest_ns` are left out if it is given: they are gaps between the parts of a run that were read,
    which `parts` describes. `not_read` has the reason for each disk of which hardly anything was read, and
    `is_partial` says that some times of some disks are missing. `pressure` is empty if the kernel has none,
    or in recordings of older versions.
    """

    look_every_ns: int = 0
    longest_ns: int | None = None
    parts: str | None = None
    not_read: dict[str, str] = field(default_factory=dict)
    is_partial: bool = False
    disks: dict[str, WitnessedDisk] = field(default_factory=dict)
    looks: dict[str, list[FirmwareSample]] = field(default_factory=dict)
    polls_ns: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    clock_jumps: int = 0
    pressure: list[PressureRead] = field(default_factory=list)

    def add_look(self, look: FirmwareSample) -> None:
        """Add a poll of a drive."""
        self.polls_ns.setdefault(look.disk, []).append((look.begin_ns, look.end_ns))
        kept = self.looks.setdefault(look.disk, [])
        if not kept or look.end_ns - kept[-1].end_ns >= self.look_every_ns:
            kept.append(look)


@dataclass(slots=True)
class _Watched:
    disk: WitnessedDisk
    last: DiskSample
    owners: OwnerSample | None


def gather_witnesses(
    entries: Iterable[RunEntry], look_every_ns: int = 0, longest_ns: int | None = None
) -> WitnessedRun:
    """Read a run once and return its series. Intervals longer than `longest_ns` are left out."""
    run, places = WitnessedRun(look_every_ns, longest_ns), dict[int, _Watched]()
    for entry in entries:
        if isinstance(entry, CountersRead):
            run.add_look(entry.sample)
        if isinstance(entry, SlowRequestsSeen):
            _add_slow_requests(places, entry)
        if isinstance(entry, PressureRead):
            run.pressure.append(entry)
        if isinstance(entry, QueueChanged) and entry.place in places:
            places[entry.place].disk.settings.append((entry.at_ns, entry.settings))
        for place, sample in get_samples(entry).items():
            owners = _find_owners(entry, place)
            if place not in places:
                drive = entry.drive if isinstance(entry, DiskAdded) else None
                places[place] = _Watched(_find_disk(run, sample, drive), sample, owners)
                continue
            watched = places[place]
            _add_sample(run, watched, sample, owners)
    return run


def _add_sample(run: WitnessedRun, watched: _Watched, now: DiskSample, owners: OwnerSample | None) -> None:
    then = watched.last
    begin, end = then.reading.sample, now.reading.sample
    if end.end_ns <= begin.end_ns:
        run.clock_jumps += end.end_ns < begin.end_ns
        return
    if run.longest_ns is not None and end.end_ns - begin.end_ns > run.longest_ns:
        watched.disk.add_seam()
        watched.last, watched.owners = now, owners
        return
    found = compare_owners(watched.owners, owners, begin, end) if watched.owners and owners else None
    watched.disk.add_interval(then, now, found)
    watched.last, watched.owners = now, owners


def _add_slow_requests(places: Mapping[int, _Watched], entry: SlowRequestsSeen) -> None:
    for one in entry.requests:
        kept = places[one.place].disk.slow_requests if one.place in places else []
        if len(kept) < _MAX_SLOW:
            kept.append(SlowSpan(one.op, one.end_ns - one.latency_ns, one.end_ns))


def _find_owners(entry: RunEntry, place: int) -> OwnerSample | None:
    if isinstance(entry, IntervalEnded | RunEnded):
        return entry.owners.get(place)
    return getattr(entry, "owners", None)


def format_label(disk: WatchedDisk) -> str:
    """Return the label of a disk, which has the array that it is a member of."""
    return disk.device if disk.device == disk.origin else f"{disk.device} (of {disk.origin})"


def _find_disk(run: WitnessedRun, sample: DiskSample, drive: str | None) -> WitnessedDisk:
    """Return the series of a disk, which continue if the disk came back."""
    facts = sample.disk
    label = format_label(facts)
    disk = run.disks.setdefault(label, WitnessedDisk(label, facts.device, facts.origin))
    disk.drive, disk.lacks = disk.drive or drive, facts.lacks
    if facts.settings:
        disk.settings.append((sample.reading.sample.end_ns, facts.settings))
    return disk
