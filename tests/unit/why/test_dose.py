"""A dose is found if the effect grows with it, and rarely otherwise."""

from __future__ import annotations

import random

import pytest

from opwatch.why.statistics.dose import measure_dose
from tests.unit.support.noise import draw_ar1


def test_measure_dose_finds_an_effect_that_grows_with_the_amount() -> None:
    dose = measure_dose([1, 2, 4, 9, 16, 25], [1, 2, 3, 4, 5, 6])
    assert dose.correlation == pytest.approx(1)
    assert dose.p is not None and dose.p <= 0.01
    falling = measure_dose([1, 2, 4, 9, 16, 25], [6, 5, 4, 3, 2, 1])
    assert falling.correlation == pytest.approx(-1)
    assert falling.p is not None and falling.p > 0.9


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_measure_dose_rarely_finds_one_in_noise(share: float) -> None:
    low = 0
    for seed in range(40):
        chance = random.Random(seed)
        p = measure_dose(draw_ar1(chance, 30, share), draw_ar1(chance, 30, share)).p
        low += p is not None and p <= 0.05
    assert low <= 6


def test_measure_dose_gives_a_reason_without_enough_different_episodes() -> None:
    few = measure_dose([1, 2, 3, 4], [1, 2, 3, 4])
    assert (few.correlation, few.p) == (None, None)
    assert few.reason and "5" in few.reason
    assert measure_dose([1, 2, 3, 4, 5], [7] * 5).reason
