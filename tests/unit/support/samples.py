"""Generated samples, in the extension's byte format."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from opwatch.trace import abi
from opwatch.trace.abi import LATENCY, OPS, SIZE, TargetSample


@dataclass
class Op:
    """Counts of an operation so far; `latency_ns` lists its completions."""

    latency_ns: list[int] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    queue_ns: list[int] = field(default_factory=list)
    statuses: dict[int, int] = field(default_factory=dict)
    scalars: dict[str, int] = field(default_factory=dict)

    def encode_words(self) -> list[int]:
        values = {
            "completed": len(self.latency_ns),
            "bytes": sum(self.sizes),
            "ends": len(self.latency_ns),
            "sum_ns": sum(self.latency_ns),
            "in_flight_ns": sum(self.latency_ns),
            "max_ns": max(self.latency_ns, default=0),
            "issued": len(self.latency_ns),
            "errors": sum(self.statuses.values()),
            "queued": len(self.queue_ns),
            "queue_sum_ns": sum(self.queue_ns),
            "queue_max_ns": max(self.queue_ns, default=0),
        } | self.scalars
        names = [
            name for name in abi.OpSample._fields if name not in ("latency", "queue", "sizes", "statuses")
        ]
        slots = [0] * (2 * LATENCY.slots + SIZE.slots + abi.STATUSES)
        for value in self.latency_ns:
            slots[LATENCY.find_slot(value)] += 1
        for value in self.queue_ns:
            slots[LATENCY.slots + LATENCY.find_slot(value)] += 1
        for size in self.sizes:
            slots[2 * LATENCY.slots + SIZE.find_slot(size // 512)] += 1
        for status, count in self.statuses.items():
            slots[2 * LATENCY.slots + SIZE.slots + status] += count
        return [values.get(name, 0) for name in names] + slots


def encode_sample(at_ns: int, **ops: Op) -> bytes:
    words = [at_ns, at_ns]
    for name in OPS:
        words += ops.get(name, Op()).encode_words()
    return struct.pack(f"={len(words)}Q", *words)


def make_sample(at_ns: int, **ops: Op) -> TargetSample:
    return abi.decode_sample(encode_sample(at_ns, **ops))
