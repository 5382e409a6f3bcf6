"""Log-linear histograms: where a value falls, what a slot can hold, and quantiles with their bounds.

The kernel half is `hist_slot()` in bpf/lib/hist.h. With `bits` = p a slot is at most 1/2^p of its value
wide, so the middle of a slot is at most 1/2^(p+1) away from any value in it: 1.56 % for latency (p = 5).
"""

from __future__ import annotations

import contextlib
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, chain, compress
from operator import add, sub
from typing import TypeGuard

from opwatch.frozen import frozen
from opwatch.named import NamedTuple

# The slots that were hit, and the running totals up to each.
Ranks = tuple[list[int], list[int]]
_of_views: Callable[[memoryview, memoryview], Ranks | None] | None = None
with contextlib.suppress(ImportError):
    # Where the extension is not built, what parses and derives works all the same.
    from opwatch._native import grown as _of_views

# Quantiles are asked for to five decimals.
_PARTS = 100_000
# Slots are compared so many at once.
_STRETCH = 64


@frozen
class Scale:
    """A slot layout: exact below 2^bits, then 2^bits slots an octave; the last slot is open-ended."""

    bits: int
    slots: int

    def slot(self, value: int) -> int:
        """The slot of a value, as the kernel computes it."""
        if value < 1 << self.bits:
            return value
        octave = value.bit_length() - 1 - self.bits
        slot = ((octave + 1) << self.bits) + ((value >> octave) & ((1 << self.bits) - 1))
        return min(slot, self.slots - 1)

    def low(self, slot: int) -> int:
        """The smallest value in a slot."""
        return self.edges(slot)[0]

    def high(self, slot: int) -> int:
        """The largest value in a slot; of the last slot, the largest that is surely in it."""
        return self.edges(slot)[1]

    def edges(self, slot: int) -> tuple[int, int]:
        """The least and the largest value of a slot."""
        if slot < 1 << self.bits:
            return slot, slot
        octave = (slot >> self.bits) - 1
        low = ((1 << self.bits) + (slot & ((1 << self.bits) - 1))) << octave
        return low, low + (1 << octave) - 1


