"""Events are attributed to bytes or seconds if the rate varied, and to neither if it was constant."""

from __future__ import annotations

import random
from collections import Counter
from itertools import accumulate

import pytest

from opwatch.why.statistics.axis import Axis, find_axis


def find_axis_of_made_up(seed: int, kind: Axis, growth: float, jitter: float) -> Axis:
    """Make events every 30 s or 30 bytes at a rate that grows half-way, and return their axis."""
    chance, count = random.Random(seed), 600
    rates = [
        (growth if second >= count / 2 else 1) * max(0.05, chance.gauss(1, 0.3)) for second in range(count)
    ]
    totals = [0.0, *accumulate(rates)]
    events, upcoming = list[int](), 30 * chance.random()
    for second in range(count):
        if (second if kind is Axis.SECONDS else totals[second]) >= upcoming:
            events.append(second)
            upcoming += 30 * chance.gauss(1, jitter)
    return find_axis(events, [totals[event] for event in events]).axis


@pytest.mark.parametrize("kind", [Axis.SECONDS, Axis.BYTES])
@pytest.mark.parametrize("jitter", [0.0, 0.1])
def test_find_axis_is_right_when_the_rate_doubles(kind: Axis, jitter: float) -> None:
    answers = Counter(find_axis_of_made_up(seed, kind, 2.0, jitter) for seed in range(50))
    assert answers[kind] >= 45
    assert answers[kind] + answers[Axis.UNKNOWN] >= 49


@pytest.mark.parametrize("kind", [Axis.SECONDS, Axis.BYTES])
def test_find_axis_cannot_tell_at_a_constant_rate(kind: Axis) -> None:
    answers = Counter(find_axis_of_made_up(seed, kind, 1.0, 0.05) for seed in range(50))
    assert answers[Axis.UNKNOWN] >= 45


def test_find_axis_reports_the_periods_on_both_axes() -> None:
    answer = find_axis([0, 10, 20, 30, 40, 50, 60], [0, 100, 200, 300, 500, 700, 900])
    assert (answer.axis, answer.period_s, answer.spread_s) == (Axis.SECONDS, 10, 0)
    assert answer.rate_ratio == pytest.approx(2)
    assert answer.reason is None


def test_find_axis_gives_a_reason_when_it_cannot_tell() -> None:
    assert find_axis([1, 2, 3], [1, 2, 3]).reason
    assert find_axis([1, 2, 3, 4, 5, 6], [1, 2, 2, 4, 5, 6]).reason
    scattered = find_axis([0, 1, 9, 10, 30, 31, 60], [0, 9, 10, 60, 61, 99, 100])
    assert scattered.axis is Axis.UNKNOWN
    assert scattered.reason
