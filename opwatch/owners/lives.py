"""Totals of owners that the tracer evicts to make room, and that may reappear. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from opwatch.owners.cells import Cells, OwnedCounts, OwnerKey, add_counts, subtract_counts

# Number of evicted owners remembered. A forgotten owner restarts from zero when reappearing.
MAX_PAST = 1 << 16

# (Owner, operation).
Cell = tuple[OwnerKey, str]


class Earlier(NamedTuple):
    """An owner's total for an operation at the last eviction.

    `first_ns` is the end of the sample in which the owner was first seen.
    """

    first_ns: int
    counts: OwnedCounts


@dataclass(frozen=True, slots=True)
class WholeCells:
    """Cells with the totals over all lives of their owners.

    `earlier` has the previous totals of reappeared owners.
    """

    before: Cells
    after: Cells
    earlier: Mapping[Cell, Earlier]


class OwnerTotals:
    """The owners of one target over all of their lives, so that no total ever shrinks."""

    def __init__(self, most: int = MAX_PAST) -> None:
        self._most = most
        # In order of eviction, oldest first. `_sums` also includes entries dropped for lack of room.
        self._past: dict[Cell, Earlier] = {}
        self._sums: dict[str, OwnedCounts] = {}
        self._first: dict[Cell, int] = {}

    def add_earlier(self, before: Cells, after: Cells) -> WholeCells:
        """Add the totals of earlier lives to the cells read around a sample.

        The totals of currently absent owners go to the None cells.
        """
        earlier = {cell: self._past[cell] for cell in _keep_owned(after) if cell in self._past}
        away = dict(self._sums)
        for (_, op), past in earlier.items():
            away[op] = subtract_counts(away[op], past.counts)
        return WholeCells(
            self._add_totals(before, earlier, away), self._add_totals(after, earlier, away), earlier
        )

    def note_sample(self, cells: Collection[tuple[OwnerKey | None, str]], at_ns: int) -> None:
        """Record a sample with the given cells and end time."""
        for cell in _keep_owned(cells):
            if cell not in self._first:
                past = self._past.get(cell)
                self._first[cell] = past.first_ns if past else at_ns

    def record_eviction(self, cells: Cells) -> None:
        """Record an eviction by the tracer. `cells` are the owners' counts in the ended life."""
        for key, op in cells:
            if key is None:
                continue
            counts, past = cells[key, op], self._past.pop((key, op), None)
            first_ns = self._first.pop((key, op), past.first_ns if past else 0)
            whole = add_counts((past.counts, counts)) if past else counts
            self._past[key, op] = Earlier(first_ns, whole)
            self._sums[op] = add_counts((self._sums.get(op, OwnedCounts()), counts))
        while len(self._past) > self._most:
            del self._past[next(iter(self._past))]

    def _add_totals(
        self, cells: Cells, earlier: Mapping[Cell, Earlier], away: Mapping[str, OwnedCounts]
    ) -> dict[tuple[OwnerKey | None, str], OwnedCounts]:
        whole = dict(cells)
        for cell, past in earlier.items():
            whole[cell] = add_counts((cells.get(cell, OwnedCounts()), past.counts))
        for op, counts in away.items():
            if any(counts):
                whole[None, op] = add_counts((cells.get((None, op), OwnedCounts()), counts))
        return whole


def _keep_owned(cells: Collection[tuple[OwnerKey | None, str]]) -> list[Cell]:
    return [(key, op) for key, op in cells if key is not None]
