"""A recorded measurement of writes as CSV, and as OpenMetrics with timestamps.

Both have the intervals only: the total is their sum.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from opwatch.metrics.table import WRITES_BYTES
from opwatch.metrics.text import format_head, format_pairs
from opwatch.sinks.rows import format_csv_cell, format_csv_line
from opwatch.sinks.writes import build_writes_document
from opwatch.writes.series import WritesOutcome, WritesPart

_Labels = tuple[str, str, str]
_MEASURED = ("time", "interval_s", "subject", "filesystem")
_ROW = ("kind", "name", "bytes", "total_bytes", "ratio", "error_bytes", "reason")


def format_writes_csv(outcomes: Iterable[WritesOutcome]) -> Iterator[str]:
    """Yield a line of names, and a line for each row of each interval."""
    yield format_csv_line((*_MEASURED, *_ROW))
    for outcome in outcomes:
        if outcome.part is WritesPart.TOTAL:
            continue
        document = build_writes_document(outcome)
        for row in document["rows"]:
            values = [document[name] for name in _MEASURED] + [row[name] for name in _ROW]
            yield format_csv_line([format_csv_cell(value) for value in values])


def format_writes_openmetrics(outcomes: Iterable[WritesOutcome]) -> Iterator[str]:
    """Yield the bytes that each step has added since the start. A step without a number in some interval has
    no series, because its sum is unknown. A step that an interval does not show added nothing in it."""
    points: dict[_Labels, list[tuple[float, int]]] = {}
    unknown: set[_Labels] = set()
    begin = None
    for outcome in outcomes:
        if outcome.part is WritesPart.TOTAL or outcome.at is None:
            continue
        at = outcome.at.timestamp()
        begin = at - outcome.waterfall.seconds if begin is None else begin
        subject = outcome.waterfall.stack.subject
        added = {(subject, row.kind.value, row.name): row.added for row in outcome.waterfall.rows}
        unknown |= {labels for labels, size in added.items() if size is None}
        for labels in {**points, **added}:
            series = points.setdefault(labels, [(begin, 0)])
            series.append((at, series[-1][1] + (added.get(labels) or 0)))
    yield from format_head(WRITES_BYTES, is_openmetrics=True).splitlines()
    for labels, series in points.items():
        if labels not in unknown:
            name = f"{WRITES_BYTES.name}{{{format_pairs(WRITES_BYTES.labels, labels)}}}"
            yield from (f"{name} {value} {at:.6f}" for at, value in series)
    yield "# EOF"
