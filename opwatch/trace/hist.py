"""Log-linear histograms: the slot of a value, the range of a slot, and quantiles with bounds.

The kernel half is `find_hist_slot()` in bpf/lib/hist.h. With `bits` = p a slot is at most 1/2^p of its value
wide, so the middle of a slot is at most 1/2^(p+1) from any value in the slot: 1.56 % for latency (p = 5).
"""

from __future__ import annotations

import contextlib
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, compress
from operator import add, sub
from typing import NamedTuple, TypeGuard

# The slots in use, and the running totals up to each slot.
Ranks = tuple[list[int], list[int]]
_of_views: Callable[[memoryview, memoryview], Ranks | None] | None = None
with contextlib.suppress(ImportError):
    # Parsing and deriving work without the extension, too.
    from opwatch._native import find_growth as _of_views

# Quantiles have up to five decimals.
_RATIO_STEPS = 100_000
# Number of slots compared at once.
_BLOCK_SLOTS = 64
# As many counters as the largest scale has slots.
_ZEROS = memoryview(bytes(8 * 1024)).cast("Q")


@dataclass(frozen=True, slots=True)
class Scale:
    """A slot layout: exact below 2^bits, then 2^bits slots per octave; the last slot is open-ended."""

    bits: int
    slots: int

    def find_slot(self, value: int) -> int:
        """Return the slot of a value, computed as in the kernel."""
        if value < 1 << self.bits:
            return value
        octave = value.bit_length() - 1 - self.bits
        slot = ((octave + 1) << self.bits) + ((value >> octave) & ((1 << self.bits) - 1))
        return min(slot, self.slots - 1)

    def low_edge(self, slot: int) -> int:
        """Return the smallest value in a slot."""
        return self.find_edges(slot)[0]

    def high_edge(self, slot: int) -> int:
        """Return the largest value in a slot; the last slot may also contain larger values."""
        return self.find_edges(slot)[1]

    def find_edges(self, slot: int) -> tuple[int, int]:
        """Return the smallest and the largest value in a slot."""
        if slot < 1 << self.bits:
            return slot, slot
        octave = (slot >> self.bits) - 1
        low = ((1 << self.bits) + (slot & ((1 << self.bits) - 1))) << octave
        return low, low + (1 << octave) - 1


class Quantile(NamedTuple):
    """An estimate and the bounds of the true value. If `open_ended`, the true value may be above `high`."""

    value: float
    low: int
    high: int
    open_ended: bool = False


