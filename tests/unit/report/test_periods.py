"""Short pulses at regular times are found, and noise has no period."""

from __future__ import annotations

import random

import pytest

from opwatch.report.periods import find_period
from tests.unit.support.noise import add_pulses, draw_ar1

_QUARTER_HOUR = 900


@pytest.mark.parametrize("share", [0.0, 0.5, 0.8])
@pytest.mark.parametrize("height", [6.0, -10.0])
def test_find_period_finds_a_stall_of_one_second_per_minute(share: float, height: float) -> None:
    found = 0
    for seed in range(10):
        chance = random.Random(seed)
        noise = draw_ar1(chance, _QUARTER_HOUR, share)
        pulses = add_pulses(noise, first=60 * chance.random(), every=60, length=1, height=height)
        period = find_period(pulses)
        found += period is not None and abs(period.intervals - 60) <= 1
    assert found >= 9


@pytest.mark.parametrize("share", [0.0, 0.5, 0.8])
def test_find_period_finds_none_in_a_quarter_hour_of_noise(share: float) -> None:
    noise = [draw_ar1(random.Random(seed), _QUARTER_HOUR, share) for seed in range(10)]
    assert sum(find_period(values) is not None for values in noise) <= 1


def test_find_period_reports_the_pulses_that_it_counted() -> None:
    chance = random.Random(1)
    values = add_pulses(draw_ar1(chance, _QUARTER_HOUR, 0.5), first=20, every=60, length=1, height=20)
    period = find_period(values)
    assert period and period.pulses
    assert (period.pulses.hits, period.pulses.cycles) == (15, 15)


def test_find_period_finds_none_for_pulses_at_random_times() -> None:
    found = 0
    for seed in range(10):
        chance = random.Random(seed)
        values = draw_ar1(chance, _QUARTER_HOUR, 0.5)
        for place in chance.sample(range(_QUARTER_HOUR), 15):
            values[place] += 20
        found += find_period(values) is not None
    assert found <= 1
