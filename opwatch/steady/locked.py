"""Detect cycles that rounds repeat at the same few phases, and bound the error of their mean. Pure.

A cycle of four rounds measures the same four phases each time, and its parts of four rounds have equal means.
Neither shows how long the fast phase really is, because the pauses between rounds may keep a cycle in step.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Sequence

# Relative change between neighbouring rounds, from which a cycle matters.
_LEAST_JUMP = 0.02
# Share of the largest earlier difference at which a series counts as repeating itself.
_REPEATED = 0.35
# Distances whose differences exceed the least one by this factor are alike.
_ALIKE, _ROUNDING = 1.5, 1e-9
_MOST_LAG, _LEAST_PAIRS = 200, 4


def measure_locked_cycle(values: Sequence[float]) -> float:
    """Return the error of the mean, as a share, that a cycle of few rounds may hide; 0 without such a cycle.

    A series that repeats after k rounds has k phases, and the largest change between two neighbouring phases
    may happen anywhere between them: the error is this change / k.
    """
    count = len(values)
    mean = sum(values) / max(count, 1)
    if count < 2 + _LEAST_PAIRS or not mean:
        return 0.0
    jump = max(abs(values[at] - values[at - 1]) for at in range(1, count)) / abs(mean)
    if jump <= _LEAST_JUMP:
        return 0.0
    phases = _count_phases(values)
    return jump / phases if phases else 0.0


def _count_phases(values: Sequence[float]) -> int | None:
    """Return after how many rounds the series repeats itself, or None if it does not."""
    count, mean = len(values), sum(values) / len(values)
    most = min(count // 2, count - _LEAST_PAIRS, _MOST_LAG)
    centred = [value - mean for value in values]
    squares = list(itertools.accumulate((value * value for value in centred), initial=0.0))
    # The mean squared difference at each distance, from sums that need no loop in Python.
    differences = [
        max(
            squares[-1]
            - squares[lag]
            + squares[count - lag]
            - 2 * sum(map(operator.mul, centred, centred[lag:])),
            0.0,
        )
        / (count - lag)
        for lag in range(1, most + 1)
    ]
    repeats: list[tuple[int, float]] = []
    largest = 0.0
    for lag, difference in enumerate(differences, 1):
        if difference < _REPEATED * largest:
            repeats.append((lag, difference))
        largest = max(largest, difference)
    if not repeats:
        return None
    least = min(difference for _, difference in repeats)
    # Differences of an exact repetition are no more than rounding errors.
    alike = _ALIKE * least + _ROUNDING * largest
    return next(lag for lag, difference in repeats if difference <= alike)
