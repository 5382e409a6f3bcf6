"""The limit on the number of series in an answer (--series-limit)."""

from __future__ import annotations

from opwatch.metrics.buckets import CLASSIC_BOUNDS
from opwatch.metrics.exporter_state import add_dropped_series
from opwatch.metrics.family import DurationCounts, MetricRow, MetricSamples
from opwatch.metrics.table import DROP_ORDER

DEFAULT_SERIES_LIMIT = 4000
# The buckets, the infinite one, the number and the sum.
_CLASSIC_SERIES = len(CLASSIC_BOUNDS) + 3
_WITHOUT_BUCKETS = 3


def count_series(samples: MetricSamples, *, with_classic_buckets: bool = True) -> int:
    """Return the number of series that a server stores. A native histogram is one."""
    return sum(_count_rows(rows, with_classic_buckets) for rows in samples.rows.values())


def _count_rows(rows: list[MetricRow], with_classic_buckets: bool) -> int:
    first = rows[0][1] if rows else 0
    if not isinstance(first, DurationCounts):
        return len(rows)
    if not with_classic_buckets:
        return len(rows)
    return sum(
        _CLASSIC_SERIES if isinstance(value, DurationCounts) and value.has_buckets else _WITHOUT_BUCKETS
        for _, value in rows
    )


class SeriesLimit:
    """Keeps answers within a number of series, and counts what it left out."""

    def __init__(self, limit: int = DEFAULT_SERIES_LIMIT) -> None:
        self.limit = limit
        self.dropped = 0

    def apply(self, samples: MetricSamples, *, has_native_buckets: bool) -> bool:
        """Drop families in the order of DROP_ORDER until the answer fits, and add the number of series
        dropped since the start. Return whether classic buckets fit.

        A format with native buckets first loses the classic ones. A family that was dropped comes back if
        those dropped after it made enough room, so that a large family does not cost the small ones before
        it."""
        # The number of dropped series is a series, too.
        room = self.limit - 1
        with_classic_buckets = True
        total = count_series(samples)
        before = total
        if total > room and has_native_buckets:
            with_classic_buckets = False
            total = count_series(samples, with_classic_buckets=False)
        dropped: list[tuple[str, list[MetricRow], int]] = []
        for family in DROP_ORDER:
            if total <= room:
                break
            rows = samples.rows.pop(family.name, None)
            if rows:
                size = _count_rows(rows, with_classic_buckets)
                dropped.append((family.name, rows, size))
                total -= size
        for name, rows, size in reversed(dropped):
            if total + size <= room:
                samples.rows[name] = rows
                total += size
        self.dropped += before - total
        add_dropped_series(samples, self.dropped)
        return with_classic_buckets
