"""A latency heat map: one column per time span, latencies growing upwards, with lines for p50 and p99."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from opwatch import units
from opwatch.sinks.dashboard.compact_interval import (
    BUCKETS_PER_OCTAVE,
    CompactInterval,
    find_bucket,
    get_bucket_edge,
    unpack_buckets,
)
from opwatch.sinks.dashboard.rows import Heat, Line, Piece, Row
from opwatch.sinks.tones import Tone

# Heat levels of a cell; 0 is empty.
LEVELS = 8
# Smallest range of the latency axis, used for a drive with steady latencies.
_MIN_OCTAVES = 4
# Drawn through the column of the cursor.
CURSOR = "│"
_NO_HEAT = Heat(0, 0)
_GLYPHS = {Line.NONE: "▀", Line.P50: "━", Line.P99: "┅"}


@dataclass(frozen=True, slots=True)
class LatencyScale:
    """Latency axis of a map: from octave `low` to the start of octave `high`, in `cells` from bottom to
    top."""

    low: int
    high: int
    cells: int

    def find_cell(self, bucket: int) -> int:
        """Return the first cell of a bucket, counted from the bottom."""
        buckets = (self.high - self.low) * BUCKETS_PER_OCTAVE
        place = (bucket - self.low * BUCKETS_PER_OCTAVE) * self.cells // buckets
        return min(max(place, 0), self.cells - 1)

    def find_cells(self, bucket: int) -> range:
        """Return all cells of a bucket: several if there are more cells than buckets."""
        first, beyond = self.find_cell(bucket), self.find_cell(bucket + 1)
        # The last bucket ends at the top of the map.
        is_last = bucket + 1 >= self.high * BUCKETS_PER_OCTAVE
        return range(first, self.cells if is_last else max(beyond, first + 1))

    def get_lowest_ns(self, cell: int) -> int:
        """Return the lowest latency of a cell, in ns."""
        buckets = (self.high - self.low) * BUCKETS_PER_OCTAVE
        return get_bucket_edge(self.low * BUCKETS_PER_OCTAVE - (-cell * buckets // self.cells))


@dataclass(frozen=True, slots=True)
class Column:
    """Contents of a column: request counts by bucket, and quantiles in ns."""

    buckets: dict[int, int]
    p50: float | None
    p99: float | None


def build_column(moments: Sequence[CompactInterval], op: str) -> Column:
    """Return the column for one operation. With several moments, quantiles are only known to their bucket."""
    if len(moments) == 1:
        only = moments[0].find_op(op)
        if only is None:
            return Column({}, None, None)
        return Column(only.heat, only.figures["latency_ns.p50"], only.figures["latency_ns.p99"])
    buckets: dict[int, int] = {}
    for moment in moments:
        for bucket, count in (unpack_buckets(moment.packed[op]) if op in moment.packed else {}).items():
            buckets[bucket] = buckets.get(bucket, 0) + count
    return Column(buckets, _find_quantile(buckets, 0.5), _find_quantile(buckets, 0.99))


def _find_quantile(buckets: dict[int, int], ratio: float) -> float | None:
    rank, passed = math.ceil(ratio * sum(buckets.values())), 0
    for bucket in sorted(buckets):
        passed += buckets[bucket]
        if passed >= rank:
            return float(get_bucket_edge(bucket))
    return None


def choose_scale(columns: Sequence[Column], cells: int) -> LatencyScale | None:
    """Return an axis with all octaves in use, and a minimum range; None if no column has a request."""
    hit = [bucket for column in columns for bucket in column.buckets]
    if not hit:
        return None
    first, last = min(hit) // BUCKETS_PER_OCTAVE, max(hit) // BUCKETS_PER_OCTAVE + 1
    return LatencyScale(first, max(last, first + _MIN_OCTAVES), cells)


@dataclass(frozen=True, slots=True)
class HeatMap:
    """Rows of a map from the top. `hottest` is the largest count in a cell; `scale` is None for an empty
    map."""

    rows: list[Row]
    scale: LatencyScale | None
    hottest: int


def draw_heat_map(columns: Sequence[Column], width: int, height: int, cursor: int | None = None) -> HeatMap:
    """Draw columns, newest at the right. A line through the empty cells of column `cursor` marks it."""
    scale = choose_scale(columns, 2 * height)
    if scale is None:
        return HeatMap([[(" " * width, Tone.PLAIN)] for _ in range(height)], None, 0)
    counts = [_count_by_cell(column, scale) for column in columns]
    hottest = max(max(cells) for cells in counts)
    grid = [
        (_compute_heat(cells, hottest), _place_quantile_lines(column, scale, height))
        for cells, column in zip(counts, columns, strict=True)
    ]
    empty = " " * (width - len(columns))
    return HeatMap([_draw_row(grid, row, empty, cursor) for row in range(height - 1, -1, -1)], scale, hottest)


def _count_by_cell(column: Column, scale: LatencyScale) -> list[int]:
    counts = [0] * scale.cells
    for bucket, count in column.buckets.items():
        for cell in scale.find_cells(bucket):
            counts[cell] += count
    return counts


def _compute_heat(counts: Sequence[int], hottest: int) -> list[int]:
    """Return the heat of each cell of a column, from the bottom.

    The scale is logarithmic, so a single slow request among ten thousand is visible.
    """
    full = math.log2(hottest + 1)
    return [math.ceil(math.log2(count + 1) / full * LEVELS) if count else 0 for count in counts]


def _place_quantile_lines(column: Column, scale: LatencyScale, height: int) -> dict[int, Line]:
    """Return the lines by row from the bottom. If both fall on one row, p99 is shown."""
    lines = {}
    for value, line in ((column.p50, Line.P50), (column.p99, Line.P99)):
        if value is not None:
            lines[min(scale.find_cell(find_bucket(int(value))) // 2, height - 1)] = line
    return lines


def _draw_row(
    grid: Sequence[tuple[list[int], dict[int, Line]]], row: int, empty: str, cursor: int | None
) -> Row:
    """Return a row of a map, with a piece per change of tone."""
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


def draw_legend(hottest: int, words: str = " per cell") -> Row:
    """Return the colour legend with the counts at both ends, empty for an empty map."""
    if not hottest:
        return []
    levels: Row = [("▀", Heat(level, level)) for level in range(1, LEVELS + 1)]
    most = str(hottest) if hottest < 10**6 else units.format_rate(hottest)
    return [("1 ", Tone.FAINT), *levels, (f" {most}{words}", Tone.FAINT)]


def draw_axis(scale: LatencyScale | None, height: int, every: int = 3) -> list[Piece]:
    """Return the axis label before each row, from the top: the lowest latency of every third row."""
    return [
        (
            f"{units.format_ns(scale.get_lowest_ns(2 * row)):>6} ┤"
            if scale and row % every == 0
            else "       │",
            Tone.FAINT,
        )
        for row in range(height - 1, -1, -1)
    ]
