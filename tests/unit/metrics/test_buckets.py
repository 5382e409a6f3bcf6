"""Buckets of exposed histograms against the durations themselves."""

from __future__ import annotations

import math
import random
import tracemalloc
from bisect import bisect_left
from itertools import accumulate, pairwise

from opwatch.metrics.buckets import (
    CLASSIC_BOUNDS,
    accumulate_classic,
    count_durations,
    count_native,
    count_without_buckets,
)
from opwatch.trace.abi import LATENCY, view_words
from opwatch.trace.hist import Histogram

# Half the width of a slot.
_HALF_SLOT = 1 / 64


def draw_values(seed: int) -> list[int]:
    rng = random.Random(seed)
    return [int(10 ** rng.uniform(0, 11)) for _ in range(5000)] + [0, 0, 1]


def test_classic_bounds_are_two_per_octave_and_at_most_six_seconds() -> None:
    assert len(CLASSIC_BOUNDS) == 41
    steps = [high / low for low, high in pairwise(CLASSIC_BOUNDS)]
    assert all(1.33 < step < 1.51 for step in steps)
    assert (CLASSIC_BOUNDS[0], CLASSIC_BOUNDS[-1]) == (6.143e-6, 6.442450943)


def test_classic_buckets_are_exact() -> None:
    values = draw_values(1)
    counts = count_durations(Histogram.from_values(LATENCY, values), sum(values))
    expected = [sum(value <= round(bound * 1e9) for value in values) for bound in CLASSIC_BOUNDS]
    assert accumulate_classic(counts) == expected
    assert counts.total == len(values)
    assert counts.sum_s == sum(values) / 1e9


def test_native_buckets_contain_every_value_within_half_a_slot() -> None:
    for value in draw_values(2):
        zero, buckets = count_native(count_durations(Histogram.from_values(LATENCY, [value]), value))
        if not value:
            assert (zero, buckets) == (1, [])
            continue
        [(index, count)] = buckets
        assert (zero, count) == (0, 1)
        if value < LATENCY.low_edge(LATENCY.slots - 1):
            low, high = (2 ** (place / 8) * 1e9 for place in (index - 1, index))
            assert low * (1 - _HALF_SLOT) <= value <= high * (1 + _HALF_SLOT)


def test_native_buckets_add_up_to_the_count_in_order() -> None:
    values = draw_values(3)
    zero, buckets = count_native(count_durations(Histogram.from_values(LATENCY, values), 1))
    assert zero == values.count(0)
    assert zero + sum(count for _, count in buckets) == len(values)
    assert [index for index, _ in buckets] == sorted({index for index, _ in buckets})
    assert all(count > 0 for _, count in buckets)


def test_quantiles_of_native_buckets_are_within_their_width() -> None:
    values = sorted(max(value, 1) for value in draw_values(4))
    _, buckets = count_native(count_durations(Histogram.from_values(LATENCY, values), 1))
    totals = list(accumulate(count for _, count in buckets))
    for ratio in (0.1, 0.5, 0.9, 0.97):
        rank = math.ceil(ratio * len(values))
        index, _ = buckets[bisect_left(totals, rank)]
        true = values[rank - 1] / 1e9
        assert 2 ** ((index - 1) / 8) * (1 - _HALF_SLOT) <= true <= 2 ** (index / 8) * (1 + _HALF_SLOT)


def test_counts_in_the_kernels_words_and_in_lists_are_equal() -> None:
    listed = Histogram.from_values(LATENCY, draw_values(5))
    viewed = Histogram(LATENCY, view_words(list(listed.slot_counts)))
    assert count_durations(viewed, 7) == count_durations(listed, 7)
    assert count_durations(Histogram(LATENCY, view_words([0] * LATENCY.slots)), 0).total == 0


def test_counts_without_distribution_have_number_and_sum() -> None:
    counts = count_without_buckets(12, 3_000_000_000)
    assert (counts.total, counts.sum_s, counts.has_buckets) == (12, 3.0, False)


def test_counts_take_few_bytes_for_each_slot() -> None:
    histogram = Histogram.from_values(LATENCY, draw_values(3))
    histogram.rank_slots()
    tracemalloc.start()
    try:
        counts = count_durations(histogram, 1)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(counts.slots) > 500
    assert kept < 12 * len(counts.slots)
