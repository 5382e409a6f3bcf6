"""Axes have round labels, as precise as their differences, and every value is at its labelled place."""

from __future__ import annotations

import random

import pytest

from opwatch.sinks.report.plots.amounts import latency, rate, size, span
from opwatch.sinks.report.plots.scales import (
    EXTENT,
    AxisScale,
    capacities,
    elapsed,
    linear,
    logarithmic,
    nines,
)


def check(scale: AxisScale, most: int = 14) -> None:
    places = [scale.at(value) for value, _ in scale.ticks]
    names = [name for _, name in scale.ticks]
    assert places == sorted(places)
    assert len(set(names)) == len(names)
    assert 2 <= len(names) <= most
    assert all(0 <= place <= EXTENT for place in places)


def test_every_scale_has_names_that_differ() -> None:
    chance = random.Random(5)
    for _ in range(500):
        high = 10 ** chance.uniform(-3, 12)
        check(linear(high))
        check(capacities(max(high, 2000)))
        check(elapsed(max(high / 1e6, 0.2)))
        check(nines(high))
        low = 10 ** chance.uniform(2, 8)
        check(logarithmic(low, low * 10 ** chance.uniform(0.5, 6), latency))
    assert linear(0.02).ticks[1][1] == "0.005"
    assert [name for _, name in linear(40, " °C", 33).ticks] == ["32 °C", "34 °C", "36 °C", "38 °C", "40 °C"]


def test_values_beyond_an_end_are_drawn_at_the_end() -> None:
    scale = linear(10)
    assert (scale.at(-5), scale.at(0), scale.at(5), scale.at(99)) == (0, 0, EXTENT // 2, EXTENT)
    assert nines(1000).at(1.0) == EXTENT
    assert nines(10**5).at(0.999) == round(EXTENT * 3 / 5)


@pytest.mark.parametrize(
    ("shown", "words"),
    [
        (latency(17_400), "17.4 µs"),
        (latency(None), "-"),
        (latency(999.7e3), "1.00 ms"),
        (rate(259_342.4), "259,342"),
        (rate(0.5), "0.50"),
        (size(4096), "4 KiB"),
        (size(512), "512 B"),
        (size(None), "-"),
        (span(3.25), "3.2 s"),
        (span(270), "4 min 30 s"),
        (span(7500), "2 h 5 min"),
        (span(86_400 * 2), "2 d"),
    ],
)
def test_amounts_have_their_units(shown: str, words: str) -> None:
    assert shown == words
