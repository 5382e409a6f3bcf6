"""Estimates for runs with known distributions."""

from __future__ import annotations

import math
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable

import pytest

from opwatch.compare.differences import compare_estimates
from opwatch.compare.estimates import (
    MIN_INTERVALS,
    MIN_REQUESTS,
    MISSED_STATE_DIVISOR,
    ONE_REQUEST,
    Estimate,
    OpEstimator,
    compute_influences,
    make_estimate,
    make_ratio_figure,
)
from opwatch.compare.sampling import MAX_INTERVALS, DiskTimeline, sample_run
from opwatch.samples.entries import IntervalEnded, RunEnded, RunEntry
from opwatch.trace.abi import LATENCY
from tests.unit.compare.counted_disk import Second, generate_entries
from tests.unit.compare.test_statistics import make_correlated_series


def make_exponential_seconds(seed: int, seconds: int, mean_ns: float = 1e6, count: int = 400) -> list[Second]:
    chance = random.Random(seed)
    return [
        {"read": Counter(round(chance.expovariate(1 / mean_ns)) for _ in range(count))}
        for _ in range(seconds)
    ]


def make_timeline(seconds: Iterable[Second]) -> DiskTimeline:
    return sample_run(generate_entries(seconds)).disks["nvme0n1"]


def estimate_reads(seconds: Iterable[Second]) -> dict[str, Estimate]:
    return OpEstimator(make_timeline(seconds), "read").estimate_all()


def test_estimates_match_an_exponential_distribution() -> None:
    figures = estimate_reads(make_exponential_seconds(1, 100))
    true = {"iops": 400, "mbps": 400 * 4096e-6, "mean": 1e6}
    true |= {"p50": 1e6 * math.log(2), "p99": 1e6 * math.log(100), "p99.9": 1e6 * math.log(1000)}
    for metric, value in true.items():
        estimate = figures[metric]
        assert estimate.value is not None
        assert estimate.scatter is not None, metric
        off = abs(math.log(estimate.value / value))
        assert off < max(4 * estimate.scatter, 1e-9), metric
    # For 40,000 independent requests: 1 / sqrt(40,000) for the mean, and sqrt(99 / 40,000) / ln 100 for p99.
    assert figures["mean"].scatter == pytest.approx(0.005, rel=0.4)
    assert figures["p99"].scatter == pytest.approx(0.0108, rel=0.4)
    assert figures["iops"].scatter == 0


def test_quantile_is_inside_its_slot() -> None:
    figures = estimate_reads([{"read": {100_000: 990, 3_000_000: 10}}] * 20)
    slot = LATENCY.find_slot(100_000)
    p99 = figures["p99"]
    assert (p99.low, p99.high) == (LATENCY.low_edge(slot), LATENCY.low_edge(slot + 1))
    assert p99.value == pytest.approx(LATENCY.low_edge(slot + 1))
    assert figures["p50"].low <= 100_000 < figures["p50"].high
    assert p99.is_in_slots


def test_maximum_is_not_an_estimate() -> None:
    most = estimate_reads([{"read": {100_000: 99, 3_000_000: 1}}] * 20)["max"]
    assert most.value == 3_000_000
    assert not most.has_scatter
    assert most.reason == ONE_REQUEST


def test_the_moments_of_the_samples_bound_a_rate() -> None:
    rate = estimate_reads([{"read": {100_000: 1000}}] * 20)["iops"]
    assert rate.value == 1000
    # Two readings of 100 us each.
    assert rate.low == pytest.approx(1000 / (1 + 1e-5))
    assert rate.high == pytest.approx(1000 / (1 - 1e-5))


def test_too_few_values_name_the_required_number() -> None:
    few = estimate_reads(make_exponential_seconds(1, MIN_INTERVALS - 1))
    assert few["iops"].reason == "only 11 intervals (12 needed)"
    rare = estimate_reads([{"read": {100_000: 10}}] * 30)
    assert rare["p99"].reason == f"only 300 requests ({100 * MIN_REQUESTS} needed)"
    assert rare["p99.9"].value is not None
    assert rare["p50"].has_scatter


def test_trend_does_not_count_as_noise() -> None:
    growing = estimate_reads([{"read": {100_000: 1000 + 50 * second}} for second in range(60)])
    reason = growing["iops"].reason
    assert reason and re.search(r"\b\d+ of 60 intervals\b", reason)


