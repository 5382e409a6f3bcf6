"""Sets of bytes on a disk, as sorted extents that neither overlap nor touch."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from itertools import islice
from operator import lt, sub


class Extents:
    """An immutable set of bytes. It takes 16 bytes per extent: 16 MB for a million free extents."""

    __slots__ = ("_ends", "_starts")

    def __init__(self, starts: array[int] | None = None, ends: array[int] | None = None) -> None:
        """Take bounds that are already sorted and neither overlap nor touch; use `of` for any others."""
        self._starts = starts if starts is not None else array("q")
        self._ends = ends if ends is not None else array("q")

    @classmethod
    def from_pairs(cls, pairs: Iterable[tuple[int, int]]) -> Extents:
        """Build a set from (start, end) pairs in any order. Empty and reversed pairs are ignored."""
        return cls.from_sorted(sorted(pairs))

    @classmethod
    def from_sorted(cls, pairs: Iterable[tuple[int, int]]) -> Extents:
        """Build a set from pairs sorted by start. Pairs that touch or overlap are merged."""
        starts, ends = array("q"), array("q")
        last = -1
        for start, end in pairs:
            if end <= start:
                continue
            if last >= start >= 0 and ends:
                if end > last:
                    ends[-1] = last = end
                continue
            starts.append(start)
            ends.append(end)
            last = end
        return cls(starts, ends)

    @classmethod
    def from_bounds(cls, starts: array[int], ends: array[int]) -> Extents:
        """Build a set from bounds in any order. Fast if they are sorted and neither overlap nor touch."""
        if all(map(lt, starts, ends)) and all(map(lt, ends, islice(starts, 1, None))):
            return cls(starts, ends)
        return cls.from_pairs(zip(starts, ends, strict=True))

    @classmethod
    def from_parts(cls, parts: Iterable[Extents]) -> Extents:
        """Return the union of several sets. Fast if each set starts after the end of the previous one."""
        starts, ends = array("q"), array("q")
        for part in parts:
            starts += part._starts
            ends += part._ends
        return cls.from_bounds(starts, ends)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self._starts, self._ends, strict=True)

    def __len__(self) -> int:
        """Return the number of extents; `total` is the number of bytes."""
        return len(self._starts)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Extents):
            return NotImplemented
        return self._starts == other._starts and self._ends == other._ends

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = ", ".join(f"{start}..{end}" for start, end in zip(self._starts[:4], self._ends, strict=False))
        return f"Extents({shown}{', ...' if len(self) > 4 else ''}; {self.total_bytes} bytes)"

    @property
    def total_bytes(self) -> int:
        """Bytes in the set."""
        return sum(self._ends) - sum(self._starts)

    @property
    def end(self) -> int:
        """Offset after the last byte; 0 for the empty set."""
        return self._ends[-1] if self._ends else 0

    @property
    def starts(self) -> array[int]:
        """Offset of each extent's first byte, in order. Callers must not modify the array."""
        return self._starts

    def iterate_lengths(self) -> Iterator[int]:
        """Yield the length of each extent, in order."""
        return map(sub, self._ends, self._starts)

    def has_range(self, start: int, end: int) -> bool:
        """Return True if all of start..end is in the set. Every set covers an empty range."""
        at = bisect_right(self._starts, start) - 1
        return end <= start or (at >= 0 and end <= self._ends[at])

    def clip(self, low: int, high: int) -> Extents:
        """Return the part of the set within low..high."""
        first, last = bisect_right(self._ends, low), bisect_left(self._starts, high)
        if low >= high or first >= last:
            return Extents()
        starts, ends = self._starts[first:last], self._ends[first:last]
        starts[0] = max(starts[0], low)
        ends[-1] = min(ends[-1], high)
        return Extents(starts, ends)

    def shift_by(self, distance: int) -> Extents:
        """Return the set moved up by `distance` bytes (down if negative)."""
        if not distance:
            return self
        return Extents(
            array("q", [start + distance for start in self._starts]),
            array("q", [end + distance for end in self._ends]),
        )

    def find_gaps(self, low: int, high: int) -> Extents:
        """Return the parts of low..high that are not in the set."""
        if low >= high:
            return Extents()
        inside = self.clip(low, high)
        starts, ends = array("q", [low]) + inside._ends, inside._starts + array("q", [high])
        if starts[-1] == ends[-1]:
            starts.pop()
            ends.pop()
        if starts and starts[0] == ends[0]:
            starts.pop(0)
            ends.pop(0)
        return Extents(starts, ends)

    def __and__(self, other: Extents) -> Extents:
        """Return the intersection."""
        if not self or not other:
            return Extents()
        if self == other:
            return self
        # Clip first, so that the cost depends only on the region that both sets share.
        low, high = max(self._starts[0], other._starts[0]), min(self.end, other.end)
        one, two = self.clip(low, high), other.clip(low, high)
        return Extents(*_intersect_bounds(one, two))

    def __sub__(self, other: Extents) -> Extents:
        """Return the bytes that are in this set only."""
        return self & other.find_gaps(self._starts[0], self.end) if self else self

    def __or__(self, other: Extents) -> Extents:
        """Return the union."""
        if not self or not other:
            return self or other
        low, high = min(self._starts[0], other._starts[0]), max(self.end, other.end)
        return (self.find_gaps(low, high) & other.find_gaps(low, high)).find_gaps(low, high)

    def round_to_granules(self, size: int, offset: int = 0) -> Extents:
        """Return the complete granules in the set: `size` bytes each, starting at `offset` modulo `size`."""
        if size <= 1:
            return self
        starts = array("q", [start + (offset - start) % size for start in self._starts])
        ends = array("q", [end - (end - offset) % size for end in self._ends])
        return Extents.from_bounds(starts, ends)

    def filter_by_length(self, length: int) -> Extents:
        """Return the extents of at least this length."""
        return Extents.from_sorted((start, end) for start, end in self if end - start >= length)


def _intersect_bounds(one: Extents, two: Extents) -> tuple[array[int], array[int]]:
    """Return the bounds of the intersection, in one pass over both sets."""
    starts, ends = array("q"), array("q")
    left, right = iter(one), iter(two)
    try:
        start, end = next(left)
        other_start, other_end = next(right)
        while True:
            low = start if start > other_start else other_start
            high = end if end < other_end else other_end
            if low < high:
                starts.append(low)
                ends.append(high)
            if end < other_end:
                start, end = next(left)
            else:
                other_start, other_end = next(right)
    except StopIteration:
        return starts, ends
