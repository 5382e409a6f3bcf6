"""Write amplification in steady state, from theory: what the simulated drive is tested against.

`alpha` is T/U: physical capacity that may hold data over user capacity that is mapped. Reserve,
open superblocks and bad blocks are not part of T.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence


def alpha_from_physical_share(spare_ratio: float) -> float:
    """T/U when over-provisioning means (T-U)/T."""
    return 1.0 / (1.0 - spare_ratio)


def alpha_from_user_share(spare_ratio: float) -> float:
    """T/U when over-provisioning means (T-U)/U."""
    return 1.0 + spare_ratio


def random_victim(alpha: float) -> float:
    """A victim is as full as the drive is on average."""
    return alpha / (alpha - 1.0)


def fifo(alpha: float) -> float:
    """Uniform writes, oldest first (Desnoyers; Xiang and Kurkoski): A = 1 / (1 - e^(-alpha/A))."""
    return fifo_mixture(alpha, [(1.0, 1.0)])


def fifo_mixture(alpha: float, parts: Sequence[tuple[float, float]]) -> float:
    """Oldest first, with parts of (share of space, share of writes); writes 0 is static data.

    A superblock lives for alpha/A drive writes, in which a page of part k survives with probability
    e^(-(r/f) * alpha/A); what survives is written once more.
    """

    def surplus(amplification: float) -> float:
        life = alpha / amplification
        total = 0.0
        for space, writes in parts:
            if writes:
                total += writes / -math.expm1(-writes / space * life)
            else:
                total += space / life
        return total - amplification

    return _root(surplus, 1.0, 1e5)


def greedy(alpha: float, superblock_pages: int) -> float:
    """Uniform writes, fewest valid pages first, in the mean-field limit of many superblocks.

    Victims hold `level` or `level` - 1 valid pages. Above `level`, a superblock loses pages at a
    rate proportional to how many it holds, so it spends 1/i of its life at i.
    """
    harmonic = 0.0
    for level in range(superblock_pages, 0, -1):
        rate = superblock_pages / (alpha * level) - 1.0
        if abs(rate) > 1e-12:
            excess = superblock_pages - level - superblock_pages * harmonic / alpha
            share = excess / rate
            if level < superblock_pages and -1e-12 <= share <= 1.0 + 1e-12:
                return superblock_pages / (superblock_pages - level + share)
        harmonic += 1.0 / level
    return 1.0


def d_choices(alpha: float, superblock_pages: int, choices: int) -> float:
    """Uniform writes, the emptiest of `choices` random superblocks (Van Houdt's mean field)."""

    def tail(rate: float) -> tuple[float, float]:
        """Sums of w(j) and w(j)**choices, w(j) being the share with at least j valid pages."""
        above = valid = chosen = 0.0
        for pages in range(superblock_pages, 0, -1):
            above = _tail_step(above, rate * pages, choices)
            valid += above
            chosen += above**choices
        return valid, chosen

    want = superblock_pages / alpha
    low, high = 1e-9, 1e3
    for _ in range(80):
        middle = math.sqrt(low * high)
        if tail(middle)[0] > want:
            low = middle
        else:
            high = middle
    return superblock_pages / (superblock_pages - tail(math.sqrt(low * high))[1])


def _tail_step(above: float, rate: float, choices: int) -> float:
    """Solve rate * (w - above) = 1 - w**choices for w."""
    share = min(1.0, above + (1.0 - above**choices) / rate)
    for _ in range(50):  # Newton from above on a concave falling function: never oversteps
        slope = choices * share ** (choices - 1) + rate
        step = (1.0 - share**choices - rate * (share - above)) / slope
        share += step
        if abs(step) < 1e-15:
            break
    return share


def mapped_share(trim_ratio: float) -> float:
    """Share of U that stays mapped when a request trims a mapped page with this probability.

    Trims take what random writes to unmapped pages bring: q = (1 - q) * (1 - s).
    """
    return (1.0 - 2.0 * trim_ratio) / (1.0 - trim_ratio)


def greedy_with_static(alpha: float, superblock_pages: int, active_share: float) -> float:
    """Greedy, when only this share of U is written: the rest fills superblocks it never touches."""
    return greedy((alpha - (1.0 - active_share)) / active_share, superblock_pages)


def effective_alpha(amplification: float, model: Callable[[float], float] = fifo) -> float | None:
    """The T/U at which `model` gives this amplification; None where no T/U does."""
    if amplification <= 1.0:
        return None
    return _root(lambda alpha: model(alpha) - amplification, 1.0 + 1e-6, 1e3)


def _root(function: Callable[[float], float], low: float, high: float, steps: int = 200) -> float:
    """Where a function that falls from above 0 to below crosses it."""
    for _ in range(steps):
        middle = (low + high) / 2.0
        if function(middle) > 0.0:
            low = middle
        else:
            high = middle
    return (low + high) / 2.0