class Quantile(NamedTuple):
    """An estimate and the bounds the true value lies in. `open_ended`: it may lie above `high`."""

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
    def counts(self) -> Sequence[int]:
        """One for each slot. Of what was added in an interval nobody may ever ask for them all."""
        if self._counts is None:
            slots, running = self._in_use()
            counts = [0] * self._size
            for slot, now, then in zip(slots, running, [0, *running], strict=False):
                counts[slot] = now - then
            self._counts = counts
        return self._counts

    def __eq__(self, other: object) -> bool:
        """Whether the counts are the same, whatever keeps them."""
        if not isinstance(other, Histogram):
            return NotImplemented
        return self.scale == other.scale and list(self.counts) == list(other.counts)

    @classmethod
    def of(cls, scale: Scale, values: Sequence[int]) -> Histogram:
        """The histogram of some values."""
        counts = [0] * scale.slots
        for value in values:
            counts[scale.slot(value)] += 1
        return cls(scale, counts)

    def _in_use(self) -> Ranks:
        """The slots that were hit, and the running totals up to each: few of a thousand are."""
        if self._ranks is None:
            counts = _list_of(self.counts)
            self._ranks = list(compress(range(len(counts)), counts)), list(accumulate(filter(None, counts)))
        return self._ranks

    @property
    def total(self) -> int:
        _, running = self._in_use()
        return running[-1] if running else 0

    def since(self, earlier: Histogram) -> Histogram:
        """What was added after `earlier`, a reading of the same counters."""
        now, then = self.counts, earlier.counts
        ranks = _of_views(now, then) if _of_views and _is_raw(now) and _is_raw(then) else None
        added = Histogram(self.scale, now)
        added._counts = None
        added._ranks = ranks or _grown(now, then)
        return added

    def merged(self, other: Histogram) -> Histogram:
        """One histogram as if it had counted what both did; that is exact."""
        return Histogram(self.scale, list(map(add, self.counts, other.counts)))

    def quantile(self, ratio: float, at_most: int | None = None) -> Quantile | None:
        """The nearest-rank quantile, None when empty. `at_most` is the true maximum, if known."""
        slots, running = self._ranks or self._in_use()
        if not running or not running[-1]:
            return None
        # Whole parts are counted, so that no rounding of ratio * total moves the rank.
        rank = max(1, -(-round(ratio * _PARTS) * running[-1] // _PARTS))
        slot = slots[bisect_left(running, rank)]
        low, high = self.scale.edges(slot)
        open_ended = slot == self.scale.slots - 1
        if at_most is not None and low <= at_most and (at_most < high or open_ended):
            high, open_ended = at_most, False
        return Quantile((low + high) / 2, low, high, open_ended)

    def hits(self) -> list[tuple[int, int]]:
        """(slot, count) of those that were hit."""
        slots, _ = self._in_use()
        return [(slot, self.counts[slot]) for slot in slots]

    def top(self) -> int | None:
        """The highest slot in use, None when empty."""
        slots, _ = self._in_use()
        return slots[-1] if slots else None

    def in_use(self) -> dict[int, int]:
        """The counts of the slots that were hit."""
        slots, _ = self._in_use()
        return {slot: self.counts[slot] for slot in slots}

    def octaves(self) -> list[tuple[int, int, int]]:
        """(low, high, count) by powers of two, from the first octave in use to the last."""
        rows: dict[int, int] = {}
        for slot, count in enumerate(self.counts):
            if count:
                octave = self.scale.low(slot).bit_length()
                rows[octave] = rows.get(octave, 0) + count
        if not rows:
            return []
        return [
            (1 << octave >> 1, (1 << octave) - 1, rows.get(octave, 0))
            for octave in range(min(rows), max(rows) + 1)
        ]


def _list_of(counts: Sequence[int]) -> list[int]:
    """The same as a list, for which a view has a way of its own: it is slow item by item."""
    return counts.tolist() if isinstance(counts, memoryview) else list(counts)


def _is_raw(counts: Sequence[int]) -> TypeGuard[memoryview]:
    """Whether they are as the kernel's half keeps them."""
    return isinstance(counts, memoryview) and counts.format == "Q"


def grown(now: Sequence[int], then: Sequence[int]) -> Iterable[tuple[int, int]] | None:
    """(slot, by how much) of what is more in a later reading of the same counters. None where that is not to
    be had at once: the counters are in another form, or one of them is less."""
    ranks = _of_views(now, then) if _of_views and _is_raw(now) and _is_raw(then) else None
    if ranks is None:
        return None
    slots, running = ranks
    return zip(slots, map(sub, running, chain((0,), running)), strict=False)


def _grown(now: Sequence[int], then: Sequence[int]) -> Ranks:
    """What the extension's grown() tells, of counters in any form. Most stretches of slots have not changed
    in an interval, and comparing is a third of the cost of subtracting."""
    slots: list[int] = []
    hits: list[int] = []
    for begin in _differing(now, then):
        end = begin + _STRETCH
        counts = list(map(sub, _list_of(now[begin:end]), _list_of(then[begin:end])))
        slots += compress(range(begin, end), counts)
        hits += filter(None, counts)
    return slots, list(accumulate(hits))


def _differing(now: Sequence[int], then: Sequence[int]) -> list[int]:
    """Where the stretches begin that are not the same in both."""
    width = 1
    if isinstance(now, memoryview) and isinstance(then, memoryview):
        # Views are compared number by number, bytes as a whole.
        width = now.itemsize
        now, then = now.tobytes(), then.tobytes()
        if now == then:
            return []
    step = _STRETCH * width
    return [
        begin // width
        for begin in range(0, len(now), step)
        if now[begin : begin + step] != then[begin : begin + step]
    ]
