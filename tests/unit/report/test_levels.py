"""Changes in generated series with known levels are found, and noise has none."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable

import pytest

from opwatch.report.changes import WAF, MetricChanges
from opwatch.report.levels import MAX_STEPS, LevelSeries, find_levels
from opwatch.report.pauses import find_pauses
from opwatch.report.periods import find_period
from opwatch.sinks.report.change_text import format_usual_range

S = 10**9
Noise = Callable[[random.Random, int], list[float]]


def make_series(values: list[float]) -> LevelSeries:
    count = len(values)
    return LevelSeries(
        over=values,
        under=[1.0] * count,
        begins_ns=[at * S for at in range(count)],
        ends_ns=[(at + 1) * S for at in range(count)],
    )


def make_noisy_levels(levels: list[tuple[int, float]], spread: float, seed: int = 1) -> list[float]:
    """Return the given seconds at each level."""
    chance = random.Random(seed)
    return [
        max(level * (1 + spread * chance.gauss(0, 1)), 1.0)
        for seconds, level in levels
        for _ in range(seconds)
    ]


def make_white_noise(spread: float) -> Noise:
    return lambda chance, count: [max(1 + spread * chance.gauss(0, 1), 0.01) for _ in range(count)]


def make_correlated_noise(share: float) -> Noise:
    """Noise with this correlation between neighbours."""

    def draw_correlated(chance: random.Random, count: int) -> list[float]:
        off, made = chance.gauss(0, 1), list[float]()
        for _ in range(count):
            made.append(max(1 + 0.3 * off, 0.01))
            off = share * off + math.sqrt(1 - share**2) * chance.gauss(0, 1)
        return made

    return draw_correlated


def draw_noise_with_dips(chance: random.Random, count: int) -> list[float]:
    """Noise with an occasional second near zero."""
    return [math.exp(chance.gauss(0, 0.5)) if chance.random() > 0.03 else 0.01 for _ in range(count)]


@pytest.mark.parametrize("spread", [0.0, 0.02, 0.1, 0.3])
def test_cliff_is_found_at_its_place(spread: float) -> None:
    levels = find_levels(make_series(make_noisy_levels([(50, 1000), (70, 300)], spread)))
    (step,) = levels.steps
    assert abs(step.at_ns - 50 * S) <= 2 * S
    assert step.is_cliff
    low, high = step.difference.low, step.difference.high
    assert low is not None and high is not None
    assert low <= 0.3 <= high
    assert step.before.value == pytest.approx(1000, rel=0.15)


def test_several_steps_and_a_rise_are_found() -> None:
    levels = find_levels(make_series(make_noisy_levels([(40, 1000), (50, 400), (60, 250)], 0.1)))
    assert [round(step.at_ns / S) for step in levels.steps] == [40, 90]
    assert [step.is_cliff for step in levels.steps] == [True, False]
    (step,) = find_levels(make_series(make_noisy_levels([(40, 1000), (50, 1500)], 0.1))).steps
    assert step.after.value > step.before.value
    assert not step.is_cliff


def test_changes_below_a_quarter_are_not_steps() -> None:
    assert find_levels(make_series(make_noisy_levels([(60, 1000), (60, 1150)], 0.02))).steps == ()


@pytest.mark.parametrize(
    ("noise", "most"),
    [
        (make_white_noise(0.1), 0),
        (make_white_noise(0.4), 0),
        (make_correlated_noise(0.5), 1),
        (make_correlated_noise(0.9), 2),
        (draw_noise_with_dips, 0),
    ],
    ids=["white", "wide", "alike", "very alike", "heavy"],
)
def test_noise_has_no_steps_and_no_period(noise: Noise, most: int) -> None:
    """Strongly correlated neighbours form waves that look like levels in a short run."""
    steps = periods = 0
    for seed in range(30):
        values = noise(random.Random(seed), 80)
        steps += bool(find_levels(make_series(values)).steps)
        periods += find_period(values) is not None
    assert steps <= most
    assert periods == 0


def test_fluctuations_are_not_levels() -> None:
    levels = find_levels(make_series(make_noisy_levels([(14, 1000), (14, 100)] * (MAX_STEPS + 1), 0.05)))
    assert levels.steps == ()
    assert levels.reason
    # The number of changes is reported.
    assert int(re.findall(r"\d+", levels.reason)[0]) > MAX_STEPS


def test_rise_is_found_at_its_start() -> None:
    chance = random.Random(2)
    ramp = [1.0] * 20 + [1.5 + 0.08 * at + 0.1 * chance.random() for at in range(30)]
    (step,) = find_levels(make_series(ramp)).steps
    assert (step.at_ns, step.is_beyond, step.before.intervals) == (20 * S, True, 20)
    assert step.difference.low is not None and step.difference.low >= 1.25
    # A step that reverts is not a step.
    assert find_levels(make_series([*ramp, 1.1])).steps == ()


def test_slow_daily_wave_is_not_a_period() -> None:
    chance = random.Random(4)
    wave = [1000 * math.sin(math.pi * (at + 20) / 340) + 15 * chance.gauss(0, 1) for at in range(250)]
    assert find_period(wave) is None
    rising = [100 + 3 * at + 10 * chance.gauss(0, 1) for at in range(250)]
    assert find_period(rising) is None


def test_steady_end_of_a_run_is_found() -> None:
    rest = find_levels(make_series(make_noisy_levels([(60, 1000), (60, 300)], 0.05))).rest
    assert rest and rest.is_steady and rest.level.begin_ns == 60 * S
    falling = [1000 * 0.997**second * (1 + 0.01 * (second % 3)) for second in range(100)]
    rest = find_levels(make_series(falling)).rest
    assert rest is None or rest.is_steady is not True
    rest = find_levels(make_series(make_noisy_levels([(60, 1000)], 0.5))).rest
    assert rest and rest.is_steady is None and rest.reason
    short = find_levels(make_series([1.0] * 23))
    assert short.reason == "only 23 intervals (24 needed)"
    assert "activity" in (find_levels(make_series([0.0] * 50)).reason or "")


@pytest.mark.parametrize(("wave", "noise", "fall"), [(150, 0.02, 1.0), (150, 0.02, 0.6), (120, 0.01, 1.0)])
def test_period_is_none_for_noise_on_a_slow_wave(wave: int, noise: float, fall: float) -> None:
    for seed in range(20):
        chance = random.Random(seed)
        values = [
            (1 + 0.6 * math.sin(at / wave * math.tau)) * (fall if at >= 200 else 1) * chance.gauss(1, noise)
            for at in range(400)
        ]
        assert find_period(values) is None


@pytest.mark.parametrize("length", [4, 8, 12, 20])
def test_period_has_its_true_length(length: int) -> None:
    chance = random.Random(length)
    dips = [(1.0 if at % length < length - 2 else 0.4) * (1 + 0.1 * chance.gauss(0, 1)) for at in range(200)]
    period = find_period(dips)
    assert period and period.intervals == length
    assert find_levels(make_series(dips)).steps == ()
    assert find_period(dips[: 3 * length]) is None


@pytest.mark.parametrize("rate", [0.05, 0.2, 1.0, 5.0])
def test_gaps_of_a_sparse_load_are_not_pauses(rate: float) -> None:
    pauses = 0
    for seed in range(50):
        chance = random.Random(seed)
        values = [float(sum(chance.random() < rate / 20 for _ in range(20))) for _ in range(300)]
        pauses += bool(find_pauses(values, 12))
    assert pauses == 0
    # The regular gaps of a load that works every five seconds are not pauses.
    assert find_pauses([500.0, 0.0, 0.0, 0.0, 0.0] * 60, 12) == []


@pytest.mark.parametrize("days", [1, pytest.param(2, marks=pytest.mark.manual)])
def test_a_fall_on_a_daily_curve_is_named(days: int) -> None:
    def make_daily_curve(seed: int, fall: float) -> list[float]:
        chance = random.Random(seed)
        return [
            1000
            * (1 + 0.6 * math.sin(2 * math.pi * days * at / 360))
            * (1 + 0.05 * chance.gauss(0, 1))
            * (fall if at >= 200 else 1)
            for at in range(360)
        ]

    for seed in range(6):
        sudden = [
            step
            for step in find_levels(make_series(make_daily_curve(seed, 0.6))).steps
            if not step.is_gradual
        ]
        (step,) = sudden
        assert abs(step.at_ns - 200 * S) <= 2 * S
        assert step.difference.ratio == pytest.approx(0.6, abs=0.1)
        assert not step.is_cliff
        assert all(step.is_gradual for step in find_levels(make_series(make_daily_curve(seed, 1.0))).steps)


def test_slow_fall_is_not_a_cliff() -> None:
    chance = random.Random(1)
    values = [
        (1000 - 700 * min(max((at - 40) / 80, 0), 1)) * (1 + 0.05 * chance.gauss(0, 1)) for at in range(160)
    ]
    steps = find_levels(make_series(values)).steps
    assert all(step.is_gradual and not step.is_cliff for step in steps)


def test_quoted_value_is_inside_its_own_range() -> None:
    """One interval with most of the bytes moves the mean, and none of the percentiles."""
    under = [1.0] * 39 + [60.0]
    over = [2.0 + 0.04 * (at % 4) for at in range(39)] + [60.0 * 1.7]
    levels = find_levels(LevelSeries(over, under, list(range(40)), list(range(1, 41))))
    assert levels.rest is not None
    level = levels.rest.level
    assert level.value < level.usual_low
    words = format_usual_range(MetricChanges(WAF, None, None, levels, None, 1.0), level)
    assert words == f"at least 90 % of the intervals {level.value:.2f} to {level.usual_high:.2f}"
