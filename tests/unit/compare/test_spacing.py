"""Regular events are found on any axis, and events at random places are not."""

from __future__ import annotations

import random

import pytest

from opwatch.compare.gamma import compute_upper_tail
from opwatch.compare.spacing import find_spacing


@pytest.mark.parametrize("unit", [1.0, 1e9])
def test_find_spacing_measures_the_period_despite_missed_and_additional_events(unit: float) -> None:
    regular = [7 + 59.7 * number for number in range(15) if number not in (4, 9)]
    positions = [unit * position for position in sorted([*regular, 100, 333])]
    spacing = find_spacing(positions, 0, 900 * unit, unit)
    assert spacing is not None
    assert spacing.period == pytest.approx(59.7 * unit, rel=1e-3)
    assert (spacing.hits, spacing.cycles, spacing.events) == (13, 15, 15)
    assert spacing.p < 1e-4


def test_find_spacing_finds_none_at_random_places() -> None:
    found = 0
    for seed in range(100):
        chance = random.Random(seed)
        positions = sorted(chance.uniform(0, 900) for _ in range(20))
        found += find_spacing(positions, 0, 900, 1) is not None
    assert found <= 5


def test_find_spacing_finds_none_in_fewer_than_four_cycles() -> None:
    assert find_spacing([], 0, 100, 1) is None
    assert find_spacing([10, 40, 70], 0, 100, 1) is None


def test_upper_tail_is_that_of_the_sampled_distribution() -> None:
    chance = random.Random(5)
    waits = [chance.expovariate(1) for _ in range(20_000)]
    assert compute_upper_tail(5, waits) == pytest.approx(0.0067, rel=0.15)
    normal = [chance.gauss(0, 1) for _ in range(20_000)]
    assert compute_upper_tail(2, normal) == pytest.approx(0.0228, rel=0.1)
    assert compute_upper_tail(5, [3.0] * 9) == 1
