"""Noise with correlated neighbours, and pulses at known times."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence


def draw_ar1(chance: random.Random, count: int, share: float) -> list[float]:
    """Return normal noise of variance 1 with this correlation between neighbours."""
    value, values = chance.gauss(0, 1), list[float]()
    for _ in range(count):
        values.append(value)
        value = share * value + math.sqrt(1 - share**2) * chance.gauss(0, 1)
    return values


def add_pulses(
    values: Sequence[float], *, first: float, every: float, length: float, height: float
) -> list[float]:
    """Return the values with a pulse at each multiple of `every`; a pulse between two places is shared."""
    made = list(values)
    for number in range(math.ceil((len(values) - first) / every)):
        begin = first + number * every
        for place in range(int(begin), min(math.ceil(begin + length), len(values))):
            made[place] += height * (min(place + 1, begin + length) - max(place, begin))
    return made
