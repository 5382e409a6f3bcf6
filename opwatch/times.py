"""Parse and format durations, in the same form for every command: 90, 90s, 10m, 1.5h, 200ms."""

from __future__ import annotations

import re

from opwatch.errors import UsageError

_UNITS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_TIME = r"([0-9]{1,12}(?:\.[0-9]{1,12})?)(ms|s|m|h|d|)"
TIME_EXAMPLES = "90s, 10m, 1.5h"


def parse_time(text: str) -> float:
    """Return a duration in seconds."""
    read = re.fullmatch(_TIME, text.strip(), re.ASCII)
    if not read:
        raise UsageError(f"{text!r} is not a valid duration (e.g. {TIME_EXAMPLES})")
    return float(read[1]) * _UNITS[read[2]]


def format_duration(seconds: float) -> str:
    """Format a duration in the largest unit that gives a whole number."""
    for unit in ("d", "h", "m", "s"):
        if seconds >= _UNITS[unit] and not seconds % _UNITS[unit]:
            return f"{seconds / _UNITS[unit]:.0f}{unit}"
    value, unit = (seconds * 1000, "ms") if seconds < 1 else (seconds, "s")
    return f"{value:.6f}".rstrip("0").rstrip(".") + unit


def format_estimate(seconds: float) -> str:
    """Format an estimated duration."""
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.0f} s"
