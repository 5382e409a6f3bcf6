"""Totals of owners that the tracer forgets to make room for others, and that may come back. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from opwatch.frozen import frozen
from opwatch.named import NamedTuple
from opwatch.owners.cells import Cells, OwnedCounts, OwnerKey, counts_sum

# An owner that was forgotten before that many others starts from nothing when it comes back.
MOST_PAST = 1 << 16

# An owner, and an operation.
Cell = tuple[OwnerKey, str]


class Earlier(NamedTuple):
    """What an owner did in one operation by the time that it was last forgotten. It was first seen at the
    sample that ended at `first_ns`."""

    first_ns: int
    counts: OwnedCounts


@frozen
class WholeCells:
    """Cells with all lives of their owners, and what those did earlier that came back."""

    before: Cells
    after: Cells
    earlier: Mapping[Cell, Earlier]


class Lives:
    """The owners of one target through all of their lives, so that none of their totals ever shrinks."""

    def __init__(self, most: int = MOST_PAST) -> None:
        self._most = most
        # The longest forgotten first. The sums have those, too, that there is no room for.
        self._past: dict[Cell, Earlier] = {}
        self._sums: dict[str, OwnedCounts] = {}
        self._first: dict[Cell, int] = {}

    def whole(self, before: Cells, after: Cells) -> WholeCells:
        """Add what their owners did in earlier lives to cells that were read around a sample. What owners did
        that are not here now is in the cells of None."""
        earlier = {cell: self._past[cell] for cell in _owned(after) if cell in self._past}
        away = dict(self._sums)
        for (_, op), past in earlier.items():
            away[op] = _less(away[op], past.counts)
        return WholeCells(self._added(before, earlier, away), self._added(after, earlier, away), earlier)

    def note_sample(self, cells: Collection[tuple[OwnerKey | None, str]], at_ns: int) -> None:
        """Note that a sample ended at this moment that has these cells."""
        for cell in _owned(cells):
            if cell not in self._first:
                past = self._past.get(cell)
                self._first[cell] = past.first_ns if past else at_ns

    def forget(self, cells: Cells) -> None:
        """The tracer forgot these owners, which did so much in the life that ended."""
        for key, op in cells:
            if key is None:
                continue
            counts, past = cells[key, op], self._past.pop((key, op), None)
            first_ns = self._first.pop((key, op), past.first_ns if past else 0)
            whole = counts_sum((past.counts, counts)) if past else counts
            self._past[key, op] = Earlier(first_ns, whole)
            self._sums[op] = counts_sum((self._sums.get(op, OwnedCounts()), counts))
        while len(self._past) > self._most:
            del self._past[next(iter(self._past))]

    def _added(
        self, cells: Cells, earlier: Mapping[Cell, Earlier], away: Mapping[str, OwnedCounts]
    ) -> dict[tuple[OwnerKey | None, str], OwnedCounts]:
        whole = dict(cells)
        for cell, past in earlier.items():
            whole[cell] = counts_sum((cells.get(cell, OwnedCounts()), past.counts))
        for op, counts in away.items():
            if any(counts):
                whole[None, op] = counts_sum((cells.get((None, op), OwnedCounts()), counts))
        return whole


def _owned(cells: Collection[tuple[OwnerKey | None, str]]) -> list[Cell]:
    return [(key, op) for key, op in cells if key is not None]


def _less(counts: OwnedCounts, past: OwnedCounts) -> OwnedCounts:
    return OwnedCounts(*(more - less for more, less in zip(counts, past, strict=True)))