class Histogram:
    """Counts in the slots of a scale."""

    __slots__ = ("_counts", "_ranks", "_size", "scale")

    def __init__(self, scale: Scale, counts: Sequence[int]) -> None:
        self.scale = scale
        self._size = len(counts)
        self._counts: Sequence[int] | None = counts
        self._ranks: Ranks | None = None

    @property
    def slot_counts(self) -> Sequence[int]:
        """One count per slot. Computed on demand, because intervals rarely need all counts."""
        if self._counts is None:
            slots, running = self.rank_slots()
            counts = [0] * self._size
            for slot, now, then in zip(slots, running, [0, *running], strict=False):
                counts[slot] = now - then
            self._counts = counts
        return self._counts

    def __eq__(self, other: object) -> bool:
        """Return true if the counts are equal, even if stored in different types."""
        if not isinstance(other, Histogram):
            return NotImplemented
        return self.scale == other.scale and list(self.slot_counts) == list(other.slot_counts)

    @classmethod
    def from_values(cls, scale: Scale, values: Sequence[int]) -> Histogram:
        """Return the histogram of the given values."""
        counts = [0] * scale.slots
        for value in values:
            counts[scale.find_slot(value)] += 1
        return cls(scale, counts)

    def rank_slots(self) -> Ranks:
        """Return the slots in use, a few of a thousand, and the running totals up to each slot."""
        if self._ranks is None:
            self._ranks = _rank_counts(self.slot_counts)
        return self._ranks

    @property
    def total(self) -> int:
        _, running = self.rank_slots()
        return running[-1] if running else 0

    def subtract(self, earlier: Histogram) -> Histogram:
        """Return the counts added since `earlier`, a reading of the same counters."""
        now, then = self.slot_counts, earlier.slot_counts
        ranks = _of_views(now, then) if _of_views and _is_native(now) and _is_native(then) else None
        added = Histogram(self.scale, now)
        added._counts = None
        added._ranks = ranks or _find_growth(now, then)
        return added

    def merge(self, other: Histogram) -> Histogram:
        """Return the exact sum of the two histograms."""
        return Histogram(self.scale, list(map(add, self.slot_counts, other.slot_counts)))

    def find_quantile(self, ratio: float, at_most: int | None = None) -> Quantile | None:
        """Return the nearest-rank quantile, or None if empty. `at_most` is the true maximum, if known."""
        slots, running = self._ranks or self.rank_slots()
        if not running or not running[-1]:
            return None
        # Use integer arithmetic, so that rounding of ratio * total cannot change the rank.
        rank = max(1, -(-round(ratio * _RATIO_STEPS) * running[-1] // _RATIO_STEPS))
        slot = slots[bisect_left(running, rank)]
        low, high = self.scale.find_edges(slot)
        open_ended = slot == self.scale.slots - 1
        if at_most is not None and low <= at_most and (at_most < high or open_ended):
            high, open_ended = at_most, False
        return Quantile((low + high) / 2, low, high, open_ended)

    def list_hits(self) -> list[tuple[int, int]]:
        """Return (slot, count) for each slot in use."""
        slots, _ = self.rank_slots()
        return [(slot, self.slot_counts[slot]) for slot in slots]

    def top_slot(self) -> int | None:
        """Return the highest slot in use, or None if empty."""
        slots, _ = self.rank_slots()
        return slots[-1] if slots else None

    def counts_by_slot(self) -> dict[int, int]:
        """Return the counts of the slots in use."""
        slots, _ = self.rank_slots()
        return {slot: self.slot_counts[slot] for slot in slots}

    def list_octaves(self) -> list[tuple[int, int, int]]:
        """Return (low, high, count) per power of two, from the first octave in use to the last."""
        rows: dict[int, int] = {}
        for slot, count in enumerate(self.slot_counts):
            if count:
                octave = self.scale.low_edge(slot).bit_length()
                rows[octave] = rows.get(octave, 0) + count
        if not rows:
            return []
        return [
            (1 << octave >> 1, (1 << octave) - 1, rows.get(octave, 0))
            for octave in range(min(rows), max(rows) + 1)
        ]


def _rank_counts(counts: Sequence[int]) -> Ranks:
    if _of_views and _is_native(counts) and len(counts) <= len(_ZEROS):
        ranks = _of_views(counts, _ZEROS[: len(counts)])
        if ranks:
            return ranks
    values = _to_list(counts)
    return list(compress(range(len(values)), values)), list(accumulate(filter(None, values)))


def _to_list(counts: Sequence[int]) -> list[int]:
    """Return the counts as a list; iterating over a memoryview is slower than tolist()."""
    return counts.tolist() if isinstance(counts, memoryview) else list(counts)


def _is_native(counts: Sequence[int]) -> TypeGuard[memoryview]:
    """Return true if the counts are 64-bit words as in the kernel's maps."""
    return isinstance(counts, memoryview) and counts.format == "Q"


def find_growth(now: Sequence[int], then: Sequence[int]) -> Iterable[tuple[int, int]] | None:
    """Return (slot, increase) of the counters that grew, or None if the fast path does not apply: the
    counters are not raw 64-bit words, or one of them decreased."""
    ranks = _of_views(now, then) if _of_views and _is_native(now) and _is_native(then) else None
    if ranks is None:
        return None
    slots, running = ranks
    return zip(slots, map(sub, running, chain((0,), running)), strict=False)


def _find_growth(now: Sequence[int], then: Sequence[int]) -> Ranks:
    """Compute the same as the extension's find_growth(), for counters of any type.

    Most blocks of slots do not change in an interval, and comparing costs a third of subtracting.
    """
    slots: list[int] = []
    hits: list[int] = []
    for begin in _find_changed_blocks(now, then):
        end = begin + _BLOCK_SLOTS
        counts = list(map(sub, _to_list(now[begin:end]), _to_list(then[begin:end])))
        slots += compress(range(begin, end), counts)
        hits += filter(None, counts)
    return slots, list(accumulate(hits))


def _find_changed_blocks(now: Sequence[int], then: Sequence[int]) -> list[int]:
    """Return the start of each block of slots that differs."""
    width = 1
    if isinstance(now, memoryview) and isinstance(then, memoryview):
        # Memoryviews compare item by item; bytes compare at once.
        width = now.itemsize
        now, then = now.tobytes(), then.tobytes()
        if now == then:
            return []
    step = _BLOCK_SLOTS * width
    return [
        begin // width
        for begin in range(0, len(now), step)
        if now[begin : begin + step] != then[begin : begin + step]
    ]
