"""Find sudden changes in a timeline that also drifts slowly, such as a daily load curve. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

# Intervals on each side used to fit the trend: a wide fit resists noise, a narrow fit follows a bend.
_WIDTHS = (30, 20, 12)
# Share of the limit that a jump must keep after its largest single contribution is removed.
_MIN_REMAINING_SHARE = 0.8
# Minimum share of a jump that must occur between the intervals directly around the jump.
_ADJACENT, _MIN_SUDDEN_SHARE = 3, 0.5
# A jump must exceed the typical jump of the same timeline by this factor.
_MIN_RATIO = 8.0
_MAD = 1.4826


def _evaluate_line_end(values: Sequence[float], weights: Sequence[float]) -> float:
    return math.fsum(value * weight for value, weight in zip(values, weights, strict=True))


def _compute_end_weights(count: int) -> list[float]:
    """Return weights; the weighted sum of values is the fitted line's value half an interval after the last
    one."""
    middle = (count - 1) / 2
    squares = count * (count * count - 1) / 12
    return [1 / count + (at - middle) * (count / 2) / squares for at in range(count)]


def _measure_jump(before: Sequence[float], after: Sequence[float]) -> float:
    weights = _compute_end_weights(len(before))
    return _evaluate_line_end(after[::-1], weights) - _evaluate_line_end(before, weights)


def _measure_least_jump(before: Sequence[float], after: Sequence[float]) -> float:
    """Return the jump without the single interval that contributes most."""
    sign = math.copysign(1.0, _measure_jump(before, after))
    jumps = [sign * _measure_jump([*before[:at], *before[at + 1 :]], after[:-1]) for at in range(len(before))]
    jumps += [sign * _measure_jump(before[1:], [*after[:at], *after[at + 1 :]]) for at in range(len(after))]
    return sign * max(min(jumps), 0.0)


def find_jumps(logs: Sequence[float], least: float) -> list[tuple[int, float, float]]:
    """Return (place, jump, typical jump size) for every place where lines fitted to both sides differ by
    `least` or more, and by far more than elsewhere."""
    for width in _WIDTHS:
        jumps = _find_jumps_of_width(logs, least, width)
        if jumps:
            return jumps
    return []


def _find_jumps_of_width(logs: Sequence[float], least: float, width: int) -> list[tuple[int, float, float]]:
    if len(logs) < 4 * width:
        return []
    places = range(width, len(logs) - width + 1)
    sizes = [_measure_jump(logs[at - width : at], logs[at : at + width]) for at in places]
    usual = _MAD * median(abs(size) for size in sizes)
    limit = max(least, _MIN_RATIO * usual)
    jumps = list[tuple[int, float, float]]()
    for at, size in sorted(zip(places, sizes, strict=True), key=lambda one: -abs(one[1])):
        if abs(size) < limit:
            break
        before, after = logs[at - width : at], logs[at : at + width]
        is_apart = all(abs(at - other) >= width for other, _, _ in jumps)
        at_once = (math.fsum(after[:_ADJACENT]) - math.fsum(before[-_ADJACENT:])) / _ADJACENT
        if not is_apart or at_once / size < _MIN_SUDDEN_SHARE:
            continue
        if abs(_measure_least_jump(before, after)) >= _MIN_REMAINING_SHARE * limit:
            jumps.append((at, size, usual))
    return sorted(jumps)


def is_gradual(logs: Sequence[float], at: int, begin: int, end: int) -> bool:
    """Return whether a straight line fits the values around `at` better than two levels do."""
    reach = min(_WIDTHS[0], at - begin, end - at)
    before, after = logs[at - reach : at], logs[at : at + reach]
    return _sum_squares_from_line([*before, *after]) < _sum_squares_from_mean(
        before
    ) + _sum_squares_from_mean(after)


def _sum_squares_from_mean(values: Sequence[float]) -> float:
    mean = math.fsum(values) / len(values)
    return math.fsum((value - mean) ** 2 for value in values)


def _sum_squares_from_line(values: Sequence[float]) -> float:
    count = len(values)
    middle = (count - 1) / 2
    squares = count * (count * count - 1) / 12
    slope = math.fsum((at - middle) * value for at, value in enumerate(values)) / squares
    return _sum_squares_from_mean(values) - slope * slope * squares
