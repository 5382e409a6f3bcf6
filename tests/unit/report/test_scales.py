"""Axes have round labels, as precise as their differences, and every value is at its labelled place."""

from __future__ import annotations

import random

import pytest

from opwatch.sinks.report.plots.amounts import format_duration, format_latency, format_rate, format_size
from opwatch.sinks.report.plots.scales import (
    EXTENT,
    AxisScale,
    make_capacity_axis,
    make_linear_axis,
    make_log_axis,
    make_nines_axis,
    make_time_axis,
)


def check_scale(scale: AxisScale, most: int = 14) -> None:
    places = [scale.place_value(value) for value, _ in scale.ticks]
    names = [name for _, name in scale.ticks]
    assert places == sorted(places)
    assert len(set(names)) == len(names)
    assert 2 <= len(names) <= most
    assert all(0 <= place <= EXTENT for place in places)


def test_every_scale_has_names_that_differ() -> None:
    chance = random.Random(5)
    for _ in range(500):
        high = 10 ** chance.uniform(-3, 12)
        check_scale(make_linear_axis(high))
        check_scale(make_capacity_axis(max(high, 2000)))
        check_scale(make_time_axis(max(high / 1e6, 0.2)))
        check_scale(make_nines_axis(high))
        low = 10 ** chance.uniform(2, 8)
        check_scale(make_log_axis(low, low * 10 ** chance.uniform(0.5, 6), format_latency))
    assert make_linear_axis(0.02).ticks[1][1] == "0.005"
    assert [name for _, name in make_linear_axis(40, " °C", 33).ticks] == [
        "32 °C",
        "34 °C",
        "36 °C",
        "38 °C",
        "40 °C",
    ]


def test_values_beyond_an_end_are_drawn_at_the_end() -> None:
    scale = make_linear_axis(10)
    assert (scale.place_value(-5), scale.place_value(0), scale.place_value(5), scale.place_value(99)) == (
        0,
        0,
        EXTENT // 2,
        EXTENT,
    )
    assert make_nines_axis(1000).place_value(1.0) == EXTENT
    assert make_nines_axis(10**5).place_value(0.999) == round(EXTENT * 3 / 5)


@pytest.mark.parametrize(
    ("shown", "words"),
    [
        (format_latency(17_400), "17.4 µs"),
        (format_latency(None), "-"),
        (format_latency(999.7e3), "1.00 ms"),
        (format_rate(259_342.4), "259,342"),
        (format_rate(0.5), "0.50"),
        (format_size(4096), "4 KiB"),
        (format_size(512), "512 B"),
        (format_size(None), "-"),
        (format_duration(3.25), "3.2 s"),
        (format_duration(270), "4 min 30 s"),
        (format_duration(7500), "2 h 5 min"),
        (format_duration(86_400 * 2), "2 d"),
    ],
)
def test_amounts_have_their_units(shown: str, words: str) -> None:
    assert shown == words
