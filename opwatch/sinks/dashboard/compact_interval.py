"""Compact form of a disk's interval, small enough to keep an hour of many disks in memory: every displayed
number, and the latency distribution."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from opwatch.samples.observation import Observation
from opwatch.sinks.dashboard.owners import CompactOwners, compact_owners
from opwatch.trace.abi import LATENCY
from opwatch.trace.derive import Latency, OpInterval
from opwatch.trace.hist import Histogram
from opwatch.trace.unavailable import OWNERS

if TYPE_CHECKING:
    from opwatch.samples.slow import SlowIo
    from opwatch.trace.account.stall import Stall
    from opwatch.trim.audit.live import DiscardSummary
    from opwatch.waf.live import CurrentWaf


# The heat map has four buckets per octave. Bucket edges coincide with histogram slot edges.
BUCKETS_PER_OCTAVE = 4
_BITS = BUCKETS_PER_OCTAVE.bit_length() - 1
_NUMBERS = struct.Struct("<22d")
# The first of the numbers is the count.
_COUNT = struct.Struct("<d")
_HAS_QUEUE_OFFSET = 20 * _COUNT.size
_BUCKET = struct.Struct("<BQ")


def find_bucket(value: int) -> int:
    """Return the bucket of a latency. Each octave has equal parts."""
    octave = max(value, BUCKETS_PER_OCTAVE).bit_length() - 1
    return (
        octave * BUCKETS_PER_OCTAVE
        + (max(value, BUCKETS_PER_OCTAVE) >> (octave - _BITS)) % BUCKETS_PER_OCTAVE
    )


def get_bucket_edge(bucket: int) -> int:
    """Return the lowest latency of a bucket, in ns."""
    octave, part = divmod(bucket, BUCKETS_PER_OCTAVE)
    return (BUCKETS_PER_OCTAVE + part << octave) >> _BITS


_BUCKET_BY_SLOT = [find_bucket(LATENCY.low_edge(slot)) for slot in range(LATENCY.slots)]


class LatencySummary(NamedTuple):
    """A latency distribution for display, in ns. Unknown values are None."""

    mean: float | None
    p50: float | None
    p90: float | None
    p99: float | None
    p99_9: float | None
    max: float | None
    max_slack: float | None


@dataclass(frozen=True, slots=True)
class CompactOp:
    """One operation in an interval. `queue` is None if not measured."""

    count: int
    bytes: int
    errors: int
    queue_depth: float
    size_p50: float | None
    sequential_ratio: float | None
    latency: LatencySummary
    queue: LatencySummary | None
    heat: dict[int, int]


def _list_times(latency: Latency | None) -> Iterable[float | None]:
    if latency is None:
        return [None] * 7
    return (latency.mean, *latency.quantiles.values(), latency.max, latency.max_slack_ns)


def _pack_op(op: OpInterval) -> bytes:
    numbers = [op.count, op.bytes, op.errors, op.queue_depth, op.median_size(), op.sequential_ratio]
    numbers += [*_list_times(op.latency), *_list_times(op.queue), op.queue is not None, 0]
    raw = _NUMBERS.pack(*(math.nan if number is None else number for number in numbers))
    return raw + b"".join(_BUCKET.pack(*pair) for pair in _count_buckets(op.latency.histogram).items())


def _count_buckets(histogram: Histogram) -> dict[int, int]:
    buckets: dict[int, int] = {}
    for slot, count in histogram.list_hits():
        bucket = _BUCKET_BY_SLOT[slot]
        buckets[bucket] = buckets.get(bucket, 0) + count
    return buckets


def unpack_buckets(raw: bytes) -> dict[int, int]:
    """Return only the buckets of a packed operation."""
    return dict(_BUCKET.iter_unpack(memoryview(raw)[_NUMBERS.size :]))


def _unpack_op(raw: bytes) -> CompactOp:
    numbers = [None if math.isnan(number) else number for number in _NUMBERS.unpack_from(raw)]
    return CompactOp(
        count=int(numbers[0] or 0),
        bytes=int(numbers[1] or 0),
        errors=int(numbers[2] or 0),
        queue_depth=numbers[3] or 0.0,
        size_p50=numbers[4],
        sequential_ratio=numbers[5],
        latency=LatencySummary(*numbers[6:13]),
        queue=LatencySummary(*numbers[13:20]) if numbers[20] else None,
        heat=unpack_buckets(raw),
    )


@dataclass(frozen=True, slots=True)
class CompactInterval:
    """An interval of one disk. `packed` holds the operations by name."""

    at: datetime
    begin_ns: int
    end_ns: int
    packed: dict[str, bytes]
    in_flight: int
    unexplained: tuple[str, ...]
    explained: tuple[str, ...]
    stall: Stall | None
    absent: tuple[str, ...]
    live: CurrentWaf | None
    discards: DiscardSummary | None
    slow: SlowIo | None
    owners: CompactOwners | None = None
    # Reason why requested owners are missing.
    no_owners: str | None = None

    @property
    def seconds(self) -> float:
        return (self.end_ns - self.begin_ns) / 1e9

    def find_op(self, name: str) -> CompactOp | None:
        """Return an operation of the interval, or None without requests."""
        raw = self.packed.get(name)
        return None if raw is None else _unpack_op(raw)

    def count_requests(self) -> list[tuple[str, int]]:
        """Return the number of requests of each operation."""
        return [(name, int(_COUNT.unpack_from(raw)[0])) for name, raw in self.packed.items()]

    def count_table_rows(self) -> list[tuple[str, int]]:
        """Return the table rows of each operation: two if the queue time was measured."""
        return [
            (name, 1 + bool(_COUNT.unpack_from(raw, _HAS_QUEUE_OFFSET)[0]))
            for name, raw in self.packed.items()
        ]

    def unpack_ops(self) -> dict[str, CompactOp]:
        return {name: _unpack_op(raw) for name, raw in self.packed.items()}

    def sum_ops(self) -> tuple[int, int, float]:
        """Return requests, bytes read or written, and mean queue depth, summed over all operations."""
        requests, bytes_, depth = 0, 0, 0.0
        for name, raw in self.packed.items():
            numbers = _NUMBERS.unpack_from(raw)
            requests += int(numbers[0])
            bytes_ += int(numbers[1]) if name in ("read", "write") else 0
            depth += numbers[3]
        return requests, bytes_, depth


def compact_interval(observation: Observation) -> CompactInterval:
    """Return the compact form of an interval."""
    interval, discards = observation.interval, observation.discards
    return CompactInterval(
        at=observation.at,
        begin_ns=interval.begin_ns,
        end_ns=interval.end_ns,
        packed={name: _pack_op(op) for name, op in interval.ops.items()},
        in_flight=observation.trust.in_flight,
        unexplained=tuple(observation.unexplained),
        stall=observation.stall,
        explained=tuple(loss.brief for loss in observation.explained_losses),
        absent=tuple(observation.missing_fields),
        live=observation.live,
        discards=discards if discards and (discards.bios or discards.lost or discards.unseen) else None,
        slow=observation.slow if observation.slow and observation.slow.count else None,
        owners=compact_owners(observation.owners) if observation.owners else None,
        no_owners=observation.missing_fields.get(OWNERS),
    )
