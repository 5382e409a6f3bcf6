"""Sets of hard disks in virtual time: the parts of an I/O, and a closed loop that loads a set. Pure."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from heapq import heappop, heappush
from itertools import count
from typing import NamedTuple

from opwatch.compare.student import find_critical_value
from opwatch.errors import UsageError
from opwatch.scenarios.disk_model import DiskModel, DiskRequest, DiskSheet, DiskTally

_MIN_DISKS = {"raid1": 2, "raid10": 4, "raid5": 3}
# The first I/Os fill the queues, and are not counted. The rest is divided to find its error.
_WARM_RATIO, _PARTS = 0.1, 10
_CHANCE = 0.05


class RaidKind(StrEnum):
    """How a set keeps its data."""

    MIRROR = "raid1"
    STRIPED_MIRRORS = "raid10"
    PARITY = "raid5"


class DiskPart(NamedTuple):
    """A part of an I/O on one disk."""

    disk: int
    is_write: bool
    start: int
    len_bytes: int


# Parts that start together; the next phase starts when all are done.
Phase = Sequence[DiskPart]


@dataclass(slots=True)
class RaidSet:
    """Disks of one kind in a set."""

    name: str
    kind: RaidKind
    disks: list[DiskModel]
    chunk_bytes: int

    @property
    def capacity_bytes(self) -> int:
        """Return the bytes that the set shows, in whole stripes."""
        disk = self.disks[0].sheet.capacity_bytes // self.chunk_bytes * self.chunk_bytes
        return disk * self._count_data_disks()

    def list_phases(self, is_write: bool, start: int, len_bytes: int) -> list[Phase]:
        """Return what an I/O does on the disks, step by step."""
        if self.kind is RaidKind.PARITY:
            return self._list_parity_phases(is_write, start, len_bytes)
        parts: list[DiskPart] = []
        for pair, at, length in self._split(start, len_bytes):
            sides = (2 * pair, 2 * pair + 1)
            chosen = sides if is_write else (self._choose_side(sides, at),)
            parts += (DiskPart(side, is_write, at, length) for side in chosen)
        return [parts]

    def _count_data_disks(self) -> int:
        return len(self.disks) - 1 if self.kind is RaidKind.PARITY else len(self.disks) // 2

    def _split(self, start: int, len_bytes: int) -> Iterator[tuple[int, int, int]]:
        """Yield (data disk, address on it, bytes) of each chunk that an I/O touches, in order."""
        width, chunk = self._count_data_disks(), self.chunk_bytes
        if width == 1:
            yield 0, start, len_bytes
            return
        at, end = start, start + len_bytes
        while at < end:
            number, inside = divmod(at, chunk)
            length = min(chunk - inside, end - at)
            yield number % width, number // width * chunk + inside, length
            at += length

    def _choose_side(self, sides: tuple[int, int], at: int) -> int:
        """Return the side whose head comes from there, or else the one with less to do, or the nearer one."""
        for side in sides:
            if self.disks[side].next_address == at:
                return side
        return min(sides, key=lambda side: (self.disks[side].depth, self.disks[side].measure_distance(at)))

    def _list_parity_phases(self, is_write: bool, start: int, len_bytes: int) -> list[Phase]:
        """Return reads, or for a write the reads that its parity needs, and then the writes.

        The parity of each stripe is on another disk. A write reads the old data and the old parity, or the
        rest of the stripe if that is less.
        """
        width, chunk = self._count_data_disks(), self.chunk_bytes
        stripes: dict[int, list[DiskPart]] = {}
        for data, at, length in self._split(start, len_bytes):
            row = at // chunk
            stripes.setdefault(row, []).append(DiskPart(self._place(row, data), is_write, at, length))
        if not is_write:
            return [[part for parts in stripes.values() for part in parts]]
        reads: list[DiskPart] = []
        writes: list[DiskPart] = []
        for row, parts in stripes.items():
            begin = min(part.start for part in parts)
            end = max(part.start + part.len_bytes for part in parts)
            parity = DiskPart(self._find_parity_disk(row), True, begin, end - begin)
            busy = {part.disk for part in parts} | {parity.disk}
            others = [
                DiskPart(disk, False, begin, end - begin) for disk in range(width + 1) if disk not in busy
            ]
            is_whole = all(part.len_bytes == end - begin for part in parts)
            old = [part._replace(is_write=False) for part in (*parts, parity)]
            reads += others if is_whole and len(others) < len(old) else old
            writes += (*parts, parity)
        return [reads, writes] if reads else [writes]

    def _find_parity_disk(self, row: int) -> int:
        return len(self.disks) - 1 - row % len(self.disks)

    def _place(self, row: int, data: int) -> int:
        """Return the disk of a stripe's data chunk: the chunks follow the parity."""
        return (self._find_parity_disk(row) + 1 + data) % len(self.disks)


def make_raid_set(
    name: str, kind: RaidKind, members: int, sheet: DiskSheet, chunk_bytes: int, *, has_write_cache: bool
) -> RaidSet:
    """Return a set of new disks. Raise UsageError for a number of disks that the kind cannot have."""
    is_odd = kind is not RaidKind.PARITY and members % 2
    if members < _MIN_DISKS[kind] or is_odd or (kind is RaidKind.MIRROR and members > _MIN_DISKS[kind]):
        raise UsageError(f"{name}: {members} disks make no {kind.value}")
    return RaidSet(name, kind, [DiskModel(sheet, has_write_cache) for _ in range(members)], chunk_bytes)


