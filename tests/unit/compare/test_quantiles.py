"""The slot of a quantile for any weights, its interpolation, and sums of intervals."""

from __future__ import annotations

import math
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opwatch.compare.cpu import CPU, estimate_cpu
from opwatch.compare.estimates import QUANTILES, OpEstimator, _QuantileFigure
from opwatch.compare.sampling import CountedInterval, CountedOp, DiskTimeline, sample_run
from opwatch.cpu import CpuUse
from opwatch.trace.abi import LATENCY
from tests.unit.compare.counted_disk import generate_entries

COUNTS = st.lists(st.lists(st.integers(0, 9), min_size=3, max_size=3), min_size=1, max_size=6)


@given(COUNTS, st.lists(st.integers(0, 4), min_size=3, max_size=3), st.floats(0.01, 0.999), st.data())
def test_search_from_any_slot_finds_the_quantile(
    rows: list[list[int]], weights: list[int], share: float, data: st.DataObject
) -> None:
    """Each row has the requests of one slot in three intervals."""
    below = list(accumulate(rows, lambda one, other: [x + y for x, y in zip(one, other, strict=True)]))
    usual = data.draw(st.integers(0, len(rows) - 1))
    figure = _QuantileFigure(list(range(len(rows))), below, below[-1], share, usual)
    sums = [sum(weight * count for weight, count in zip(weights, row, strict=True)) for row in below]
    rank = share * sums[-1]
    if sums[-1]:
        place = next(at for at, upto in enumerate(sums) if upto >= rank)
        assert figure.find_slot(weights, rank) == (place, sums[place - 1] if place else 0, sums[place])
    else:
        assert figure(weights) is None


def test_quantile_is_interpolated_within_its_slot() -> None:
    slots = [LATENCY.find_slot(1000), LATENCY.find_slot(2000)]
    figure = _QuantileFigure(slots, [[30], [100]], [100], 0.5)
    low, high = LATENCY.low_edge(slots[1]), LATENCY.low_edge(slots[1] + 1)
    # Rank 50 is at two sevenths of the 70 requests in the second slot.
    assert figure([1]) == pytest.approx(low * (high / low) ** (2 / 7))
    first = _QuantileFigure(slots, [[30], [100]], [100], 0.15)
    low, high = LATENCY.low_edge(slots[0]), LATENCY.low_edge(slots[0] + 1)
    assert first([3]) == pytest.approx(math.sqrt(low * high))


def test_requests_of_0_ns_have_a_positive_quantile() -> None:
    course = sample_run(generate_entries([{"read": {0: 100}}] * 20)).disks["nvme0n1"]
    p50 = OpEstimator(course, "read").estimate_all()["p50"]
    assert p50.value == pytest.approx(math.sqrt(0.5))
    assert (p50.low, p50.high) == (0, 1)


@pytest.mark.parametrize(("name", "needed"), [("p50", 40), ("p99", 2000), ("p99.9", 20_000)])
def test_quantile_needs_twenty_requests_beyond_it(name: str, needed: int) -> None:
    def make_estimates(requests: int) -> bool:
        course = DiskTimeline("sda")
        for number in range(20):
            count = requests // 20 + (number < requests % 20)
            course.add_stretch(CountedInterval(1.0, {"read": CountedOp(count, 0, 500 * count, {300: count})}))
        return OpEstimator(course, "read").estimate_all()[name].has_scatter

    assert name in QUANTILES
    assert make_estimates(needed) and not make_estimates(needed - 1)


def test_added_intervals_are_sums() -> None:
    one = CountedInterval(
        1.0, {"read": CountedOp(2, 8192, 700, {3: 1, 5: 1})}, 9, CpuUse(1.0, 2, 0.1, 0.2, 0.3, 0.4)
    )
    two = CountedInterval(
        2.0,
        {"read": CountedOp(3, 4096, 900, {5: 3}), "write": CountedOp(1, 512, 50, {4: 1})},
        11,
        CpuUse(2.0, 2, 1.0, 2.0, 3.0, 4.0),
    )
    one.add(two)
    assert (one.seconds, one.requests) == (3.0, 20)
    assert one.ops == {
        "read": CountedOp(5, 12_288, 1600, {3: 1, 5: 4}),
        "write": CountedOp(1, 512, 50, {4: 1}),
    }
    assert one.cpu and one.cpu.busy_s == pytest.approx(6.6)
    one.add(CountedInterval(1.0, {}))
    assert one.cpu is None
    one.add(two)
    assert one.cpu is None


def test_error_of_cpu_time_is_that_of_the_most_cpus() -> None:
    course = DiskTimeline("sda")
    for number in range(20):
        course.add_stretch(CountedInterval(1.0, {}, 100, CpuUse(1.0, 4 + (number == 7), 0.5, 0.0, 0.0, 0.0)))
    cpu = estimate_cpu(course)[CPU]
    # Five truncated sums and five CPUs, a tick of 10 ms each, in 20 s.
    assert cpu.value == pytest.approx(0.5)
    assert cpu.low == pytest.approx(0.5 - 0.1 / 20)
    assert cpu.high == pytest.approx(0.5 + 0.1 / 20)
