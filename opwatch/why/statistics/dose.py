"""Test whether a larger amount of a witness comes with slower requests. Pure."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from operator import mul

MIN_PAIRS = 5
_ROUNDS = 999
_SEED = 20_261_129


@dataclass(frozen=True, slots=True)
class Dose:
    """How strongly an effect grows with the amount of a witness.

    `correlation` is Spearman's, `p` the probability of at least that by chance; both are None for `reason`.
    """

    pairs: int
    correlation: float | None
    p: float | None
    reason: str | None = None


def measure_dose(effects: Sequence[float], amounts: Sequence[float]) -> Dose:
    """Return how the effects grow with the amounts; each pair is of an episode, in time order.

    Blocks of neighbours are permuted together, because neighbouring episodes are alike.
    """
    count = len(effects)
    if count != len(amounts):
        raise ValueError(f"{count} effects, but {len(amounts)} amounts")
    if count < MIN_PAIRS:
        return Dose(count, None, None, f"only {count} episodes ({MIN_PAIRS} needed)")
    ranks, others = _rank(effects), _rank(amounts)
    norm = math.sqrt(sum(map(mul, ranks, ranks)) * sum(map(mul, others, others)))
    if not norm:
        return Dose(count, None, None, "all episodes are alike")
    correlation = sum(map(mul, ranks, others)) / norm
    chance, exceeded = random.Random(_SEED), 0
    for _ in range(_ROUNDS):
        permuted = _permute_blocks(others, chance)
        # Rounding must not hide a permutation that changes nothing.
        exceeded += sum(map(mul, ranks, permuted)) / norm >= correlation - 1e-9
    return Dose(count, correlation, (exceeded + 1) / (_ROUNDS + 1))


def _rank(values: Sequence[float]) -> list[float]:
    """Return the ranks minus their mean; equal values share the mean of their ranks."""
    order = sorted(range(len(values)), key=values.__getitem__)
    ranks, begin = [0.0] * len(values), 0
    while begin < len(order):
        end = begin
        while end < len(order) and values[order[end]] == values[order[begin]]:
            end += 1
        for place in order[begin:end]:
            ranks[place] = (begin + end - len(values)) / 2
        begin = end
    return ranks


def _permute_blocks(values: Sequence[float], chance: random.Random) -> list[float]:
    """Return the values in blocks of about the cube root of their number, in random order from a random
    start."""
    count = len(values)
    length = round(count ** (1 / 3)) if count >= 3 * MIN_PAIRS else 1
    start = chance.randrange(count)
    turned = [*values[start:], *values[:start]]
    blocks = [turned[at : at + length] for at in range(0, count, length)]
    chance.shuffle(blocks)
    return [value for block in blocks for value in block]
