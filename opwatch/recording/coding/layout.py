"""Names of the counters in a recording's samples, for this version or the file's."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from opwatch.trace.abi import OPS, SCALARS, SLOTS, TargetSample, decode_sample


@dataclass(frozen=True, slots=True)
class Layout:
    """Names of a sample's counters, in the order of the file."""

    ops: tuple[str, ...] = OPS
    counters: tuple[str, ...] = SCALARS
    slots: tuple[int, ...] = SLOTS

    @property
    def words_per_op(self) -> int:
        """Number of words per operation."""
        return len(self.counters) + sum(self.slots)

    @property
    def count_words(self) -> int:
        return 2 + len(self.ops) * self.words_per_op

    def decode_words(self, raw: bytes) -> TargetSample:
        """Decode a sample from words. Counters missing in the file are 0; unknown counters are skipped."""
        return decode_sample(raw if self == Layout() else self._reorder_words(raw))

    def _reorder_words(self, raw: bytes) -> bytes:
        """Return the same counters in this version's order."""
        values = memoryview(raw).cast("Q")
        rows = {
            op: values[2 + at * self.words_per_op :][: self.words_per_op] for at, op in enumerate(self.ops)
        }
        places = [self.counters.index(name) if name in self.counters else None for name in SCALARS]
        known = [*values[:2]]
        for op in OPS:
            row = rows.get(op)
            known += [row[place] if row is not None and place is not None else 0 for place in places]
            known += row[len(self.counters) :] if row is not None else [0] * sum(SLOTS)
        return struct.pack(f"={len(known)}Q", *known)
