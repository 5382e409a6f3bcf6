"""A latency heat map: a column a stretch of time, latencies from the bottom up, p50 and p99 over it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from opwatch import units
from opwatch.frozen import frozen
from opwatch.sinks.dashboard.moment import (
    BUCKETS_AN_OCTAVE,
    DiskMoment,
    bucket_of,
    edge_of,
    heat_of,
)
from opwatch.sinks.dashboard.rows import Heat, Line, Piece, Row, Tone

# How hot a cell can be; 0 is empty.
LEVELS = 8
# What one sees of a drive at rest is no narrower.
_LEAST_OCTAVES = 4
# Through the column of the cursor.
CURSOR = "│"
_NO_HEAT = Heat(0, 0)
_GLYPHS = {Line.NONE: "▀", Line.P50: "━", Line.P99: "┅"}


@frozen
class LatencyScale:
    """Which latencies a map shows: from octave `low` up to the begin of octave `high`, in `cells` from the
    bottom to the top."""

    low: int
    high: int
    cells: int

    def cell(self, bucket: int) -> int:
        """Where a bucket begins, from the bottom."""
        buckets = (self.high - self.low) * BUCKETS_AN_OCTAVE
        place = (bucket - self.low * BUCKETS_AN_OCTAVE) * self.cells // buckets
        return min(max(place, 0), self.cells - 1)

    def cells_of(self, bucket: int) -> range:
        """All cells of a bucket: one, or several where there are more cells than buckets."""
        first, beyond = self.cell(bucket), self.cell(bucket + 1)
        # The last bucket ends where the map does.
        is_last = bucket + 1 >= self.high * BUCKETS_AN_OCTAVE
        return range(first, self.cells if is_last else max(beyond, first + 1))

    def least(self, cell: int) -> int:
        """The least latency of a cell, in ns."""
        buckets = (self.high - self.low) * BUCKETS_AN_OCTAVE
        return edge_of(self.low * BUCKETS_AN_OCTAVE - (-cell * buckets // self.cells))


@frozen
class Column:
    """What a column shows: how many by bucket, and its quantiles in ns."""

    buckets: dict[int, int]
    p50: float | None
    p99: float | None


def column_of(moments: Sequence[DiskMoment], op: str) -> Column:
    """One operation in the moments of a column. Of several together a quantile is known to its bucket."""
    if len(moments) == 1:
        only = moments[0].op(op)
        return Column(only.heat, only.latency.p50, only.latency.p99) if only else Column({}, None, None)
    buckets: dict[int, int] = {}
    for moment in moments:
        for bucket, count in (heat_of(moment.packed[op]) if op in moment.packed else {}).items():
            buckets[bucket] = buckets.get(bucket, 0) + count
    return Column(buckets, _quantile(buckets, 0.5), _quantile(buckets, 0.99))


def _quantile(buckets: dict[int, int], ratio: float) -> float | None:
    rank, passed = math.ceil(ratio * sum(buckets.values())), 0
    for bucket in sorted(buckets):
        passed += buckets[bucket]
        if passed >= rank:
            return float(edge_of(bucket))
    return None


def scale_of(columns: Sequence[Column], cells: int) -> LatencyScale | None:
    """The octaves that any column hits, and a few at least; None if no column has a request."""
    hit = [bucket for column in columns for bucket in column.buckets]
    if not hit:
        return None
    first, last = min(hit) // BUCKETS_AN_OCTAVE, max(hit) // BUCKETS_AN_OCTAVE + 1
    return LatencyScale(first, max(last, first + _LEAST_OCTAVES), cells)


@frozen
class HeatMap:
    """The rows of a map, from the top. `hottest` is the most requests in a cell; `scale` is None if there are
    none."""

    rows: list[Row]
    scale: LatencyScale | None
    hottest: int


def heat_map(columns: Sequence[Column], width: int, height: int, cursor: int | None = None) -> HeatMap:
    """Draw columns, the newest at the right. A line through the empty cells of column `cursor` marks it."""
    scale = scale_of(columns, 2 * height)
    if scale is None:
        return HeatMap([[(" " * width, Tone.PLAIN)] for _ in range(height)], None, 0)
    counts = [_cell_counts(column, scale) for column in columns]
    hottest = max(max(cells) for cells in counts)
    grid = [
        (_levels(cells, hottest), _line(column, scale, height))
        for cells, column in zip(counts, columns, strict=True)
    ]
    empty = " " * (width - len(columns))
    return HeatMap([_row(grid, row, empty, cursor) for row in range(height - 1, -1, -1)], scale, hottest)


def _cell_counts(column: Column, scale: LatencyScale) -> list[int]:
    counts = [0] * scale.cells
    for bucket, count in column.buckets.items():
        for cell in scale.cells_of(bucket):
            counts[cell] += count
    return counts


def _levels(counts: Sequence[int], hottest: int) -> list[int]:
    """How hot each cell of a column is, from the bottom. The scale is logarithmic: one slow request among ten
    thousand is what one looks for."""
    full = math.log2(hottest + 1)
    return [math.ceil(math.log2(count + 1) / full * LEVELS) if count else 0 for count in counts]


def _line(column: Column, scale: LatencyScale, height: int) -> dict[int, Line]:
    """At which rows from the bottom the lines are; where both are, p99 is."""
    lines = {}
    for value, line in ((column.p50, Line.P50), (column.p99, Line.P99)):
        if value is not None:
            lines[min(scale.cell(bucket_of(int(value))) // 2, height - 1)] = line
    return lines


def _row(grid: Sequence[tuple[list[int], dict[int, Line]]], row: int, empty: str, cursor: int | None) -> Row:
    """One row of a map, as few pieces as it has changes of tone."""
    pieces: Row = [(empty, Tone.PLAIN)] if empty else []
    run = ""
    tone: Tone | Heat = _NO_HEAT
    for place, (levels, lines) in enumerate(grid):
        heat = Heat(levels[2 * row + 1], levels[2 * row], lines.get(row, Line.NONE))
        glyph = _GLYPHS[heat.line] if heat != _NO_HEAT else " "
        here: Tone | Heat = heat
        if place == cursor and heat == _NO_HEAT:
            glyph, here = CURSOR, Tone.CURSOR
        if here != tone and run:
            pieces.append((run, tone))
            run = ""
        tone = here
        run += glyph
    return [*pieces, (run, tone)] if run else pieces


def legend(hottest: int, words: str = " per cell") -> Row:
    """What the colours mean: each level, with the counts at both ends. Empty for an empty map."""
    if not hottest:
        return []
    levels: Row = [("▀", Heat(level, level)) for level in range(1, LEVELS + 1)]
    most = str(hottest) if hottest < 10**6 else units.rate(hottest)
    return [("1 ", Tone.FAINT), *levels, (f" {most}{words}", Tone.FAINT)]


def axis(scale: LatencyScale | None, height: int, every: int = 3) -> list[Piece]:
    """What is before each row, from the top: the least latency of some, if the map has any."""
    return [
        (
            f"{units.duration(scale.least(2 * row)):>6} ┤" if scale and row % every == 0 else "       │",
            Tone.FAINT,
        )
        for row in range(height - 1, -1, -1)
    ]
