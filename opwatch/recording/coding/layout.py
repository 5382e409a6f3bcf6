"""Which counters a sample of a recording has, by name: those of this version, or of the one that wrote it."""

from __future__ import annotations

import struct

from opwatch.frozen import frozen
from opwatch.trace.abi import OPS, SCALARS, SLOTS, TargetSample, decode_sample

# What earlier versions had instead: the time of requests, added when they completed.
_NEAREST = {"in_flight_ns": "sum_ns"}


@frozen
class Layout:
    """The names of what a sample counts, in the order in which the file has them."""

    ops: tuple[str, ...] = OPS
    counters: tuple[str, ...] = SCALARS
    slots: tuple[int, ...] = SLOTS

    @property
    def width(self) -> int:
        """Words of one operation."""
        return len(self.counters) + sum(self.slots)

    @property
    def words(self) -> int:
        return 2 + len(self.ops) * self.width

    def decoded(self, raw: bytes) -> TargetSample:
        """The sample that these words are. What a later version counts besides is 0 in a sample of an earlier
        one; what it no longer counts is passed over."""
        return decode_sample(raw if self == Layout() else self._translated(raw))

    def _translated(self, raw: bytes) -> bytes:
        """The same counters in the order of this version."""
        values = memoryview(raw).cast("Q")
        rows = {op: values[2 + at * self.width :][: self.width] for at, op in enumerate(self.ops)}
        names = [name if name in self.counters else _NEAREST.get(name) for name in SCALARS]
        places = [self.counters.index(name) if name in self.counters else None for name in names]
        known = [*values[:2]]
        for op in OPS:
            row = rows.get(op)
            known += [row[place] if row is not None and place is not None else 0 for place in places]
            known += row[len(self.counters) :] if row is not None else [0] * sum(SLOTS)
        return struct.pack(f"={len(known)}Q", *known)
