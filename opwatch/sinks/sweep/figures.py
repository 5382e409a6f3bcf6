"""Figures of a sweep as text: with errors, and in units for people."""

from __future__ import annotations

from opwatch import units
from opwatch.steady.expect import SteadyExpectation
from opwatch.sweep.ranges import ValueRange
from opwatch.times import format_estimate

_DAYS = 365.25


def format_number(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)


def format_percent(ratio: float | None) -> str:
    return "-" if ratio is None else f"{units.format_plain(100 * ratio)} %"


def format_waf(waf: float | None, error: float | None) -> str:
    if waf is None or error is None:
        return format_number(waf, "{:.3f}")
    return units.format_with_error(waf, error)


def format_count(value: ValueRange | None) -> str:
    """Return a whole number with its error: 60,094 ± 120."""
    if value is None:
        return "-"
    return f"{value.value:,.0f} ± {value.error:,.0f}" if value.error >= 0.5 else f"{value.value:,.0f}"


def format_latency_range(value: ValueRange | None) -> str:
    """Return a latency with its error in the same unit: 18.9 ms ± 2 %."""
    if value is None:
        return "-"
    text = units.format_ns(value.value)
    return f"{text} ± {units.format_plain(100 * value.error_ratio)} %"


def format_life(years: float | None) -> str:
    """Return years as text, or days if it is less than a year."""
    if years is None:
        return "-"
    return f"{years:.1f} y" if abs(years) >= 1 else f"{_DAYS * years:.0f} d"


def format_life_range(years: ValueRange | None) -> str:
    """Return a life with its error, in years or days: 3.1 ± 0.1 y."""
    if years is None:
        return "-"
    factor, unit = (1.0, "y") if abs(years.value) >= 1 else (_DAYS, "d")
    value, error = years.value * factor, years.error * factor
    digits = 0 if unit == "d" or value >= 100 else 1 if value >= 10 else 2
    shown = f"{value:.{digits}f}"
    return f"{shown} ± {error:.{digits}f} {unit}" if round(error, digits) else f"{shown} {unit}"


def format_gain(ratio: float | None) -> str:
    return "-" if ratio is None else f"{100 * ratio:+.2f} %"


def format_growth(ratio: float | None) -> str:
    return "-" if ratio is None else f"{100 * (ratio - 1):+.1f} %"


def format_growth_range(ratio: ValueRange | None) -> str:
    """Return a ratio as growth with its error: +85 ± 1 %, -3.8 ± 0.2 %."""
    if ratio is None:
        return "-"
    value, error = 100 * (ratio.value - 1), 100 * ratio.error
    digits = 1 if abs(value) < 99.95 else 0
    shown = f"{value:+.{digits}f}"
    return f"{shown} ± {error:.{digits}f} %" if round(error, digits) else f"{shown} %"


def format_expectation(expected: SteadyExpectation) -> str:
    """Return in words where a level will settle, and after how many more drive writes."""
    figures = []
    if expected.waf is not None:
        figures.append(f"WAF {units.format_with_error(expected.waf, expected.waf_error or 0.0)}")
    if expected.iops is not None:
        figures.append(f"{expected.iops:.0f} ± {expected.iops_error or 0.0:.0f} IOPS")
    what = f"expected {' and '.join(figures)}" if figures else "its settled figures cannot be predicted"
    if expected.drive_writes is None:
        return f"{what}; whether and when it settles cannot be predicted"
    time = "" if expected.seconds is None else f" ({format_estimate(expected.seconds)})"
    needed = f"about {units.format_plain(expected.drive_writes)} more drive writes{time}"
    return f"{what} after {needed}" if figures else f"a proof needs {needed}; {what}"
