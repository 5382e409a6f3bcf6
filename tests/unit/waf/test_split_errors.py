"""Errors of a ratio and of a split, computed by hand or by another formula."""

from __future__ import annotations

import math
import random
from statistics import fmean

import pytest

from opwatch.compare.student import find_critical_value
from opwatch.waf.span import (
    MODE_CHANGED,
    Amplification,
    IntervalBytes,
    Span,
    Split,
    compute_amplification,
    compute_needed_bytes,
    find_best_fit,
    fit_split,
)


def test_error_is_the_larger_distance_to_the_extreme_ratios() -> None:
    ratio = compute_amplification(Span(90, 110), Span(40, 50))
    assert ratio.waf == pytest.approx(100 / 45)
    assert ratio.error == pytest.approx(110 / 40 - 100 / 45)
    assert ratio.relative_error == pytest.approx((110 / 40) / (100 / 45) - 1)
    # For an error of 1 %: the host's error of 5 by 1.01, and the NAND error of 10 in host bytes.
    assert ratio.needed_bytes == math.ceil((5 * 1.01 + 10 * 45 / 100) / 0.01) - 45
    coarse = compute_amplification(Span(90, 110), Span(40, 50), 0.1)
    assert coarse.needed_bytes == math.ceil((5 * 1.1 + 4.5) / 0.1) - 45


def test_error_as_large_as_the_value_is_the_largest() -> None:
    # The upper bound is exactly twice the estimate.
    assert compute_amplification(Span(100, 200), Span(100, 100)).waf == 1.5
    assert compute_amplification(Span(0, 200), Span(100, 100)).error == 1.0
    assert compute_amplification(Span(0, 201), Span(99, 100)).waf is None
    unknown = compute_amplification(Span(0, 201), Span(0, 100))
    assert unknown.waf is None and unknown.needed_bytes and unknown.relative_error == math.inf


def test_ratio_is_below_1_only_beyond_its_error() -> None:
    known = Span(1, 1)
    assert Amplification(0.8, 0.19, known, known).is_below_one
    assert not Amplification(0.8, 0.2, known, known).is_below_one
    assert not Amplification(None, None, known, known).is_below_one


def test_needed_bytes_are_those_of_both_errors() -> None:
    assert compute_needed_bytes(10, 30, 3.0) == 2010
    assert compute_needed_bytes(0, 30, 3.0, 0.1) == 100
    assert compute_needed_bytes(0, 0, 0.0) == 0


def test_idle_host_and_missing_nand_writes_need_more_bytes() -> None:
    # Without an estimate of the ratio, 1 is assumed.
    assert compute_amplification(Span(0, 20), Span(0, 0)).needed_bytes == math.ceil(10 / 0.01)
    assert compute_amplification(Span(0, 0), Span(100, 120)).needed_bytes == math.ceil(10 * 1.01 / 0.01) - 110


def test_share_of_a_span_is_between_its_bounds() -> None:
    assert [Span(10, 30).interpolate(share) for share in (0.0, 0.25, 1.0)] == [10, 15, 30]
    assert Span(3, 7).widen(2) == Span(1, 9) and Span(3, 7).widen(5) == Span(0, 12)
    assert (Span(3, 8).best_estimate, Span(3, 8).error) == (5, 3)


def make_intervals(count: int, noise: float, error_bytes: int = 0) -> list[IntervalBytes]:
    chance = random.Random(count)
    intervals = []
    for number in range(count):
        host, seconds = 1_000_000 * (1 + number % 5), 1.0 + number % 3
        nand = 2.5 * host + 300_000 * seconds + chance.gauss(0, noise)
        intervals.append(IntervalBytes(host, round(nand), seconds, error_bytes))
    return intervals


