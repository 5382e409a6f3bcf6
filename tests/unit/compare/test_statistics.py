"""Parts of the statistics, for distributions with known results."""

from __future__ import annotations

import math
import random
from statistics import fmean, stdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opwatch.compare.blocks import MIN_BLOCKS, choose_block_length, compute_autocorrelations
from opwatch.compare.bootstrap import ROUNDS, draw_resamples, estimate_log_deviation
from opwatch.compare.estimates import make_ratio_figure
from opwatch.compare.student import compute_p_value, find_critical_value


@pytest.mark.parametrize(
    ("chance", "freedom", "value"),
    # From tables of the distribution.
    [(0.05, 1, 12.7062), (0.05, 10, 2.2281), (0.01, 5, 4.0321), (0.001, 30, 3.6460), (0.05, 1e7, 1.95996)],
)
def test_student_threshold_matches_its_probability(chance: float, freedom: float, value: float) -> None:
    assert find_critical_value(chance, freedom) == pytest.approx(value, rel=1e-4)
    assert compute_p_value(value, freedom) == pytest.approx(chance, rel=1e-3)


@given(st.floats(1e-6, 0.9), st.floats(1, 1000))
def test_the_threshold_is_exceeded_with_its_chance(chance: float, freedom: float) -> None:
    assert compute_p_value(find_critical_value(chance, freedom), freedom) == pytest.approx(chance, rel=1e-6)


def make_correlated_series(chance: random.Random, count: int, share: float) -> list[float]:
    """Return a series that carries this share of its deviation over to the next value."""
    value, series = chance.gauss(0, 1), []
    for _ in range(count):
        value = share * value + math.sqrt(1 - share**2) * chance.gauss(0, 1)
        series.append(value)
    return series


def test_autocorrelations_match_a_known_process() -> None:
    series = make_correlated_series(random.Random(1), 20_000, 0.6)
    correlations = compute_autocorrelations(series, 3)
    assert correlations[0] == 1
    assert correlations[1:] == pytest.approx([0.6, 0.36, 0.216], abs=0.03)
    assert compute_autocorrelations([2.0] * 9, 2) == [0, 0, 0]


def test_blocks_grow_with_the_correlation_length() -> None:
    lengths = [
        fmean(
            choose_block_length(make_correlated_series(random.Random(seed), 500, share)).length
            for seed in range(20)
        )
        for share in (0.0, 0.5, 0.8)
    ]
    assert lengths == sorted(lengths)
    # The cube root of 500, and the rule's value for these processes: 2 * (2 * (0.5 / 0.75)^2 * 500)^(1/3).
    assert lengths[0] < 12
    assert 12 < lengths[1] < 25
    assert 25 < lengths[2] < 60


def test_a_run_that_changes_as_a_whole_has_no_blocks() -> None:
    block = choose_block_length([float(at) for at in range(60)])
    assert block.needed
    assert block.needed > 60
    assert choose_block_length([1.0] * 60).length == 4


@given(st.integers(12, 300), st.floats(0, 0.95), st.integers(0, 99))
def test_there_are_never_too_few_blocks(count: int, share: float, seed: int) -> None:
    block = choose_block_length(make_correlated_series(random.Random(seed), count, share))
    assert block.needed or 1 <= block.length <= count / MIN_BLOCKS


@given(st.integers(1, 100), st.integers(1, 20))
def test_every_resample_has_the_length_of_the_run(count: int, length: int) -> None:
    drawn = draw_resamples(count, length)
    assert len(drawn) == ROUNDS
    assert {sum(weights) for weights in drawn} == {count}
    assert draw_resamples.__wrapped__(count, length) == drawn


@pytest.mark.parametrize(("share", "length"), [(0.0, 4), (0.5, 12)])
def test_estimated_deviation_matches_the_process(share: float, length: int) -> None:
    """The estimated deviation of a mean of 120 values, compared with the deviation among many series."""
    runs = [
        [100 + 10 * value for value in make_correlated_series(random.Random(seed), 120, share)]
        for seed in range(300)
    ]
    true = stdev(math.log(fmean(run)) for run in runs)
    ones = [1] * 120
    estimated = [estimate_log_deviation(make_ratio_figure(run, ones), 120, length) for run in runs[:40]]
    assert fmean(value for value in estimated if value) == pytest.approx(true, rel=0.15)


def test_ratio_that_is_often_undefined_has_no_deviation() -> None:
    rare = [0] * 59 + [1]
    assert estimate_log_deviation(make_ratio_figure(rare, rare), 60, 1) is None
    assert estimate_log_deviation(make_ratio_figure([3] * 60, [1] * 60), 60, 4) == 0
