"""Axes: where a value lies between the ends of a plot, and which values are named beside it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from opwatch.frozen import frozen

# A plot is so many units wide and high: whole numbers are short, and finer than any screen.
EXTENT = 10_000
_MOST_TICKS = 6
_MOST_NINES = 3.5
_LEAST_APART = 0.2
_BYTES = {10**3: "kB", 10**6: "MB", 10**9: "GB", 10**12: "TB", 10**15: "PB"}
_TIMES_S = (
    *(0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14_400, 21_600, 43_200),
    *(86_400, 172_800, 432_000, 864_000),
)


@frozen
class AxisScale:
    """A way from values to places. `ticks` are the values that are named, each with its name."""

    place: Callable[[float], float]
    ticks: tuple[tuple[float, str], ...]

    def at(self, value: float) -> int:
        """The place of a value from 0 to EXTENT; what lies beyond an end stands at that end."""
        return round(EXTENT * min(max(self.place(value), 0.0), 1.0))


def _step(span: float, most: int) -> float:
    """A round step of which no more than so many fit into a span."""
    rough = span / most
    power = 10.0 ** math.floor(math.log10(rough))
    return next(step for factor in (1, 2, 5, 10) if (step := factor * power) >= rough * (1 - 1e-9))


def linear(high: float, unit: str = "", low: float = 0.0, most: int = _MOST_TICKS) -> AxisScale:
    """An axis from `low` or less to a round value of `high` or more, with names as fine as their step."""
    span = high - low if high > low else 1.0
    step = _step(span, most - 1)
    first = math.floor(low / step + 1e-9)
    last = max(math.ceil((low + span) / step - 1e-9), first + 1)
    bottom, width = first * step, (last - first) * step
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    ticks = tuple((number * step, f"{number * step:,.{digits}f}{unit}") for number in range(first, last + 1))
    return AxisScale(lambda value: (value - bottom) / width, ticks)


def capacities(high: float) -> AxisScale:
    """An axis from 0 to a round number of bytes."""
    unit = max((power for power in _BYTES if high >= power), default=1)
    plain = linear(high / unit, f" {_BYTES[unit]}" if unit > 1 else " B", most=5)
    ticks = tuple((value * unit, name if value else "0") for value, name in plain.ticks)
    return AxisScale(lambda value: plain.place(value / unit), ticks)


def logarithmic(low: float, high: float, show: Callable[[float], str]) -> AxisScale:
    """An axis from one value above 0 to another, with the powers of ten in between."""
    low, high = max(low, 1e-9), max(high, low * 2, 2e-9)
    bottom, width = math.log10(low), math.log10(high) - math.log10(low)
    first, last = math.ceil(bottom - 1e-9), math.floor(bottom + width + 1e-9)
    every = -(-(last - first + 1) // _MOST_TICKS) or 1
    values = [10.0**power for power in range(first, last + 1, every)]
    for factors in ((1, 2, 5), (1, 1.5, 2, 3, 4, 5, 6, 8)):
        if len(values) < 3:
            finer = [factor * 10.0**power for power in range(first - 1, last + 1) for factor in factors]
            values = [value for value in finer if low * (1 - 1e-9) <= value <= high * (1 + 1e-9)]

    def place(value: float) -> float:
        return (math.log10(max(value, 1e-12)) - bottom) / width

    return AxisScale(place, tuple((value, show(value)) for value in _apart(values, place)))


def _apart(values: Sequence[float], place: Callable[[float], float]) -> list[float]:
    """The values that have room for their names beside each other on a narrow screen."""
    kept = list[float]()
    for value in values:
        if not kept or place(value) - place(kept[-1]) >= _LEAST_APART:
            kept.append(value)
    return kept


def nines(most: float) -> AxisScale:
    """Shares of 1, spread so that each nine takes the same room: up to 1 - 1 / most."""
    high = max(math.log10(max(most, 1.0)), 2.0)
    names = ["0 %", "90 %", "99 %", *(f"99.{'9' * count} %" for count in range(1, 12))]
    whole = tuple((1 - 10.0**-power, names[power]) for power in range(min(int(high) + 1, len(names))))
    # Beside many nines there is no room for the half.
    half = ((0.5, "50 %"),) if high < _MOST_NINES else ()
    ticks = (whole[0], *half, *whole[1:])
    return AxisScale(lambda share: -math.log10(max(1 - share, 10.0**-high)) / high, ticks)


def elapsed(seconds: float) -> AxisScale:
    """Time since the begin."""
    seconds = max(seconds, 1e-3)
    step = next((one for one in _TIMES_S if seconds / one <= _MOST_TICKS - 1), _TIMES_S[-1])
    count = math.floor(seconds / step + 1e-9)
    ticks = tuple((number * step, _time(number * step, step)) for number in range(count + 1))
    return AxisScale(lambda value: value / seconds, ticks)


def _time(seconds: float, step: float) -> str:
    if not seconds:
        return "0"
    for unit, name in ((86_400, "d"), (3600, "h"), (60, "min")):
        if step >= unit:
            return f"{seconds / unit:g} {name}"
    if seconds >= 120 and step >= 10:
        return f"{int(seconds // 60)}:{int(seconds % 60):02} min"
    return f"{seconds:g} s"
