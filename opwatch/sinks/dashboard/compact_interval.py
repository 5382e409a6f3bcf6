"""Compact form of a disk's interval, small enough to keep an hour of many disks in memory: every displayed
number, and the latency distribution."""

from __future__ import annotations

import math
import struct
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from opwatch.samples.observation import Observation
from opwatch.sinks.columns import PATHS, read_figures
from opwatch.sinks.dashboard.owners import CompactOwners, compact_owners
from opwatch.sinks.jsonl import build_op_document
from opwatch.trace.abi import LATENCY
from opwatch.trace.derive import OpInterval
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
_NUMBERS = struct.Struct(f"<{len(PATHS)}d")
_COUNT, _BYTES, _DEPTH = (PATHS.index(path) for path in ("count", "bytes", "queue_depth"))
# Known if times before the issue were measured, even without requests.
_WAITS = [
    PATHS.index(path) for path in ("throttle_ns.max_limit", "admission_ns.max_limit", "queue_ns.max_slack")
]
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


class CompactOp(NamedTuple):
    """One operation in an interval: the values of its columns by path, and its latencies by bucket."""

    figures: dict[str, float | None]
    heat: dict[int, int]


def _pack_op(op: OpInterval, seconds: float, absent: Collection[str]) -> bytes:
    figures = read_figures(build_op_document(op, seconds, absent))
    raw = _NUMBERS.pack(*(math.nan if number is None else number for number in figures.values()))
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
    numbers = (None if math.isnan(number) else number for number in _NUMBERS.unpack_from(raw))
    return CompactOp(dict(zip(PATHS, numbers, strict=True)), unpack_buckets(raw))


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
        return [(name, int(_NUMBERS.unpack_from(raw)[_COUNT])) for name, raw in self.packed.items()]

    def count_table_rows(self) -> list[tuple[str, int]]:
        """Return the table rows of each operation: one more for each measured time before the issue."""
        rows = []
        for name, raw in self.packed.items():
            numbers = _NUMBERS.unpack_from(raw)
            rows.append((name, 1 + sum(not math.isnan(numbers[wait]) for wait in _WAITS)))
        return rows

    def unpack_ops(self) -> dict[str, CompactOp]:
        return {name: _unpack_op(raw) for name, raw in self.packed.items()}

    def sum_ops(self) -> tuple[int, int, float]:
        """Return requests, bytes read or written, and mean queue depth, summed over all operations."""
        requests, bytes_, depth = 0, 0, 0.0
        for name, raw in self.packed.items():
            numbers = _NUMBERS.unpack_from(raw)
            requests += int(numbers[_COUNT])
            bytes_ += int(numbers[_BYTES]) if name in ("read", "write") else 0
            depth += 0.0 if math.isnan(numbers[_DEPTH]) else numbers[_DEPTH]
        return requests, bytes_, depth


def compact_interval(observation: Observation) -> CompactInterval:
    """Return the compact form of an interval."""
    interval, discards = observation.interval, observation.discards
    absent = observation.missing_fields
    return CompactInterval(
        at=observation.at,
        begin_ns=interval.begin_ns,
        end_ns=interval.end_ns,
        packed={name: _pack_op(op, interval.seconds, absent) for name, op in interval.ops.items()},
        in_flight=observation.trust.in_flight,
        unexplained=tuple(observation.unexplained),
        stall=observation.stall,
        explained=tuple(loss.brief for loss in observation.explained_losses),
        absent=tuple(absent),
        live=observation.live,
        discards=discards if discards and (discards.bios or discards.lost or discards.unseen) else None,
        slow=observation.slow if observation.slow and observation.slow.count else None,
        owners=compact_owners(observation.owners) if observation.owners else None,
        no_owners=absent.get(OWNERS),
    )
