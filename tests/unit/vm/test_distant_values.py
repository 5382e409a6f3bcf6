"""The comparison of two backends' latencies: CPUs taken away for a while pass, wrong values do not."""

from __future__ import annotations

import random

import pytest

from opwatch.trace.abi import LATENCY
from opwatch.trace.hist import Histogram
from tests.vm.guest.support.backend_tracers import count_distant_values

REQUESTS = 499
_SLOT = 1 / 32


def make_latencies(seed: int, delay_ns: int = 10_000_000) -> list[int]:
    """Return the latencies of a timer on a busy machine: a dense start and a long tail."""
    draw = random.Random(seed)
    return [int(delay_ns * (1.01 + draw.expovariate(8))) for _ in range(REQUESTS)]


def make_histogram(values: list[int], moved_slots: int = 0) -> Histogram:
    counts = [0] * LATENCY.slots
    for value in values:
        counts[LATENCY.find_slot(value) + moved_slots] += 1
    return Histogram(LATENCY, counts)


@pytest.mark.parametrize("seed", range(8))
def test_no_value_is_distant_when_gaps_are_shorter_than_a_slot(seed: int) -> None:
    values = make_latencies(seed)
    draw = random.Random(seed)
    witness = [int(value * (1 + draw.uniform(-_SLOT, _SLOT) / 2)) for value in values]
    assert count_distant_values(make_histogram(values), make_histogram(witness)) == 0


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("gap_ns", [-2_000_000, 4_000_000, 100_000_000])
def test_interrupted_requests_are_not_counted_more_than_once(seed: int, gap_ns: int) -> None:
    values = make_latencies(seed)
    witness = [value + gap_ns * (index % 50 == 0) for index, value in enumerate(values)]
    assert count_distant_values(make_histogram(values), make_histogram(witness)) <= 10


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("slots", [-2, 2])
def test_most_values_are_distant_when_all_are_two_slots_off(seed: int, slots: int) -> None:
    values = make_latencies(seed)
    assert count_distant_values(make_histogram(values, slots), make_histogram(values)) > 10


def test_values_that_go_both_ways_are_added_up() -> None:
    ours, witness = [10_000] * 10, [1_000] * 5 + [100_000] * 5
    assert count_distant_values(make_histogram(ours), make_histogram(witness)) == 10
