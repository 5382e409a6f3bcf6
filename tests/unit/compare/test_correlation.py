"""Numbers of the correlation estimate, for series whose results are computed by hand or known from theory."""

from __future__ import annotations

import math
import random
from statistics import fmean

import pytest

from opwatch.compare import blocks
from opwatch.compare.blocks import choose_block_length, compute_autocorrelations, estimate_correlation
from opwatch.compare.student import compute_p_value
from tests.unit.compare.test_statistics import make_correlated_series


def test_autocorrelations_of_few_values_are_exact() -> None:
    # Deviations of -2, 0, 0, 2 from the mean; their squares sum up to 8.
    assert compute_autocorrelations([1, 3, 3, 5], 3) == [1, 0, 0, -0.5]


def test_resamples_vary_as_the_lemma_predicts() -> None:
    # The weights of lags 1 and 3 are 3/8 + 1/32, that of lag 2 is 1/8 + 1/8.
    kept = 0.40625 * 0.5 + 0.25 * 0.2 - 0.40625 * 0.1
    assert blocks._compute_resample_variance([1, 0.5, 0.2, -0.1], 2) == pytest.approx((1 + 2 * kept) * 2)
    # Blocks of one value keep no correlation.
    assert blocks._compute_resample_variance([1, 0.5, 0.2, -0.1], 1) == pytest.approx(4 / 3)


def test_decay_is_the_ratio_of_consecutive_sums() -> None:
    powers = [0.8**lag for lag in range(120)]
    # Ten lags of 120 values. Estimated correlations are low by about 1 / count.
    share = (sum(powers[2:12]) + 10 / 120) / (sum(powers[1:11]) + 10 / 120)
    assert blocks._estimate_decay(powers) == pytest.approx(share + (1 + 3 * share) / 120)
    # Three lags at least.
    share = (sum(powers[2:5]) + 3 / 24) / (sum(powers[1:4]) + 3 / 24)
    assert blocks._estimate_decay(powers[:24]) == pytest.approx(share + (1 + 3 * share) / 24)


def test_correlations_within_chance_have_no_decay() -> None:
    # Two standard deviations of the sum of ten correlations of 120 values are 0.577, less 10 / 120.
    assert blocks._estimate_decay([1, *[0.0490] * 119]) == 0
    assert blocks._estimate_decay([1, *[0.0498] * 119]) > 0
    assert blocks._estimate_decay([1, 0.9, *[-0.2] * 10, *[0.0] * 108]) == 0


def test_last_lag_is_followed_by_five_within_chance() -> None:
    # Of 100 values, correlations below 0.283 are within chance.
    small = [0.28] * 5
    assert blocks._find_last_lag([1, *small, 0.9], 100) == 0
    assert blocks._find_last_lag([1, 0.29, -0.29, *small, 0.9], 100) == 2
    assert blocks._find_last_lag([1, 0.9, *small[1:], 0.9, *small], 100) == 6
    assert blocks._find_last_lag([1, 0.9, 0.9, 0.9], 100) == 3


def test_correlated_series_must_be_longer_by_the_sum_of_its_correlations() -> None:
    assert blocks._compute_length_factor(0.5, 0.5) == 3
    assert blocks._compute_length_factor(0.2, 0.8) == pytest.approx(3)
    assert blocks._compute_length_factor(-0.5, 0.5) == 1


def test_estimate_matches_an_autoregressive_process() -> None:
    count, share = 2000, 0.6
    estimates = [
        estimate_correlation(make_correlated_series(random.Random(seed), count, share), 30)
        for seed in (1, 2, 3)
    ]
    assert fmean(one.correlation for one in estimates) == pytest.approx(share, abs=0.1)
    assert fmean(one.freedom for one in estimates) == pytest.approx(
        2 * count * (1 - share**2) / (4 + 2 * (1 + share**2)), rel=0.1
    )
    # A sum varies 4 times as much as independent values, a resample with blocks of 30 only 3.76 times.
    assert 1 <= fmean(one.cut_off for one in estimates) < 1.6