def test_a_long_run_is_added_up_exactly() -> None:
    seconds = make_exponential_seconds(3, 3 * MAX_INTERVALS + 7, count=3)
    whole = make_timeline(seconds)
    assert MAX_INTERVALS // 2 <= len(whole.stretches) <= MAX_INTERVALS
    assert whole.seconds == pytest.approx(len(seconds))
    merged = Counter[int]()
    for stretch in whole.stretches:
        merged.update(stretch.ops["read"].slots)
    slots = Counter[int]()
    for second in seconds:
        for ns, count in second["read"].items():
            slots[LATENCY.find_slot(ns)] += count
    assert merged == slots


def test_run_without_an_end_is_sampled_to_its_last_tick() -> None:
    run = list(generate_entries(make_exponential_seconds(1, 20)))
    ticks: list[RunEntry] = [entry for entry in run if isinstance(entry, IntervalEnded)]
    whole = sample_run(run).disks["nvme0n1"]
    cut = sample_run(entry for entry in run if not isinstance(entry, RunEnded)).disks["nvme0n1"]
    assert whole.stretches == cut.stretches
    fewer = sample_run([*run[:1], *ticks[4::5]])
    assert len(fewer.disks["nvme0n1"].stretches) == 4
    assert fewer.disks["nvme0n1"].seconds == whole.seconds


@pytest.mark.parametrize(("share", "most"), [(0.0, 0.07), (0.6, 0.07)])
def test_correlation_makes_no_differences(share: float, most: float) -> None:
    """Among pairs of series with the same distribution, at most the allowed 5 % differ. With blocks alone it
    would be 10 % for the second series."""
    ones, wrong, pairs = [1.0] * 60, 0, 200
    for seed in range(pairs):
        chance, both = random.Random(seed), []
        for _ in range(2):
            series = [100 + value for value in make_correlated_series(chance, 60, share)]
            mean = sum(series) / 60
            both.append(
                make_estimate(
                    mean, (mean, mean), make_ratio_figure(series, ones), compute_influences(series, ones)
                )
            )
        wrong += compare_estimates(both[0], both[1], 0.05).is_detected
    assert wrong <= most * pairs


def estimate_mean(series: list[float], seconds: float | None = 60.0) -> Estimate:
    ones, mean = [1.0] * len(series), sum(series) / len(series)
    return make_estimate(
        mean, (mean, mean), make_ratio_figure(series, ones), compute_influences(series, ones), seconds=seconds
    )


def make_two_state_series(chance: random.Random, count: int) -> list[float]:
    """Two states; on average each lasts for the longest share of the run that the promise covers."""
    state, series = chance.choice((-1, 1)), []
    for _ in range(count):
        state = -state if chance.random() < MISSED_STATE_DIVISOR / count else state
        series.append(state + 0.3 * chance.gauss(0, 1))
    return series


def make_noisy_series(chance: random.Random, count: int) -> list[float]:
    """Deviations that last as long as the promise allows, plus independent noise of the same size."""
    return [
        value + chance.gauss(0, 1)
        for value in make_correlated_series(chance, count, 1 - MISSED_STATE_DIVISOR / count)
    ]


@pytest.mark.parametrize(
    "series_of",
    [
        lambda chance, count: make_correlated_series(chance, count, 0.9),
        lambda chance, count: make_correlated_series(chance, count, 0.98),
        make_two_state_series,
        make_noisy_series,
    ],
    ids=["share 0.9", "share 0.98", "two states", "under noise"],
)
def test_long_lasting_states_make_no_differences(
    series_of: Callable[[random.Random, int], list[float]],
) -> None:
    """Each of four figures gets a quarter of the 5 %, as in a comparison."""
    wrong, pairs = 0, 60
    for seed in range(pairs):
        chance = random.Random(seed)
        means = [
            [estimate_mean([100 + 5 * value for value in series_of(chance, 60)]) for _ in range(2)]
            for _ in range(4)
        ]
        wrong += any(compare_estimates(one, other, 0.05 / 4).is_detected for one, other in means)
    # The number may vary by two standard deviations.
    assert wrong <= 0.05 * pairs + 2 * math.sqrt(0.05 * pairs)


def test_correlated_run_names_the_required_length() -> None:
    series = [100 + 5 * value for value in make_correlated_series(random.Random(5), 60, 0.9)]
    estimate = estimate_mean(series)
    assert not estimate.has_scatter
    assert re.search(r"\b60 intervals .*\b\d independent .*\b\d+ min$", estimate.reason or "")
    assert estimate.correlation is not None and estimate.correlation > 0.7
    # The additional intervals are enough.
    longer = [100 + 5 * value for value in make_correlated_series(random.Random(5), 900, 0.9)]
    assert estimate_mean(longer).has_scatter
    assert "needed" in (estimate_mean(series, None).reason or "")
