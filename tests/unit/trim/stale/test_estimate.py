"""The confidence interval against known values and exact sums."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opwatch.trim.space.extents import Extents
from opwatch.trim.stale.estimate import SAMPLE_SIZES, beta_cdf, estimate_share
from opwatch.trim.stale.sampling import BatchCount, Blocks, Draw, SampledBlock, sample_blocks


def compute_tail(holding: int, samples: int, share: float) -> float:
    """Return P(at least `holding` of `samples`) by summation."""
    return math.fsum(
        math.comb(samples, k) * share**k * (1 - share) ** (samples - k) for k in range(holding, samples + 1)
    )


@given(st.integers(1, 60), st.data(), st.floats(0.001, 0.999))
def test_beta_is_the_binomial_tail(samples: int, data: st.DataObject, share: float) -> None:
    holding = data.draw(st.integers(1, samples))
    assert beta_cdf(share, holding, samples - holding + 1) == pytest.approx(
        compute_tail(holding, samples, share), abs=1e-9
    )


@pytest.mark.parametrize(
    ("holding", "samples", "low", "high"),
    # Clopper and Pearson's method at 95 %: rule of three, and textbook values.
    [
        (0, 100, 0.0, 0.03622),
        (10, 100, 0.04900, 0.17622),
        (50, 100, 0.39832, 0.60168),
        (100, 100, 0.96378, 1),
    ],
)
def test_intervals_match_known_values(holding: int, samples: int, low: float, high: float) -> None:
    share = estimate_share(holding, samples, 10**9, 0.95, looks=1)
    assert share.low == pytest.approx(low, abs=1e-5)
    assert share.high == pytest.approx(high, abs=1e-5)


def test_large_samples_do_not_fail() -> None:
    share = estimate_share(1, 64_000, 10**9, 0.9999)
    assert 0 < share.low < 1 / 64_000 < share.high < 0.001
    share = estimate_share(32_000, 64_000, 10**9, 0.95)
    assert share.half_width == pytest.approx(2.4977 * 0.5 / math.sqrt(64_000), rel=0.01)


@given(st.integers(0, 300), st.integers(0, 300), st.integers(0, 300))
def test_bounds_never_exclude_the_observed_share(holding: int, others: int, unread: int) -> None:
    samples = holding + others
    share = estimate_share(holding, samples, samples + unread, 0.95)
    assert 0 <= share.low <= share.high <= 1
    if samples:
        assert share.low <= holding / samples <= share.high
        assert share.low * share.units >= holding * (1 - 1e-9)
    if not unread:
        assert share.low == share.high


PAIRS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=8)


@given(st.lists(PAIRS, max_size=3), st.integers(1, 5))
def test_sampled_blocks_are_whole_blocks(parts: list[list[tuple[int, int]]], unit: int) -> None:
    extents = [Extents.from_pairs(pairs) for pairs in parts]
    blocks = Blocks(extents, unit)
    expected = [
        SampledBlock(landing, at)
        for landing, part in enumerate(extents)
        for start, end in part
        for at in range(start, end - unit + 1, unit)
    ]
    assert [blocks[number] for number in range(len(blocks))] == expected
    with pytest.raises(IndexError):
        blocks[len(blocks)]


@pytest.mark.parametrize("count", [0, 1, 999, 1_000_000])
def test_draw_has_no_repetitions_and_is_reproducible(count: int) -> None:
    one, two = Draw(count, 7), Draw(count, 7)
    first = one.draw_numbers(500) + one.draw_numbers(700)
    assert first == two.draw_numbers(500) + two.draw_numbers(700)
    assert len(set(first)) == len(first) == min(count, 1200)
    assert all(0 <= number < count for number in first)
    assert count < 2 or first != Draw(count, 8).draw_numbers(1200)


def estimate_shares(
    stale: int, units: int, seed: int, half_width: float = 0.01
) -> list[tuple[float, float, int]]:
    """Return the interval after each batch, for a population with `stale` held units at its start."""

    def read_batch(numbers: list[int]) -> BatchCount:
        return BatchCount(sum(number < stale for number in numbers), len(numbers))

    return [
        (share.low, share.high, share.samples)
        for share in sample_blocks(units, seed, 0.95, half_width, read_batch)
    ]


def test_sampling_stops_at_the_requested_precision() -> None:
    assert [look[2] for look in estimate_shares(0, 10**8, 1)] == [SAMPLE_SIZES[0]]
    assert [look[2] for look in estimate_shares(5 * 10**7, 10**8, 1)] == list(SAMPLE_SIZES[:3])
    assert [look[2] for look in estimate_shares(5 * 10**7, 10**8, 1, 0.001)] == list(SAMPLE_SIZES)


def test_a_small_population_is_counted() -> None:
    assert estimate_shares(123, 777, 1)[-1] == (123 / 777, 123 / 777, 777)
    assert estimate_shares(0, 0, 1) == [(0.0, 0.0, 0)]


def test_reallocated_blocks_do_not_count() -> None:
    looks = list(sample_blocks(100, 1, 0.95, 0.01, lambda numbers: BatchCount(0, len(numbers) // 2)))
    assert (looks[-1].samples, looks[-1].low, looks[-1].high) == (50, 0.0, 0.0)


def test_expired_time_allows_a_single_batch() -> None:
    taken: list[int] = []

    def read_batch(numbers: list[int]) -> BatchCount:
        taken.extend(numbers)
        return BatchCount(0, len(numbers))

    *_, share = sample_blocks(10**6, 1, 0.95, 0.0001, read_batch, lambda: False)
    assert share.samples == len(taken) == 1000


def test_uncounted_blocks_give_no_estimate() -> None:
    *_, share = sample_blocks(10**6, 1, 0.95, 0.01, lambda numbers: BatchCount(0, 0), lambda: False)
    assert (share.share, share.low, share.high) == (None, 0.0, 1.0)


@pytest.mark.parametrize("share", [0.002, 0.02, 0.3])
def test_confidence_holds_over_all_batches(share: float) -> None:
    """Shares near the width at which the first evaluations may stop, where early stopping errs most."""
    missed = 0
    for run in range(100):
        low, high, _ = estimate_shares(int(10**7 * share), 10**7, run, 0.011)[-1]
        missed += not low <= share <= high
    assert missed <= 5
