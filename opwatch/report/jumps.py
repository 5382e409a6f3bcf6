"""Find sudden changes in a timeline that also drifts slowly, such as a daily load curve. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

# Intervals on each side used to fit the trend: a wide fit resists noise, a narrow fit follows a bend.
_WIDTHS = (30, 20, 12)
# Share of the limit that a jump must keep after its largest single contribution is removed.
_WITHOUT_ONE = 0.8
# Minimum share of a jump that must occur between the intervals directly around the jump.
_NEXT, _AT_ONCE = 3, 0.5
# A jump must exceed the typical jump of the same timeline by this factor.
_LEAST_TIMES = 8.0
_MAD = 1.4826


def _line_end(values: Sequence[float], weights: Sequence[float]) -> float:
    return math.fsum(value * weight for value, weight in zip(values, weights, strict=True))


def _end_weights(count: int) -> list[float]:
    """Return weights; the weighted sum of values is the fitted line's value half an interval after the last
    one."""
    middle = (count - 1) / 2
    squares = count * (count * count - 1) / 12
    return [1 / count + (at - middle) * (count / 2) / squares for at in range(count)]


def _jump(before: Sequence[float], after: Sequence[float]) -> float:
    weights = _end_weights(len(before))
    return _line_end(after[::-1], weights) - _line_end(before, weights)


def _least_jump(before: Sequence[float], after: Sequence[float]) -> float:
    """Return the jump without the single interval that contributes most."""
    sign = math.copysign(1.0, _jump(before, after))
    jumps = [sign * _jump([*before[:at], *before[at + 1 :]], after[:-1]) for at in range(len(before))]
    jumps += [sign * _jump(before[1:], [*after[:at], *after[at + 1 :]]) for at in range(len(after))]
    return sign * max(min(jumps), 0.0)


def jumps_of(logs: Sequence[float], least: float) -> list[tuple[int, float, float]]:
    """Return (place, jump, typical jump size) for every place where lines fitted to both sides differ by
    `least` or more, and by far more than elsewhere."""
    for width in _WIDTHS:
        jumps = _jumps(logs, least, width)
        if jumps:
            return jumps
    return []


def _jumps(logs: Sequence[float], least: float, width: int) -> list[tuple[int, float, float]]:
    if len(logs) < 4 * width:
        return []
    places = range(width, len(logs) - width + 1)
    sizes = [_jump(logs[at - width : at], logs[at : at + width]) for at in places]
    usual = _MAD * median(abs(size) for size in sizes)
    limit = max(least, _LEAST_TIMES * usual)
    jumps = list[tuple[int, float, float]]()
    for at, size in sorted(zip(places, sizes, strict=True), key=lambda one: -abs(one[1])):
        if abs(size) < limit:
            break
        before, after = logs[at - width : at], logs[at : at + width]
        is_apart = all(abs(at - other) >= width for other, _, _ in jumps)
        at_once = (math.fsum(after[:_NEXT]) - math.fsum(before[-_NEXT:])) / _NEXT
        if not is_apart or at_once / size < _AT_ONCE:
            continue
        if abs(_least_jump(before, after)) >= _WITHOUT_ONE * limit:
            jumps.append((at, size, usual))
    return sorted(jumps)


def is_gradual(logs: Sequence[float], at: int, begin: int, end: int) -> bool:
    """Return whether a straight line fits the values around `at` better than two levels do."""
    reach = min(_WIDTHS[0], at - begin, end - at)
    before, after = logs[at - reach : at], logs[at : at + reach]
    return _around_line([*before, *after]) < _around_mean(before) + _around_mean(after)


def _around_mean(values: Sequence[float]) -> float:
    mean = math.fsum(values) / len(values)
    return math.fsum((value - mean) ** 2 for value in values)


def _around_line(values: Sequence[float]) -> float:
    count = len(values)
    middle = (count - 1) / 2
    squares = count * (count * count - 1) / 12
    slope = math.fsum((at - middle) * value for at, value in enumerate(values)) / squares
    return _around_mean(values) - slope * slope * squares
