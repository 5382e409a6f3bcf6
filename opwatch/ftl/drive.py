"""A simulated drive with types: settings by name, workloads, counters, time."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from opwatch._native import Ftl, Service
from opwatch.frozen import frozen
from opwatch.named import NamedTuple


class Policy(IntEnum):
    """Which superblock is collected; mirrors enum ow_ftl_policy."""

    GREEDY = 0
    FIFO = 1
    RANDOM = 2
    D_CHOICES = 3
    WINDOWED = 4
    COST_BENEFIT = 5


class Tie(IntEnum):
    """Which of equally empty superblocks is collected; mirrors enum ow_ftl_tie."""

    LATEST = 0
    OLDEST = 1


class GcFrontier(IntEnum):
    """Where collection writes; mirrors enum ow_ftl_gc_frontier."""

    SHARED = 0
    COMMON = 1
    PER_STREAM = 2


class TrimMode(IntEnum):
    """Mirrors enum ow_ftl_trim_mode."""

    HONOUR = 0
    LAZY = 1
    IGNORE = 2


class SlcFull(IntEnum):
    """What a full cache does; mirrors enum ow_ftl_slc_full."""

    BYPASS = 0
    FOLD = 1


@frozen
class Geometry:
    """Sizes in bytes, and over-provisioning by both definitions that are in use."""

    physical_bytes: int
    user_bytes: int

    @property
    def spare_of_physical_ratio(self) -> float:
        """(T-U)/T."""
        return (self.physical_bytes - self.user_bytes) / self.physical_bytes

    @property
    def spare_of_user_ratio(self) -> float:
        """(T-U)/U."""
        return (self.physical_bytes - self.user_bytes) / self.user_bytes


class Zone(NamedTuple):
    """A part of the drive and its share of the requests."""

    start_bytes: int
    len_bytes: int
    weight: int = 1
    stream: int = 0


@dataclass
class Workload:
    """What a host does, and how far it is: whole mapping units, random or in order."""

    zones: tuple[Zone, ...] = ()
    sequential: bool = False
    trim_ppm: int = 0
    rng: int = 1
    position: int = 0
    writes: int = field(default=0, init=False)
    trims: int = field(default=0, init=False)

    def advance(self, state: tuple[int, int, int, int]) -> None:
        self.rng, self.position = state[:2]
        self.writes += state[2]
        self.trims += state[3]


class ServiceBucket(NamedTuple):
    """struct ow_service_bucket."""

    ios: int
    io_bytes: int
    latency_sum_ns: int
    latency_max_ns: int
    host_write_bytes: int
    nand_write_bytes: int


_INTERVAL = struct.Struct("=6Q")
_SLOTS = struct.Struct("=1920Q")


@frozen
class TimedRun:
    """A closed loop's result: one entry an interval, and the latencies of all of it."""

    interval_ns: int
    intervals: tuple[ServiceBucket, ...]
    latency_slots: tuple[int, ...]

    def iops(self) -> Iterator[float]:
        return (interval.ios * 1e9 / self.interval_ns for interval in self.intervals)

    def latency_ns(self, ratio: float) -> int | None:
        """What this share of the I/Os did not exceed, at 3 % resolution; None without I/Os."""
        total = sum(self.latency_slots)
        passed = 0
        for slot, count in enumerate(self.latency_slots):
            passed += count
            if count and passed >= ratio * total:
                return _slot_ns(slot + 1) - 1
        return None


def _slot_ns(slot: int) -> int:
    return slot if slot < 32 else (32 + slot % 32) << (slot // 32 - 1)


class Drive:
    """A drive of the settings in struct ow_ftl_config, given by name."""

    def __init__(
        self,
        settings: Mapping[str, int],
        timing: Mapping[str, int] | None = None,
        *,
        core: Ftl | None = None,
    ) -> None:
        self.core = core or Ftl(dict(settings))
        self._service = Service(self.core, dict(timing or {}))

    @classmethod
    def load(cls, saved: bytes, timing: Mapping[str, int] | None = None) -> Drive:
        """The drive of save(); its virtual clock starts anew."""
        return cls({}, timing, core=Ftl.load(saved))

    def save(self) -> bytes:
        return self.core.save()

    def geometry(self) -> Geometry:
        """The sizes as they are now: what went bad is no longer part of T."""
        now = self.core.counters()
        return Geometry(now["physical_bytes"], now["user_bytes"])

    def counters(self) -> dict[str, int]:
        return self.core.counters()

    def run(self, load: Workload, pages: int) -> None:
        """Do this many requests of one mapping unit, without a clock."""
        load.advance(
            self.core.run(pages, load.zones, load.sequential, load.trim_ppm, load.rng, load.position)
        )

    def fill(self) -> None:
        """Write the whole drive once, in order."""
        settings = self.core.config()
        self.run(Workload(sequential=True), settings["user_bytes"] // settings["iu_bytes"])

    def run_timed(
        self,
        load: Workload,
        seconds: float,
        *,
        io_bytes: int = 4096,
        queue_depth: int = 32,
        read_ppm: int = 0,
        interval_ns: int = 1_000_000_000,
    ) -> TimedRun:
        """Keep `queue_depth` I/Os outstanding for so long, in virtual time."""
        count = max(1, round(seconds * 1e9 / interval_ns))
        intervals, slots, state = self._service.run(
            io_bytes=io_bytes,
            queue_depth=queue_depth,
            read_ppm=read_ppm,
            bucket_ns=interval_ns,
            bucket_count=count,
            zones=load.zones,
            sequential=load.sequential,
            trim_ppm=load.trim_ppm,
            rng=load.rng,
            position=load.position,
        )
        load.advance(state)
        return TimedRun(
            interval_ns,
            tuple(ServiceBucket(*values) for values in _INTERVAL.iter_unpack(intervals)),
            _SLOTS.unpack(slots),
        )

    def now_ns(self) -> int:
        """Virtual time: when the last I/O was done, which may be after the run that it came in."""
        return self._service.now_ns()

    def pause(self, seconds: float) -> None:
        """Leave the drive alone for so long, in virtual time."""
        self._service.pause(round(seconds * 1e9))


def amplification(begin: Mapping[str, int], end: Mapping[str, int]) -> float | None:
    """NAND bytes per host byte between two readings; None when the host wrote nothing."""
    host = end["host_write_bytes"] - begin["host_write_bytes"]
    return (end["nand_write_bytes"] - begin["nand_write_bytes"]) / host if host else None
