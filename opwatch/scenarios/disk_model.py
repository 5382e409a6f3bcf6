"""A hard disk in virtual time: seeks, rotation, transfer, a queue that it reorders, and its cache. Pure.

Everything follows from the data sheet: the radius of an address from the rates at the outer and the inner
edge, the seek time from the times for one track, on average and across the disk, and the rest from the
rotation.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from opwatch.errors import UsageError
from opwatch.fields import Fields

# The mean of the distance of two random places, and of its square root.
_MEAN_DISTANCE, _MEAN_ROOT = 1 / 3, 8 / 15
# A request that has waited this long goes before all nearer ones.
_MAX_WAIT_S = 0.5
# An angle this close to a whole rotation is rounding: the head is exactly at the address.
_ROUNDING = 1e-6
# Cached writes go to the disk if no other request waits, or if they fill this share of the cache. The disk
# looks at this many of them for the nearest one.
_FULL_RATIO = 0.75
_MAX_LOOKED_AT = 64
_INTERFACE_BYTES_PER_S = 600_000_000


@dataclass(frozen=True, slots=True)
class SeekCurve:
    """Seek time by distance: a settling time, a part by the square root, and a linear part.

    Built from the times of a data sheet for one track, for random places on average, and for the whole
    stroke.
    """

    track_s: float
    root_s: float
    linear_s: float

    @classmethod
    def from_sheet(cls, track_s: float, average_s: float, full_s: float) -> SeekCurve:
        spread, mean = full_s - track_s, average_s - track_s
        root = (mean - _MEAN_DISTANCE * spread) / (_MEAN_ROOT - _MEAN_DISTANCE)
        if not 0 <= root <= spread:
            raise UsageError(
                f"no seek curve has {1e3 * track_s:g}, {1e3 * average_s:g} and {1e3 * full_s:g} ms for one "
                "track, on average and across the disk"
            )
        return cls(track_s, root, spread - root)

    def find_time(self, distance: float) -> float:
        """Return seconds for a distance as a share of the whole stroke."""
        return self.track_s + self.root_s * math.sqrt(distance) + self.linear_s * distance


@dataclass(frozen=True, slots=True)
class DiskSheet:
    """What a data sheet says about a disk."""

    name: str
    source: str
    capacity_bytes: int
    rotation_s: float
    outer_bytes_per_s: float
    inner_bytes_per_s: float
    read_seek: SeekCurve
    write_seek: SeekCurve
    overhead_s: float
    cache_bytes: int

    @property
    def rotations(self) -> float:
        """Return how many rotations it takes to read the whole disk."""
        mean = (self.outer_bytes_per_s + self.inner_bytes_per_s) / 2
        return self.capacity_bytes / mean / self.rotation_s

    def find_radius(self, address: int) -> float:
        """Return where an address is, from 0 at the outer edge to 1 at the inner edge.

        Each track takes one rotation, so its bytes, and the rate, fall linearly with the radius.
        """
        outer, fall = self.outer_bytes_per_s, self.outer_bytes_per_s - self.inner_bytes_per_s
        area = address / self.capacity_bytes * (outer - fall / 2)
        if not fall:
            return area / outer
        return (outer - math.sqrt(max(outer * outer - 2 * fall * area, 0.0))) / fall

    def find_rate(self, radius: float) -> float:
        """Return bytes per second at a radius."""
        return self.outer_bytes_per_s + radius * (self.inner_bytes_per_s - self.outer_bytes_per_s)


def parse_disk_sheet(name: str, fields: Fields) -> DiskSheet:
    """Return the data sheet of a disk, with times in milliseconds."""
    read, write = (
        SeekCurve.from_sheet(*(value / 1e3 for value in fields.read_amount_lists(key, 3)[0]))
        for key in ("read_seek_ms", "write_seek_ms")
    )
    return DiskSheet(
        name=name,
        source=fields.read_text("source"),
        capacity_bytes=fields.read_count("capacity_bytes"),
        rotation_s=60 / fields.read_amount("rpm"),
        outer_bytes_per_s=fields.read_amount("outer_bytes_per_s"),
        inner_bytes_per_s=fields.read_amount("inner_bytes_per_s"),
        read_seek=read,
        write_seek=write,
        overhead_s=fields.read_amount("overhead_ms") / 1e3,
        cache_bytes=fields.read_count("cache_bytes"),
    )


@dataclass(slots=True, eq=False)
class DiskRequest:
    """A request to one disk. `owner` is whatever waits for it; nobody waits once it is acknowledged."""

    is_write: bool
    start: int
    len_bytes: int
    owner: int
    is_acknowledged: bool = False
    arrive_s: float = 0.0
    radius: float = 0.0
    angle: float = 0.0

    @property
    def end(self) -> int:
        return self.start + self.len_bytes


class DiskTally(NamedTuple):
    """What a disk did, as the kernel counts it."""

    reads: int = 0
    writes: int = 0
    read_bytes: int = 0
    write_bytes: int = 0
    waited_s: float = 0.0
    active_s: float = 0.0

    def add(self, request: DiskRequest, waited_s: float) -> DiskTally:
        reads, writes, read_bytes, write_bytes, waited, active = self
        if request.is_write:
            return DiskTally(
                reads, writes + 1, read_bytes, write_bytes + request.len_bytes, waited + waited_s, active
            )
        return DiskTally(
            reads + 1, writes, read_bytes + request.len_bytes, write_bytes, waited + waited_s, active
        )

    def subtract(self, earlier: DiskTally) -> DiskTally:
        return DiskTally(
            self.reads - earlier.reads,
            self.writes - earlier.writes,
            self.read_bytes - earlier.read_bytes,
            self.write_bytes - earlier.write_bytes,
            self.waited_s - earlier.waited_s,
            self.active_s - earlier.active_s,
        )


@dataclass(slots=True)
class DiskModel:
    """A disk with its queue. Callers send requests, start the next one, and finish it when it is done."""

    sheet: DiskSheet
    has_write_cache: bool = False
    tally: DiskTally = field(default_factory=DiskTally)
    _queue: list[DiskRequest] = field(default_factory=list)
    _cached: deque[DiskRequest] = field(default_factory=deque)
    _cached_bytes: int = 0
    _radius: float = 0.0
    # The end of the last transfer, and when the head was there. After a read the head reads on.
    _end: int = -1
    _end_s: float = 0.0
    _is_reading: bool = False
    _is_busy: bool = False

    @property
    def depth(self) -> int:
        """Return the number of requests that wait or are served."""
        return len(self._queue) + self._is_busy

    @property
    def next_address(self) -> int:
        """Return where the last request in the queue ends."""
        return self._queue[-1].end if self._queue else self._end

    def measure_distance(self, address: int) -> float:
        """Return how far the head is from an address, as a share of the whole stroke."""
        return abs(self.sheet.find_radius(address) - self._radius)

    def send(self, request: DiskRequest, now_s: float) -> float | None:
        """Queue a request. Return when it is acknowledged if that is before it is on the disk, or None."""
        sheet = self.sheet
        request.arrive_s = now_s
        request.radius = sheet.find_radius(request.start)
        request.angle = request.radius * sheet.rotations % 1.0
        has_room = self._cached_bytes + request.len_bytes <= sheet.cache_bytes
        if not (self.has_write_cache and request.is_write and has_room):
            self._queue.append(request)
            return None
        request.is_acknowledged = True
        self._cached.append(request)
        self._cached_bytes += request.len_bytes
        done_s = now_s + sheet.overhead_s + request.len_bytes / _INTERFACE_BYTES_PER_S
        self.tally = self.tally.add(request, done_s - now_s)
        return done_s

    def start_next(self, now_s: float) -> tuple[float, DiskRequest] | None:
        """Start the nearest request. Return when it will be done, or None if the disk is busy or has none."""
        if self._is_busy:
            return None
        waiting: Sequence[DiskRequest] = self._queue
        if self._cached and (not waiting or self._cached_bytes > _FULL_RATIO * self.sheet.cache_bytes):
            waiting = [*waiting, *islice(self._cached, _MAX_LOOKED_AT)]
        if not waiting:
            return None
        ready_s, request = self._pick(waiting, now_s)
        (self._cached if request.is_acknowledged else self._queue).remove(request)
        passed_s = ready_s + request.len_bytes / self.sheet.find_rate(request.radius)
        done_s = max(passed_s, now_s)
        self.tally = self.tally._replace(active_s=self.tally.active_s + done_s - now_s)
        self._is_busy, self._is_reading = True, not request.is_write
        self._radius, self._end, self._end_s = request.radius, request.end, passed_s
        return done_s, request

    def finish(self, request: DiskRequest, now_s: float) -> None:
        """Take back a request that is done."""
        self._is_busy = False
        if request.is_acknowledged:
            self._cached_bytes -= request.len_bytes
        else:
            self.tally = self.tally.add(request, now_s - request.arrive_s)

    def _pick(self, waiting: Sequence[DiskRequest], now_s: float) -> tuple[float, DiskRequest]:
        """Return when the data of the nearest request come under the head, and the request."""
        oldest = waiting[0]
        if len(waiting) == 1 or now_s - oldest.arrive_s > _MAX_WAIT_S:
            return self._find_ready(oldest, now_s), oldest
        ready_s, place = min((self._find_ready(one, now_s), place) for place, one in enumerate(waiting))
        return ready_s, waiting[place]

    def _find_ready(self, request: DiskRequest, now_s: float) -> float:
        """Return when the head is at the request's first byte; in the past if it has read on already."""
        sheet, begin_s = self.sheet, now_s
        if request.arrive_s >= now_s:
            # The command of a request that waited was handled while the disk was busy.
            begin_s += sheet.overhead_s
        if request.start == self._end:
            if self._is_reading and not request.is_write:
                return max(self._end_s, begin_s - request.len_bytes / sheet.find_rate(request.radius))
            if begin_s == self._end_s:
                return begin_s
        distance = abs(request.radius - self._radius)
        if distance * sheet.rotations >= 1:
            begin_s += (sheet.write_seek if request.is_write else sheet.read_seek).find_time(distance)
        wait = (request.angle - begin_s / sheet.rotation_s) % 1.0
        return begin_s + (0.0 if wait > 1 - _ROUNDING else wait) * sheet.rotation_s
