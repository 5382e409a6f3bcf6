"""Estimate the variation of a metric between possible runs by resampling intervals.

Intervals are drawn in blocks of neighbours (the stationary bootstrap of Politis and Romano, 1994: block
lengths are geometric around a mean, and the series wraps around), so that correlations of several seconds are
preserved. The seed is fixed, so the same series always gives the same result.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from functools import lru_cache

ROUNDS = 200
_SEED = 20_040_101
# Minimum share of resamples in which the metric must be defined for a reliable estimate.
_MIN_SHARE = 0.9

Weights = tuple[int, ...]


@lru_cache(maxsize=16)
def draw_resamples(count: int, length: int) -> tuple[Weights, ...]:
    """Return, for each resampled run, how often each of the `count` intervals occurs."""
    chance = random.Random(_SEED)
    drawn = []
    for _ in range(ROUNDS):
        weights = [0] * count
        left = count
        while left:
            at = chance.randrange(count)
            block = min(left, 1 if length == 1 else _draw_geometric(chance, length))
            left -= block
            for place in range(at, at + block):
                weights[place % count] += 1
        drawn.append(tuple(weights))
    return tuple(drawn)


def _draw_geometric(chance: random.Random, mean: int) -> int:
    return 1 + int(math.log(1 - chance.random()) / math.log(1 - 1 / mean))


def estimate_log_deviation(
    figure: Callable[[Sequence[int]], float | None], count: int, length: int
) -> float | None:
    """Return the standard deviation of the metric's logarithm, or None if too many resamples have no
    value."""
    values = [figure(weights) for weights in draw_resamples(count, length)]
    logs = [math.log(value) for value in values if value is not None and value > 0]
    if len(logs) < _MIN_SHARE * ROUNDS:
        return None
    mean = math.fsum(logs) / len(logs)
    variance = math.fsum((value - mean) ** 2 for value in logs) / (len(logs) - 1)
    # Resamples are centred on the mean of the series, not on the true mean, which matters with few blocks.
    blocks = count / length
    return math.sqrt(variance * blocks / (blocks - 1))
