"""Build the latency heat map: the share of a column's requests that fall in each latency range."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from opwatch.report.bins import TimeBin
from opwatch.trace.abi import LATENCY

# Number of histogram slots per row, which gives four rows per octave.
_SLOTS_PER_ROW = 8
# Upper bounds of the shares that are drawn in the same shade.
SHADES = (0.001, 0.01, 0.03, 0.1, 0.3, 1.0)


@dataclass(frozen=True, slots=True)
class HeatCell:
    """Adjacent columns of a row with the same shade: a time range and a latency range, both in ns."""

    begin_ns: int
    end_ns: int
    low_ns: int
    high_ns: int
    shade: int


def _find_row_edges(row: int) -> tuple[int, int]:
    first = row * _SLOTS_PER_ROW
    last = min(first + _SLOTS_PER_ROW, LATENCY.slots) - 1
    return LATENCY.low_edge(first), LATENCY.high_edge(last) + 1


def _compute_shades(one: TimeBin, op: str) -> dict[int, int]:
    """Return the shade of each row of a column."""
    slots = one.find_op(op).slots
    total = sum(slots.values())
    rows: dict[int, int] = {}
    for slot, count in slots.items():
        row = slot // _SLOTS_PER_ROW
        rows[row] = rows.get(row, 0) + count
    return {row: bisect_left(SHADES, min(count / total, 1.0)) for row, count in rows.items()}


def find_heat_cells(bins: Sequence[TimeBin], op: str) -> Iterator[HeatCell]:
    """Yield all cells with requests. Columns without requests yield nothing."""
    open_cells: dict[int, HeatCell] = {}
    for one in bins:
        shades = _compute_shades(one, op)
        for row, cell in list(open_cells.items()):
            # A gap in the timeline is not a period without slow requests, so a cell ends before a gap.
            if shades.get(row) != cell.shade or cell.end_ns != one.begin_ns:
                yield open_cells.pop(row)
        for row, shade in shades.items():
            before = open_cells.get(row)
            low, high = _find_row_edges(row)
            open_cells[row] = HeatCell(
                before.begin_ns if before else one.begin_ns, one.end_ns, low, high, shade
            )
    yield from open_cells.values()
