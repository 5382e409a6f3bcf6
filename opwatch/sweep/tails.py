"""The error of percentiles by chance, from the parts of a window. Pure.

Latencies that follow each other are alike, because garbage collection comes in bursts. The error is therefore
that of a jackknife over long parts, and not of single requests.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from opwatch.compare.student import find_critical_value

MAX_PARTS = 10
_CHANCE = 0.05
_T = TypeVar("_T")


def estimate_percentile_errors(
    parts: Sequence[_T], find_percentiles: Callable[[Sequence[_T]], Mapping[str, float]]
) -> dict[str, float]:
    """Return the errors of percentiles at 95 % as shares of their values.

    `find_percentiles` returns the percentiles of several parts together. A percentile that is unknown without
    one of the parts has no error.
    """
    count = len(parts)
    if count < 2:
        return {}
    whole = find_percentiles(parts)
    others = [find_percentiles([*parts[:place], *parts[place + 1 :]]) for place in range(count)]
    errors = {}
    for name, value in whole.items():
        values = [other[name] for other in others if name in other]
        if len(values) < count or not value:
            continue
        mean = sum(values) / count
        variance = (count - 1) / count * sum((one - mean) ** 2 for one in values)
        errors[name] = find_critical_value(_CHANCE, count - 1) * math.sqrt(variance) / value
    return errors


def split_parts(items: Sequence[_T]) -> list[Sequence[_T]]:
    """Return neighbouring items in at most MAX_PARTS parts of about equal length."""
    count = min(MAX_PARTS, len(items))
    return [items[place * len(items) // count : (place + 1) * len(items) // count] for place in range(count)]