@pytest.mark.parametrize("count", [8, 12, 40])
def test_errors_of_the_split_are_those_of_least_squares(count: int) -> None:
    intervals = make_intervals(count, 50_000)
    split = fit_split(intervals)
    assert split.a is not None and split.b_bytes_per_s is not None
    left = [
        one.nand_bytes - split.a * one.host_bytes - split.b_bytes_per_s * one.seconds for one in intervals
    ]
    # The residuals of least squares are orthogonal to both variables.
    assert math.fsum(x * one.host_bytes for x, one in zip(left, intervals, strict=True)) == pytest.approx(
        0, abs=1e3
    )
    assert math.fsum(x * one.seconds for x, one in zip(left, intervals, strict=True)) == pytest.approx(
        0, abs=1e-2
    )
    assert split.residual == pytest.approx(math.fsum(x * x for x in left))
    variance = split.residual / (count - 2)
    hh, tt = (
        fmean(x * x for x in xs) * count
        for xs in ([i.host_bytes for i in intervals], [i.seconds for i in intervals])
    )
    ht = math.fsum(one.host_bytes * one.seconds for one in intervals)
    # The approximation of Student's t is within 1 %.
    student = find_critical_value(0.05, count - 2)
    assert split.a_error == pytest.approx(student * math.sqrt(variance / (hh - ht * ht / tt)), rel=0.01)
    assert split.b_error == pytest.approx(student * math.sqrt(variance / (tt - ht * ht / hh)), rel=0.01)
    sums = [abs(math.fsum(left[: end + 1])) for end in range(count)]
    assert split.strayed == pytest.approx(max(sums) / math.sqrt(variance * count))


def test_steps_of_the_counter_limit_the_errors_of_an_exact_fit() -> None:
    exact = fit_split(make_intervals(20, 0))
    assert exact.a == pytest.approx(2.5) and exact.b_bytes_per_s == pytest.approx(300_000)
    assert exact.a_error == pytest.approx(0, abs=1e-6)
    steps, noisy = fit_split(make_intervals(20, 0, error_bytes=60_000)), fit_split(make_intervals(20, 30_000))
    # Both have errors in proportion to the deviation: the sum over 20 intervals of a sixth of the squares.
    deviation = math.sqrt(20 * 60_000**2 / 6)
    assert steps.a_error and noisy.a_error
    assert steps.a_error == pytest.approx(noisy.a_error * deviation / math.sqrt(noisy.residual))


def test_split_needs_eight_intervals_of_different_rates() -> None:
    assert fit_split(make_intervals(8, 0)).a is not None
    assert fit_split(make_intervals(7, 0)).a is None

    # The determinant of two rates that differ by a ratio r each is (r - 1)^2 / (2 * (1 + r^2)) of its scale.
    def make_pairs(ratio: float) -> list[IntervalBytes]:
        return [IntervalBytes(round(10**9 * (ratio if at % 2 else 1)), 10**9, 1.0) for at in range(10)]

    assert fit_split(make_pairs(1.070)).a is not None
    assert fit_split(make_pairs(1.060)).a is None


def test_best_fit_covers_other_fits_that_are_close() -> None:
    best = Split(2.0, 100.0, 0.1, 5.0, residual=10.0)
    close, far = Split(2.5, 90.0, 0.1, 5.0, residual=40.0), Split(9.0, 0.0, 0.1, 5.0, residual=40.1)
    chosen = find_best_fit([far, close, best])
    assert (chosen.a, chosen.b_bytes_per_s) == (2.0, 100.0)
    assert chosen.a_error == pytest.approx(0.6) and chosen.b_error == pytest.approx(15.0)
    assert find_best_fit([Split(None, None, reason="few")]).reason == "few"


def test_fit_that_strays_beyond_chance_is_refused() -> None:
    assert find_best_fit([Split(2.0, 1.0, 0.1, 0.1, residual=1.0, strayed=1.63)]).a == 2.0
    assert find_best_fit([Split(2.0, 1.0, 0.1, 0.1, residual=1.0, strayed=1.64)]).reason == MODE_CHANGED
