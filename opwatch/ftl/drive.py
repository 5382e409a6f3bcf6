"""The Python interface of the simulated drive: settings by name, workloads, counters, virtual time."""

from __future__ import annotations

import itertools
import struct
import sys
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from opwatch._native import Ftl, Service


class Policy(IntEnum):
    """Victim selection policy; mirrors enum ow_ftl_policy."""

    GREEDY = 0
    FIFO = 1
    RANDOM = 2
    D_CHOICES = 3
    WINDOWED = 4
    COST_BENEFIT = 5


class Tie(IntEnum):
    """Choice among superblocks with equal valid counts; mirrors enum ow_ftl_tie."""

    LATEST = 0
    OLDEST = 1


class GcFrontier(IntEnum):
    """Destination of collected pages; mirrors enum ow_ftl_gc_frontier."""

    SHARED = 0
    COMMON = 1
    PER_STREAM = 2


class TrimMode(IntEnum):
    """Effect of a trim; mirrors enum ow_ftl_trim_mode."""

    HONOUR = 0
    LAZY = 1
    IGNORE = 2


class SlcFull(IntEnum):
    """Behaviour of a full cache; mirrors enum ow_ftl_slc_full."""

    BYPASS = 0
    FOLD = 1


class ServiceOp(IntEnum):
    """A command of the host; mirrors enum ow_service_op."""

    READ = 0
    WRITE = 1
    TRIM = 2
    FLUSH = 3


@dataclass(frozen=True, slots=True)
class Geometry:
    """Sizes in bytes, and over-provisioning by both common definitions."""

    physical_bytes: int
    user_bytes: int

    @property
    def spare_of_physical_ratio(self) -> float:
        """Return (T-U)/T."""
        return (self.physical_bytes - self.user_bytes) / self.physical_bytes

    @property
    def spare_of_user_ratio(self) -> float:
        """Return (T-U)/U."""
        return (self.physical_bytes - self.user_bytes) / self.user_bytes


class Zone(NamedTuple):
    """A part of the drive and its share of the requests."""

    start_bytes: int
    len_bytes: int
    weight: int = 1
    stream: int = 0


@dataclass
class Workload:
    """A host workload in whole mapping units, random or sequential, and its progress."""

    zones: tuple[Zone, ...] = ()
    sequential: bool = False
    trim_ppm: int = 0
    rng: int = 1
    position: int = 0
    writes: int = field(default=0, init=False)
    trims: int = field(default=0, init=False)

    def update_state(self, state: tuple[int, int, int, int]) -> None:
        self.rng, self.position = state[:2]
        self.writes += state[2]
        self.trims += state[3]


class ServiceBucket(NamedTuple):
    """One interval of a run; mirrors struct ow_service_bucket."""

    ios: int
    io_bytes: int
    latency_sum_ns: int
    latency_max_ns: int
    host_write_bytes: int
    nand_write_bytes: int


_INTERVAL = struct.Struct("=6Q")
_SLOTS = struct.Struct("=1920Q")


@dataclass(frozen=True, slots=True)
class TimedRun:
    """The result of a closed loop: one entry per interval, and the latency distribution of the whole run."""

    interval_ns: int
    intervals: tuple[ServiceBucket, ...]
    latency_slots: tuple[int, ...]

    def iter_iops(self) -> Iterator[float]:
        return (interval.ios * 1e9 / self.interval_ns for interval in self.intervals)

    def latency_ns(self, ratio: float) -> int | None:
        """Return the latency percentile for `ratio` at 3 % resolution, or None if there were no I/Os."""
        return find_latencies_ns(self.latency_slots, (ratio,))[0]


def find_latencies_ns(slots: Sequence[int], ratios: Iterable[float]) -> list[int | None]:
    """Return the latency percentile for each ratio at 3 % resolution, or None if there were no I/Os."""
    passed = list(itertools.accumulate(slots))
    total = passed[-1]
    return [
        # A slot without I/Os is never the answer, not even for a ratio of 0.
        _convert_slot_to_ns(bisect_left(passed, max(ratio * total, 1)) + 1) - 1 if total else None
        for ratio in ratios
    ]


def pack_slots(slots: bytes) -> int:
    """Return the latency slots of a run as one integer. Sums of such integers hold the sums of all slots."""
    return int.from_bytes(slots, sys.byteorder)


def unpack_slots(packed: int) -> tuple[int, ...]:
    """Return the number of I/Os per latency slot."""
    return _SLOTS.unpack(packed.to_bytes(_SLOTS.size, sys.byteorder))


def _convert_slot_to_ns(slot: int) -> int:
    return slot if slot < 32 else (32 + slot % 32) << (slot // 32 - 1)


class Drive:
    """A drive with settings named as in struct ow_ftl_config."""

    def __init__(
        self,
        settings: Mapping[str, int],
        timing: Mapping[str, int] | None = None,
        *,
        core: Ftl | None = None,
    ) -> None:
        self.core = core or Ftl(dict(settings))
        self.clock = Service(self.core, dict(timing or {}))

    @classmethod
    def load_saved(cls, saved: bytes, timing: Mapping[str, int] | None = None) -> Drive:
        """Load a drive from the bytes of save(). Its virtual clock starts at 0."""
        return cls({}, timing, core=Ftl.load(saved))

    def save(self) -> bytes:
        return self.core.save()

    def read_geometry(self) -> Geometry:
        """Return the current sizes. Superblocks that went bad are no longer part of T."""
        now = self.core.counters()
        return Geometry(now["physical_bytes"], now["user_bytes"])

    def read_counters(self) -> dict[str, int]:
        return self.core.counters()

    def run_load(self, load: Workload, pages: int) -> None:
        """Run `pages` requests of one mapping unit each, without a clock."""
        load.update_state(
            self.core.run(pages, load.zones, load.sequential, load.trim_ppm, load.rng, load.position)
        )

    def fill_drive(self) -> None:
        """Write the whole drive once, sequentially."""
        settings = self.core.config()
        self.run_load(Workload(sequential=True), settings["user_bytes"] // settings["iu_bytes"])

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
        """Keep `queue_depth` I/Os outstanding for `seconds` of virtual time."""
        count = max(1, round(seconds * 1e9 / interval_ns))
        intervals, slots, state = self.clock.run(
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
        load.update_state(state)
        return TimedRun(
            interval_ns,
            tuple(ServiceBucket(*values) for values in _INTERVAL.iter_unpack(intervals)),
            _SLOTS.unpack(slots),
        )

    def submit(self, op: ServiceOp, start_bytes: int, len_bytes: int, arrive_ns: int) -> int:
        """Send one command, and return the virtual time of its completion. Commands arrive in order."""
        return self.clock.submit(op, start_bytes, len_bytes, arrive_ns)

    def now_ns(self) -> int:
        """Return the virtual time of the latest completion, which may be after the end of the run."""
        return self.clock.now_ns()

    def stay_idle(self, seconds: float) -> None:
        """Leave the drive without I/O for `seconds` of virtual time."""
        self.clock.pause(round(seconds * 1e9))


def compute_amplification(begin: Mapping[str, int], end: Mapping[str, int]) -> float | None:
    """Return NAND bytes per host byte between two readings, or None if the host wrote nothing."""
    host = end["host_write_bytes"] - begin["host_write_bytes"]
    return (end["nand_write_bytes"] - begin["nand_write_bytes"]) / host if host else None
