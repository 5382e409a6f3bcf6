"""Axes: the place of a value in a plot, and the labelled values."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

# Width and height of a plot in units: whole numbers are short, and finer than any screen.
EXTENT = 10_000
_MAX_TICKS = 6
_MAX_NINES = 3.5
_MIN_LABEL_DISTANCE = 0.2
_BYTES = {10**3: "kB", 10**6: "MB", 10**9: "GB", 10**12: "TB", 10**15: "PB"}
_TIMES_S = (
    *(0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14_400, 21_600, 43_200),
    *(86_400, 172_800, 432_000, 864_000),
)


@dataclass(frozen=True, slots=True)
class AxisScale:
    """Maps values to places. `ticks` are the labelled values with their labels."""

    place: Callable[[float], float]
    ticks: tuple[tuple[float, str], ...]

    def place_value(self, value: float) -> int:
        """Return the place of a value from 0 to EXTENT. Values outside the axis are placed at its end."""
        return round(EXTENT * min(max(self.place(value), 0.0), 1.0))


def _choose_step(span: float, most: int) -> float:
    """Return a round step that fits into a span at most `most` times."""
    rough = span / most
    power = 10.0 ** math.floor(math.log10(rough))
    return next(step for factor in (1, 2, 5, 10) if (step := factor * power) >= rough * (1 - 1e-9))


def make_linear_axis(high: float, unit: str = "", low: float = 0.0, most: int = _MAX_TICKS) -> AxisScale:
    """Return an axis from at most `low` to a round value of at least `high`, with labels as precise as the
    step."""
    span = high - low if high > low else 1.0
    step = _choose_step(span, most - 1)
    first = math.floor(low / step + 1e-9)
    last = max(math.ceil((low + span) / step - 1e-9), first + 1)
    bottom, width = first * step, (last - first) * step
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    ticks = tuple((number * step, f"{number * step:,.{digits}f}{unit}") for number in range(first, last + 1))
    return AxisScale(lambda value: (value - bottom) / width, ticks)


def make_capacity_axis(high: float) -> AxisScale:
    """Return an axis from 0 to a round number of bytes."""
    unit = max((power for power in _BYTES if high >= power), default=1)
    plain = make_linear_axis(high / unit, f" {_BYTES[unit]}" if unit > 1 else " B", most=5)
    ticks = tuple((value * unit, name if value else "0") for value, name in plain.ticks)
    return AxisScale(lambda value: plain.place(value / unit), ticks)


def make_log_axis(low: float, high: float, show: Callable[[float], str]) -> AxisScale:
    """Return an axis between two values above 0, with labels at powers of ten."""
    low, high = max(low, 1e-9), max(high, low * 2, 2e-9)
    bottom, width = math.log10(low), math.log10(high) - math.log10(low)
    first, last = math.ceil(bottom - 1e-9), math.floor(bottom + width + 1e-9)
    every = -(-(last - first + 1) // _MAX_TICKS) or 1
    values = [10.0**power for power in range(first, last + 1, every)]
    for factors in ((1, 2, 5), (1, 1.5, 2, 3, 4, 5, 6, 8)):
        if len(values) < 3:
            finer = [factor * 10.0**power for power in range(first - 1, last + 1) for factor in factors]
            values = [value for value in finer if low * (1 - 1e-9) <= value <= high * (1 + 1e-9)]

    def place_logarithm(value: float) -> float:
        return (math.log10(max(value, 1e-12)) - bottom) / width

    return AxisScale(
        place_logarithm, tuple((value, show(value)) for value in _separate_labels(values, place_logarithm))
    )


def _separate_labels(values: Sequence[float], place: Callable[[float], float]) -> list[float]:
    """Return the values with labels that fit side by side on a narrow screen."""
    kept = list[float]()
    for value in values:
        if not kept or place(value) - place(kept[-1]) >= _MIN_LABEL_DISTANCE:
            kept.append(value)
    return kept


def make_nines_axis(most: float) -> AxisScale:
    """Return an axis of shares up to 1 - 1 / most, on which each additional nine takes the same space."""
    high = max(math.log10(max(most, 1.0)), 2.0)
    names = ["0 %", "90 %", "99 %", *(f"99.{'9' * count} %" for count in range(1, 12))]
    whole = tuple((1 - 10.0**-power, names[power]) for power in range(min(int(high) + 1, len(names))))
    # With many nines there is no space for the 50 % label.
    half = ((0.5, "50 %"),) if high < _MAX_NINES else ()
    ticks = (whole[0], *half, *whole[1:])
    return AxisScale(lambda share: -math.log10(max(1 - share, 10.0**-high)) / high, ticks)


def make_time_axis(seconds: float) -> AxisScale:
    """Return an axis of the time since the start."""
    seconds = max(seconds, 1e-3)
    step = next((one for one in _TIMES_S if seconds / one <= _MAX_TICKS - 1), _TIMES_S[-1])
    count = math.floor(seconds / step + 1e-9)
    ticks = tuple((number * step, _format_time(number * step, step)) for number in range(count + 1))
    return AxisScale(lambda value: value / seconds, ticks)


def _format_time(seconds: float, step: float) -> str:
    if not seconds:
        return "0"
    for unit, name in ((86_400, "d"), (3600, "h"), (60, "min")):
        if step >= unit:
            return f"{seconds / unit:g} {name}"
    if seconds >= 120 and step >= 10:
        return f"{int(seconds // 60)}:{int(seconds % 60):02} min"
    return f"{seconds:g} s"
