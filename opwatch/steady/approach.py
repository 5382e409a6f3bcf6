"""Estimate where a series of measurements settles, and how far its mean may still be from that value. Pure.

The mean of a window may differ from the value in steady state for three reasons: chance, a slow change that
is visible in the window (cycles, throttling, waves), and an approach that has not ended. Each is a share of
the mean, and the printed error contains all three.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Sequence
from typing import NamedTuple

from opwatch.compare.student import find_critical_value

# Numbers of the slowest waves from which the error by chance is estimated, each with the accepted risk. Few
# waves see slow changes, many estimate fast noise well.
_WAVES = ((2, 0.05), (4, 0.02), (8, 0.01))
# Waves that count as a slow change, and the excess over noise (chi squared, 10 %) from which one is visible.
_SLOW_WAVES, _VISIBLE_SUM = 3, 6.25
# A wave of up to four windows may be that many times its visible change away from its mean.
_BEYOND_VISIBLE = 3.0
# Share of all changes that a fit must explain to be the reason for them.
EXPLAINED = 0.8
# Time constants of exponential approaches, and of hyperbolic ones with long tails, as shares of a look-back.
_CONSTANTS = (0.1, 0.2, 0.35, 0.6, 1.0, 1.7, 3.0)
_HYPERBOLIC = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.0)
# Standard errors of a fit that its error contains.
_FIT_ERRORS = 2.5
# Shapes whose squares exceed the best fit's by this share are possible too.
_ALIKE = 1.0
# Improvement of the sum of squares, in variances, from which an approach is visible.
_VISIBLE_FIT = 7.0
_SHAPE_MARGIN = 1.25
_MIN_VALUES = 5


class SettledValue(NamedTuple):
    """The mean of a look-back, and the value that it approaches.

    `chance`, `change` and `approach` are relative errors of the mean, and `deviation` is the relative
    standard deviation of the parts. `expected` is the settled value with its relative error. The best fit of
    an approach explains the share `explained` of all changes, has the time constant `constant` as a share of
    the look-back, the values `fitted`, and settles at `aim`. `drift` is the change from the first half to the
    second.
    """

    mean: float
    chance: float
    change: float
    approach: float
    is_approaching: bool
    expected: float
    expected_error: float
    constant: float
    explained: float = 0.0
    deviation: float = 0.0
    drift: float = 0.0
    aim: float = 0.0
    fitted: tuple[float, ...] = ()

    @property
    def error(self) -> float:
        return max(self.chance + self.change, self.approach)

    @property
    def visible_change(self) -> float:
        """Return the part of the error that is no noise."""
        return max(self.change, self.approach if self.is_approaching else 0.0)

    def fit_end(self, share: float) -> tuple[float, float]:
        """Return the fitted mean of the last `share` of the look-back, and the fitted drift there."""
        end = self.fitted[-max(round(share * len(self.fitted)), 2) :]
        middle = len(end) // 2
        return _average(end), _average(end[middle:]) - _average(end[:middle])


def _average(values: Sequence[float]) -> float:
    return sum(values) / len(values)


class _Shape(NamedTuple):
    """A decay at equally long parts, less its mean; its mean, and the sum of squares."""

    values: tuple[float, ...]
    mean: float
    squares: float
    constant: float
    is_exponential: bool


class _Fit(NamedTuple):
    settled: float
    settled_error: float
    size: float
    squares: float
    shape: _Shape


@functools.lru_cache(256)
def _make_wave(number: int, count: int) -> tuple[float, ...]:
    scale = math.sqrt(2 / count)
    return tuple(scale * math.cos(math.pi * number * (at + 0.5) / count) for at in range(count))


@functools.lru_cache(64)
def _list_shapes(count: int) -> tuple[_Shape, ...]:
    places = [(at + 0.5) / count for at in range(count)]
    exponential = [([math.exp(-place / one) for place in places], one, True) for one in _CONSTANTS]
    hyperbolic = [([1 / (1 + place / one) for place in places], one, False) for one in _HYPERBOLIC]
    shapes = []
    for values, constant, is_exponential in exponential + hyperbolic:
        mean = sum(values) / count
        centred = tuple(value - mean for value in values)
        shapes.append(
            _Shape(centred, mean, sum(value * value for value in centred), constant, is_exponential)
        )
    return tuple(shapes)


def estimate_settled(values: Sequence[float], longest_constant: float) -> SettledValue | None:
    """Return where equally long parts of a look-back settle; None for fewer than five parts.

    An approach with a time constant up to `longest_constant`, as a share of the look-back, counts even if
    noise hides it.
    """
    count = len(values)
    mean = sum(values) / max(count, 1)
    if count < _MIN_VALUES or not mean:
        return None
    parts = [value / mean - 1 for value in values]
    flat = sum(value * value for value in parts)
    fits = [_fit_decay(parts, shape, flat) for shape in _list_shapes(count)]
    best = min(fits, key=lambda fit: fit.squares)
    variance = max(best.squares / (count - 3), 1e-12)
    is_approaching = flat - best.squares > _VISIBLE_FIT * variance
    explained = 1 - best.squares / flat if flat else 0.0
    chance, change = _measure_waves(
        [value - best.size * decay for value, decay in zip(parts, best.shape.values, strict=True)]
        if is_approaching and explained > EXPLAINED
        else parts
    )
    plausible = [
        fit
        for fit in fits
        if fit.squares - best.squares <= max(_FIT_ERRORS**2 * variance, _ALIKE * best.squares)
        and (is_approaching or (fit.shape.is_exponential and fit.shape.constant <= longest_constant))
    ]
    # The shape of a visible approach is not known exactly either.
    margin = _SHAPE_MARGIN if is_approaching else 1.0
    # Without any plausible approach, the mean is where the series settles.
    ends = [
        fit.settled + sign * _FIT_ERRORS * fit.settled_error for fit in plausible for sign in (-1, 1)
    ] or [-chance, chance]
    middle, half = (max(ends) + min(ends)) / 2, (max(ends) - min(ends)) / 2
    return SettledValue(
        mean=mean,
        chance=chance,
        change=change,
        approach=margin * max(abs(end) for end in ends),
        is_approaching=is_approaching,
        expected=mean * (1 + middle),
        expected_error=half / max(1 + middle, 0.01),
        constant=best.shape.constant,
        explained=explained,
        deviation=math.sqrt(flat / count),
        drift=mean * (_average(parts[count // 2 :]) - _average(parts[: count // 2])),
        aim=mean * (1 + best.settled),
        fitted=tuple(mean * (1 + best.size * value) for value in best.shape.values),
    )


def _measure_waves(parts: Sequence[float]) -> tuple[float, float]:
    """Return the errors of the mean by chance and by slow changes, from the slowest waves."""
    count = len(parts)
    powers = [_project(parts, number) ** 2 for number in range(1, min(count, _WAVES[-1][0] + 1))]
    slow = sum(powers[:_SLOW_WAVES])
    noise = max(sum(value * value for value in parts) - slow, 0.0) / (count - 1 - _SLOW_WAVES)
    chance = max(
        find_critical_value(risk, waves) * math.sqrt(sum(powers[:waves]) / waves / count)
        for waves, risk in _WAVES
        if waves < count - 1
    )
    excess = slow - _SLOW_WAVES * noise if slow > _VISIBLE_SUM * noise else 0.0
    return chance, _BEYOND_VISIBLE * 2 * math.sqrt(2 * excess / count)


def _project(parts: Sequence[float], number: int) -> float:
    return math.fsum(map(operator.mul, parts, _make_wave(number, len(parts))))


def _fit_decay(parts: Sequence[float], shape: _Shape, flat: float) -> _Fit:
    """Return the least-squares fit of a settled value plus a decay, relative to the mean of the parts."""
    count = len(parts)
    size = sum(map(operator.mul, parts, shape.values)) / shape.squares
    rest = max(flat - size * size * shape.squares, 0.0)
    variance = rest / (count - 3) if count > 3 else rest
    error = math.sqrt(variance * (1 / count + shape.mean * shape.mean / shape.squares))
    return _Fit(-size * shape.mean, error, size, rest, shape)
