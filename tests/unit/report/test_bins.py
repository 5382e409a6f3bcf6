"""Intervals merged for drawing lose no request and hide no outlier."""

from __future__ import annotations

import random

import pytest

from opwatch.report.bins import BinnedCourse, OpBin, RateRange, TimeBin, histogram_of, thinned
from opwatch.report.heat import SHADES, heat_cells
from opwatch.trace.abi import LATENCY
from opwatch.trace.hist import Histogram

S = 10**9


def second(at: int, latencies: list[int], op: str = "read") -> TimeBin:
    slots: dict[int, int] = {}
    for ns in latencies:
        slots[LATENCY.slot(ns)] = slots.get(LATENCY.slot(ns), 0) + 1
    count = len(latencies)
    rate = RateRange(count, count)
    bytes_ = RateRange(count * 4096, count * 4096)
    ops = {
        op: OpBin(
            count, count * 4096, sum(latencies) / 1e9, max(latencies, default=None), rate, bytes_, slots
        )
    }
    return TimeBin(at * S, (at + 1) * S, 1.0, 1, ops if latencies else {})


def test_merged_intervals_keep_every_request_and_outlier() -> None:
    chance = random.Random(3)
    course, everything = BinnedCourse(most=64), list[int]()
    for at in range(1000):
        latencies = [chance.randint(10_000, 90_000) for _ in range(997 if at == 500 else chance.randrange(9))]
        everything += latencies
        course.add(second(at, latencies))
    assert len(course.bins) < 64
    assert sum(one.op("read").count for one in course.bins) == len(everything)
    assert sum(one.intervals for one in course.bins) == 1000
    assert max(one.op("read").per_s.most for one in course.bins) == 997
    assert min(one.op("read").per_s.least for one in course.bins) == 0
    assert all(one.end_ns == later.begin_ns for one, later in zip(course.bins, course.bins[1:], strict=False))
    (whole,) = thinned(course.bins, 1)
    straight = Histogram.of(LATENCY, everything).quantile(0.99, max(everything))
    assert straight and whole.op("read").quantile_ns(0.99) == straight.value
    assert whole.depth("read") == pytest.approx(sum(everything) / 1e9 / 1000)


def test_lone_interval_is_unchanged() -> None:
    bins = [second(at, [20_000] * at) for at in range(1, 9)]
    assert thinned(bins, 8) == bins
    assert [one.op("read").count for one in thinned(bins, 3)] == [6, 15, 15]
    assert second(0, []).op("read").quantile_ns(0.5) is None


def test_cells_are_the_shares_of_their_column() -> None:
    bins = [
        second(0, [10_000] * 95 + [1_000_000] * 5),
        second(1, [10_000] * 95 + [1_000_000] * 5),
        second(2, []),
    ]
    bins.append(second(4, [10_000]))
    cells = sorted(heat_cells(bins, "read"), key=lambda cell: (cell.begin_ns, cell.low_ns))
    spans = [(cell.begin_ns // S, cell.end_ns // S) for cell in cells]
    # Two equal cells become a single box; intervals without data have no box.
    assert spans == [(0, 2), (0, 2), (4, 5)]
    assert [SHADES[cell.shade] for cell in cells] == [1.0, 0.1, 1.0]
    assert all(
        cell.low_ns <= ns < cell.high_ns for cell, ns in zip(cells, (10_000, 10**6, 10_000), strict=True)
    )
    assert histogram_of({3: 2}).total == 2