class SetLoad(NamedTuple):
    """A load of a set: the share of reads and of random addresses, the size of an I/O, and the threads."""

    read_ratio: float
    random_ratio: float
    io_bytes: int
    threads: int


@dataclass(slots=True)
class _HostIo:
    begin_s: float
    is_write: bool
    phases: list[Phase]
    missing: int = 0


class DoneIo(NamedTuple):
    """A completed I/O of the load."""

    done_s: float
    latency_s: float
    is_write: bool


class SetRate(NamedTuple):
    """The result of a load: I/Os after the first ones, their time, and the relative error of their rate.

    `members` is what each disk did during that time.
    """

    reads: int
    writes: int
    seconds: float
    mean_s: float
    error_ratio: float
    members: tuple[DiskTally, ...]


@dataclass(slots=True)
class SetRun:
    """A closed loop: each thread has one I/O outstanding; sequential I/Os continue one common stream."""

    raid: RaidSet
    load: SetLoad
    seed: int
    done: list[DoneIo] = field(default_factory=list)
    _random: random.Random = field(default_factory=random.Random)
    _next: int = 0
    _ios: dict[int, _HostIo] = field(default_factory=dict)
    _events: list[tuple[float, int, int, DiskRequest]] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=count)

    def run(self, ios: int) -> SetRate:
        """Return the rate of this many I/Os."""
        self._random.seed(self.seed)
        for _ in range(self.load.threads):
            self._begin_io(0.0)
        first = int(ios * _WARM_RATIO)
        self._run_until(first)
        before = [disk.tally for disk in self.raid.disks]
        self._run_until(ios)
        after = [disk.tally for disk in self.raid.disks]
        members = tuple(now.subtract(then) for now, then in zip(after, before, strict=True))
        return _make_rate(self.done[first:ios], self.done[first - 1].done_s, members)

    def _run_until(self, ios: int) -> None:
        while len(self.done) < ios:
            now_s, _, disk, request = heappop(self._events)
            if disk >= 0:
                self.raid.disks[disk].finish(request, now_s)
            if disk < 0 or not request.is_acknowledged:
                self._end_part(request.owner, now_s)
            if disk >= 0:
                self._start_disk(disk, now_s)

    def _begin_io(self, now_s: float) -> None:
        load, whole = self.load, self.raid.capacity_bytes // self.load.io_bytes
        if self._random.random() < load.random_ratio:
            self._next = self._random.randrange(whole)
        at, self._next = self._next, (self._next + 1) % whole
        is_write = self._random.random() >= load.read_ratio
        phases = self.raid.list_phases(is_write, at * load.io_bytes, load.io_bytes)
        number = next(self._numbers)
        self._ios[number] = _HostIo(now_s, is_write, phases)
        self._begin_phase(number, now_s)

    def _begin_phase(self, number: int, now_s: float) -> None:
        io = self._ios[number]
        parts = io.phases.pop(0)
        io.missing = len(parts)
        for part in parts:
            request = DiskRequest(part.is_write, part.start, part.len_bytes, number)
            acknowledged_s = self.raid.disks[part.disk].send(request, now_s)
            if acknowledged_s is not None:
                heappush(self._events, (acknowledged_s, next(self._numbers), -1, request))
        for disk in {part.disk for part in parts}:
            self._start_disk(disk, now_s)

    def _start_disk(self, disk: int, now_s: float) -> None:
        started = self.raid.disks[disk].start_next(now_s)
        if started:
            heappush(self._events, (started[0], next(self._numbers), disk, started[1]))

    def _end_part(self, number: int, now_s: float) -> None:
        io = self._ios[number]
        io.missing -= 1
        if io.missing:
            return
        if io.phases:
            self._begin_phase(number, now_s)
            return
        del self._ios[number]
        self.done.append(DoneIo(now_s, now_s - io.begin_s, io.is_write))
        self._begin_io(now_s)


def _make_rate(done: Sequence[DoneIo], begin_s: float, members: tuple[DiskTally, ...]) -> SetRate:
    """Return the rate of these I/Os, and its error from equal parts of them."""
    writes = sum(one.is_write for one in done)
    return SetRate(
        len(done) - writes,
        writes,
        done[-1].done_s - begin_s,
        sum(one.latency_s for one in done) / len(done),
        _estimate_error([begin_s, *(one.done_s for one in done)]),
        members,
    )


def _estimate_error(times_s: Sequence[float]) -> float:
    """Return the relative error of the mean time per I/O."""
    size = (len(times_s) - 1) // _PARTS
    if not size:
        return 1.0
    spans = [times_s[(part + 1) * size] - times_s[part * size] for part in range(_PARTS)]
    mean = sum(spans) / _PARTS
    variance = sum((span - mean) ** 2 for span in spans) / (_PARTS - 1)
    return find_critical_value(_CHANCE, _PARTS - 1) * (variance / _PARTS) ** 0.5 / mean if mean else 1.0
