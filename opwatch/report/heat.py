"""Latencies over time as cells: which share of the requests of a column lies between which latencies."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from opwatch.frozen import frozen
from opwatch.report.bins import TimeBin
from opwatch.trace.abi import LATENCY

# So many neighbouring slots are a row: four rows an octave.
_SLOTS_A_ROW = 8
# Upper ends of the shares that have a shade in common.
SHADES = (0.001, 0.01, 0.03, 0.1, 0.3, 1.0)


@frozen
class HeatCell:
    """Neighbouring columns of one row that have the same shade: from the begin of the first to the end of the
    last, both in ns, and from one latency to another."""

    begin_ns: int
    end_ns: int
    low_ns: int
    high_ns: int
    shade: int


def _row_edges(row: int) -> tuple[int, int]:
    first = row * _SLOTS_A_ROW
    last = min(first + _SLOTS_A_ROW, LATENCY.slots) - 1
    return LATENCY.low(first), LATENCY.high(last) + 1


def _shades(one: TimeBin, op: str) -> dict[int, int]:
    """The shade of each row of a column."""
    slots = one.op(op).slots
    total = sum(slots.values())
    rows: dict[int, int] = {}
    for slot, count in slots.items():
        row = slot // _SLOTS_A_ROW
        rows[row] = rows.get(row, 0) + count
    return {row: bisect_left(SHADES, min(count / total, 1.0)) for row, count in rows.items()}


def heat_cells(bins: Sequence[TimeBin], op: str) -> Iterator[HeatCell]:
    """All cells in which there were requests. Columns without any give none."""
    open_cells: dict[int, HeatCell] = {}
    for one in bins:
        shades = _shades(one, op)
        for row, cell in list(open_cells.items()):
            # A gap in the course is no time without slow requests.
            if shades.get(row) != cell.shade or cell.end_ns != one.begin_ns:
                yield open_cells.pop(row)
        for row, shade in shades.items():
            before = open_cells.get(row)
            low, high = _row_edges(row)
            open_cells[row] = HeatCell(
                before.begin_ns if before else one.begin_ns, one.end_ns, low, high, shade
            )
    yield from open_cells.values()
