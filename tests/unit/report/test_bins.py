"""Intervals merged for drawing lose no request and hide no outlier."""

from __future__ import annotations

import random

import pytest

from opwatch.report.bins import BinnedTimeline, OpBin, RateRange, TimeBin, make_histogram, thin_bins
from opwatch.report.heat import SHADES, find_heat_cells
from opwatch.trace.abi import LATENCY
from opwatch.trace.hist import Histogram

S = 10**9


def make_bin(at: int, latencies: list[int], op: str = "read") -> TimeBin:
    slots: dict[int, int] = {}
    for ns in latencies:
        slots[LATENCY.find_slot(ns)] = slots.get(LATENCY.find_slot(ns), 0) + 1
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
    course, everything = BinnedTimeline(most=64), list[int]()
    for at in range(1000):
        latencies = [chance.randint(10_000, 90_000) for _ in range(997 if at == 500 else chance.randrange(9))]
        everything += latencies
        course.add_bin(make_bin(at, latencies))
    assert len(course.bins) < 64
    assert sum(one.find_op("read").count for one in course.bins) == len(everything)
    assert sum(one.intervals for one in course.bins) == 1000
    assert max(one.find_op("read").per_s.most for one in course.bins) == 997
    assert min(one.find_op("read").per_s.least for one in course.bins) == 0
    assert all(one.end_ns == later.begin_ns for one, later in zip(course.bins, course.bins[1:], strict=False))
    (whole,) = thin_bins(course.bins, 1)
    straight = Histogram.from_values(LATENCY, everything).find_quantile(0.99, max(everything))
    assert straight and whole.find_op("read").find_quantile_ns(0.99) == straight.value
    assert whole.mean_depth("read") == pytest.approx(sum(everything) / 1e9 / 1000)


def test_lone_interval_is_unchanged() -> None:
    bins = [make_bin(at, [20_000] * at) for at in range(1, 9)]
    assert thin_bins(bins, 8) == bins
    assert [one.find_op("read").count for one in thin_bins(bins, 3)] == [6, 15, 15]
    assert make_bin(0, []).find_op("read").find_quantile_ns(0.5) is None


def test_cells_are_the_shares_of_their_column() -> None:
    bins = [
        make_bin(0, [10_000] * 95 + [1_000_000] * 5),
        make_bin(1, [10_000] * 95 + [1_000_000] * 5),
        make_bin(2, []),
    ]
    bins.append(make_bin(4, [10_000]))
    cells = sorted(find_heat_cells(bins, "read"), key=lambda cell: (cell.begin_ns, cell.low_ns))
    spans = [(cell.begin_ns // S, cell.end_ns // S) for cell in cells]
    # Two equal cells become a single box; intervals without data have no box.
    assert spans == [(0, 2), (0, 2), (4, 5)]
    assert [SHADES[cell.shade] for cell in cells] == [1.0, 0.1, 1.0]
    assert all(
        cell.low_ns <= ns < cell.high_ns for cell, ns in zip(cells, (10_000, 10**6, 10_000), strict=True)
    )
    assert make_histogram({3: 2}).total == 2
