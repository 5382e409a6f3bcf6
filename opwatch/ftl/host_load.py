"""The Python interface of a simulated host: jobs as fio runs them, or recorded requests over and over."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from opwatch import _native
from opwatch.ftl.drive import Drive, pack_slots
from opwatch.ftl.fio_hash import find_colliding_differences

_SIZE, _ZONE = struct.Struct("=2Q"), struct.Struct("=3Q")
_WHOLE = 100


class AddressKind(IntEnum):
    """Distribution of random addresses; mirrors enum ow_host_kind. UNIFORM is uniform in each zone."""

    UNIFORM = 0
    ZIPF = 1
    PARETO = 2
    NORMAL = 3


@dataclass(frozen=True, slots=True)
class HostShape:
    """The writes, or the reads, of a job.

    Addresses are multiples of `align_bytes`. `blocks` of them are in use on the model, which stand for
    `ranks` on the real drive. `power` is zipf's theta, or pareto's exponent. `center` is the place of the
    hottest block as a share of all blocks, and `normal_width` the even part of a normal distribution in
    ranks. Sizes are (bytes, weight), zones (first block, blocks, weight). `position` is the first address of
    requests in order.
    """

    align_bytes: int
    blocks: int
    ranks: int
    sizes: tuple[tuple[int, int], ...]
    kind: AddressKind = AddressKind.UNIFORM
    power: float = 0.0
    center: float = 0.0
    normal_width: int = 0
    random_percent: int = _WHOLE
    zones: tuple[tuple[int, int, int], ...] = ()
    position: int = 0

    @property
    def mean_bytes(self) -> float:
        """Return the mean size of a request."""
        return sum(size * weight for size, weight in self.sizes) / sum(weight for _, weight in self.sizes)

    def to_native(self) -> _native.HostShape:
        return (
            self.kind,
            self.random_percent,
            self.align_bytes,
            self.blocks,
            self.ranks,
            self.power,
            self.center,
            self.normal_width,
            self.position,
            _pack_weighted(_SIZE, self.sizes),
            _pack_weighted(_ZONE, self.zones),
            array("Q", self._find_differences()).tobytes(),
        )

    def _find_differences(self) -> list[int]:
        is_scaled = self.kind is not AddressKind.UNIFORM and self.blocks != self.ranks
        return find_colliding_differences(self.ranks) if is_scaled else []


def _pack_weighted(layout: struct.Struct, rows: Iterable[Sequence[int]]) -> bytes:
    """Return rows whose last value is a weight, with the sum of the weights so far in its place."""
    packed, total = [], 0
    for *values, weight in rows:
        total += weight
        packed.append(layout.pack(*values, total))
    return b"".join(packed)


@dataclass(frozen=True, slots=True)
class HostJob:
    """A job. `weight` is its number of requests relative to other jobs. A flush follows `flush_every` writes,
    or none if 0."""

    write: HostShape
    read: HostShape
    weight: float = 1.0
    read_ppm: int = 0
    flush_every: int = 0


class HostProgress(NamedTuple):
    """What a host did. Without a clock, `ns` is 0 and there are no latencies.

    `packed_slots` are the latencies in the form of opwatch.ftl.drive.pack_slots().
    """

    ios: int
    host_bytes: int
    nand_bytes: int
    ns: int = 0
    packed_slots: int = 0


@dataclass(slots=True)
class HostLoad:
    """A load on a drive, and its progress. `records` are struct ow_host_record, instead of jobs.

    Raises OSError for impossible loads.
    """

    drive: Drive
    used_bytes: int
    jobs: tuple[HostJob, ...] = ()
    records: bytes | None = None
    queue_depth: int = 32
    seed: int = 1
    core: _native.HostLoad = field(init=False, repr=False)

    def __post_init__(self) -> None:
        jobs = [
            (job.weight, job.read_ppm, job.flush_every, job.write.to_native(), job.read.to_native())
            for job in self.jobs
        ]
        self.core = _native.HostLoad(
            self.drive.core, jobs, self.records, self.used_bytes, self.queue_depth, self.seed
        )

    def run(self, host_bytes: int) -> HostProgress:
        """Write at least that many bytes without a clock."""
        return HostProgress(*self.core.run(host_bytes))

    def play(self, host_bytes: int) -> HostProgress:
        """Write at least that many bytes in virtual time, with `queue_depth` requests outstanding."""
        ios, host, nand, ns, slots = self.core.play(self.drive.clock, host_bytes)
        return HostProgress(ios, host, nand, ns, pack_slots(slots))

    def draw(self, count: int) -> list[tuple[int, int, int]]:
        """Return the next requests (ServiceOp, offset, length) without executing them."""
        return self.core.draw(count)
