"""How much a figure would scatter, had the run gone otherwise: what it is of intervals drawn anew.

Intervals are drawn in blocks of neighbours (the stationary bootstrap of Politis and Romano, 1994: lengths
are geometric around a mean, and the end is followed by the begin), so that what lasts for seconds stays
whole.
The same series gives the same scatter, always: the seed is fixed.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from functools import lru_cache

ROUNDS = 200
_SEED = 20_040_101
# A figure that cannot be made of more of the drawings than this has no scatter that could be relied on.
_LEAST_SHARE = 0.9

Weights = tuple[int, ...]


@lru_cache(maxsize=16)
def drawings(count: int, length: int) -> tuple[Weights, ...]:
    """How often each of `count` intervals is in each of the runs that are drawn."""
    chance = random.Random(_SEED)
    drawn = []
    for _ in range(ROUNDS):
        weights = [0] * count
        left = count
        while left:
            at = chance.randrange(count)
            block = min(left, 1 if length == 1 else _geometric(chance, length))
            left -= block
            for place in range(at, at + block):
                weights[place % count] += 1
        drawn.append(tuple(weights))
    return tuple(drawn)


def _geometric(chance: random.Random, mean: int) -> int:
    return 1 + int(math.log(1 - chance.random()) / math.log(1 - 1 / mean))


def scatter(figure: Callable[[Sequence[int]], float | None], count: int, length: int) -> float | None:
    """The standard deviation of the logarithm of a figure; None where it often has no value."""
    values = [figure(weights) for weights in drawings(count, length)]
    logs = [math.log(value) for value in values if value is not None and value > 0]
    if len(logs) < _LEAST_SHARE * ROUNDS:
        return None
    mean = math.fsum(logs) / len(logs)
    variance = math.fsum((value - mean) ** 2 for value in logs) / (len(logs) - 1)
    # Drawings are centred on the mean of the series, not on the truth; with few blocks that counts.
    blocks = count / length
    return math.sqrt(variance * blocks / (blocks - 1))
