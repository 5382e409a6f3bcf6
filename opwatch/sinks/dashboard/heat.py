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


def scale_of(columns: Sequence[Column], cells: int) -> LatencyScale:
    """The octaves that are hit in any column, and a few at least."""
    hit = [bucket for column in columns for bucket in column.buckets]
    low, high = (min(hit), max(hit)) if hit else (bucket_of(10_000), bucket_of(1_000_000))
    first, last = low // BUCKETS_AN_OCTAVE, high // BUCKETS_AN_OCTAVE + 1
    last = max(last, first + _LEAST_OCTAVES)
    return LatencyScale(first, last, cells)


def _levels(column: Column, scale: LatencyScale, hottest: int) -> list[int]:
    """How hot each cell of a column is, from the bottom. The scale is logarithmic: one slow request among ten
    thousand is what one looks for."""
    counts = [0] * scale.cells
    for bucket, count in column.buckets.items():
        for cell in scale.cells_of(bucket):
            counts[cell] += count
    full = math.log2(hottest + 1)
    return [math.ceil(math.log2(count + 1) / full * LEVELS) if count else 0 for count in counts]


def _line(column: Column, scale: LatencyScale, height: int) -> dict[int, Line]:
    """At which rows from the bottom the lines are; where both are, p99 is."""
    lines = {}
    for value, line in ((column.p50, Line.P50), (column.p99, Line.P99)):
        if value is not None:
            lines[min(scale.cell(bucket_of(int(value))) // 2, height - 1)] = line
    return lines


def heat_rows(columns: Sequence[Column], width: int, height: int) -> tuple[list[Row], LatencyScale]:
    """The rows of a map, from the top, each of so many columns: the newest at the right."""
    scale = scale_of(columns, 2 * height)
    hottest = max((count for column in columns for count in column.buckets.values()), default=1)
    empty = width - len(columns)
    grid = [(_levels(column, scale, hottest), _line(column, scale, height)) for column in columns]
    rows = []
    for row in range(height - 1, -1, -1):
        pieces: Row = [(" " * empty, Tone.PLAIN)] if empty else []
        run, tone = "", Heat(0, 0)
        for levels, lines in grid:
            here = Heat(levels[2 * row + 1], levels[2 * row], lines.get(row, Line.NONE))
            if here != tone and run:
                pieces.append((run, tone))
                run = ""
            tone = here
            run += _GLYPHS[here.line] if here != (0, 0, Line.NONE) else " "
        rows.append([*pieces, (run, tone)] if run else pieces)
    return rows, scale


def axis(scale: LatencyScale, height: int, every: int = 3) -> list[Piece]:
    """What stands before each row, from the top: the least latency of some."""
    return [
        (f"{units.duration(scale.least(2 * row)):>6} ┤" if row % every == 0 else "       │", Tone.FAINT)
        for row in range(height - 1, -1, -1)
    ]