def test_estimate_follows_from_the_correlations_of_the_series() -> None:
    series = make_correlated_series(random.Random(4), 100, 0.7)
    correlations = compute_autocorrelations(series, 99)
    first = correlations[1] + (1 + 3 * correlations[1]) / 100
    alike = estimate_correlation(series, 12)
    lasting = alike.correlation
    assert lasting == pytest.approx(max(first, blocks._estimate_decay(correlations)))
    upper = lasting + math.sqrt((1 - lasting**2) / 100)
    assert alike.worth == pytest.approx(100 / (1 + 2 * first / (1 - upper)))
    assert alike.freedom == pytest.approx(200 * (1 - first**2) / (4 + 2 * (1 + first**2)))
    expected = 100 / 99 * (1 + 2 * first / (1 - lasting))
    assert alike.cut_off == pytest.approx(expected / blocks._compute_resample_variance(correlations, 12))


def test_alternating_series_counts_as_independent() -> None:
    alike = estimate_correlation([1.0, -1.0] * 30, 4)
    assert (alike.correlation, alike.worth) == (0, 60)
    assert alike.freedom == pytest.approx(2 * 60 / 6)


def test_block_length_matches_the_theory_of_an_autoregressive_process() -> None:
    """Politis and White: (2 * 4 / (2 * 3))^(2/3) * 2000^(1/3) for a share of 0.5, doubled by opwatch."""
    lengths = [
        choose_block_length(make_correlated_series(random.Random(seed), 2000, 0.5)).length
        for seed in range(8)
    ]
    assert fmean(lengths) == pytest.approx(2 * (4 / 3) ** (2 / 3) * 2000 ** (1 / 3), rel=0.12)


def test_block_length_is_between_the_cube_root_and_a_sixth() -> None:
    assert choose_block_length([0.0] * 11).length == 1
    assert choose_block_length([0.0] * 12).length == 2  # a sixth is below the cube root
    assert choose_block_length([0.0] * 64).length == 4
    assert choose_block_length([0.0] * 65).length == 5
    lengths = {
        choose_block_length(make_correlated_series(random.Random(seed), 60, 0.8)).length for seed in range(6)
    }
    assert 10 in lengths and max(lengths) <= 12


def test_lasting_correlation_needs_five_times_its_length() -> None:
    block = choose_block_length([float(at) for at in range(60)])
    assert block.needed and block.length > 12
    assert 5 * (block.length - 1) < block.needed <= 5 * block.length


def test_p_value_of_0_is_1_and_of_a_huge_value_0() -> None:
    assert compute_p_value(0, 5) == 1
    assert compute_p_value(1e200, 5) == 0


@pytest.mark.parametrize("freedom", [1, 5, 30, 1000])
def test_p_value_near_0_follows_the_density(freedom: int) -> None:
    density = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(
        freedom * math.pi
    )
    assert 1 - compute_p_value(1e-3, freedom) == pytest.approx(2e-3 * density, rel=1e-5)


def test_lasting_share_is_limited() -> None:
    trend = estimate_correlation([float(at) for at in range(60)], 4)
    assert trend.correlation == 0.999
    # The first correlation of a trend of 60 values is 0.95, corrected by 0.064.
    assert trend.worth == pytest.approx(60 / (1 + 2 * 1.014 / 0.001), rel=0.01)
    assert trend.freedom == pytest.approx(120 * (1 - 0.95**2) / (4 + 2 * (1 + 0.95**2)))


def test_correlation_length_uses_a_flat_top_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 60 values, correlations below 0.344 are within chance, so the window ends at twice lag 1."""
    known = [1, 0.6, 0.3, *[0.0] * 20]
    monkeypatch.setattr(blocks, "compute_autocorrelations", lambda *_: known)
    # Full weight up to lag 1, two thirds at lag 2.
    slope, spectrum = 2 * (0.6 + 2 * 0.2), 1 + 2 * (0.6 + 0.2)
    length = blocks._find_correlation_length([0.0] * 60)
    assert length == pytest.approx((slope / spectrum) ** (2 / 3) * 60 ** (1 / 3))


def test_negative_correlation_has_no_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "compute_autocorrelations", lambda *_: [1, -0.6, 0.1, *[0.0] * 20])
    assert blocks._find_correlation_length([0.0] * 60) == 0
