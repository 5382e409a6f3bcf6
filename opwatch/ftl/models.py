"""Models of steady-state write amplification: the reference for tests of the simulated drive.

`alpha` is T/U: physical capacity that may hold data over user capacity that is mapped. Reserve, open
superblocks and bad blocks are not part of T.
"""

from __future__ import annotations

import functools
import itertools
import math
from array import array
from bisect import bisect_left
from collections.abc import Callable, Sequence


def alpha_from_physical_share(spare_ratio: float) -> float:
    """Return T/U for over-provisioning defined as (T-U)/T."""
    return 1.0 / (1.0 - spare_ratio)


def alpha_from_user_share(spare_ratio: float) -> float:
    """Return T/U for over-provisioning defined as (T-U)/U."""
    return 1.0 + spare_ratio


def predict_random(alpha: float) -> float:
    """Return the amplification of uniform writes with random victims, which are as full as the average
    superblock.
    """
    return alpha / (alpha - 1.0)


def predict_fifo(alpha: float) -> float:
    """Return the amplification of uniform writes with FIFO victims: A = 1 / (1 - e^(-alpha/A)).

    Sources: Desnoyers; Xiang and Kurkoski.
    """
    return predict_fifo_mixture(alpha, [(1.0, 1.0)])


def predict_fifo_mixture(alpha: float, parts: Sequence[tuple[float, float]]) -> float:
    """Return the amplification with FIFO victims for parts of (share of space, share of writes).

    A share of writes of 0 means static data. A superblock lives for alpha/A drive writes, in which a page of
    part k survives with probability e^(-(r/f) * alpha/A). Each surviving page is written again.
    """

    def compute_surplus(amplification: float) -> float:
        life = alpha / amplification
        total = 0.0
        for space, writes in parts:
            if writes:
                total += writes / -math.expm1(-writes / space * life)
            else:
                total += space / life
        return total - amplification

    return _find_root(compute_surplus, 1.0, 1e5)


def predict_greedy(alpha: float, superblock_pages: int) -> float:
    """Return the amplification of uniform writes with greedy victims, in the mean-field limit of many
    superblocks.

    Victims hold `level` or `level` - 1 valid pages. Above `level`, a superblock loses pages at a rate
    proportional to its valid count i, so it spends a share proportional to 1/i of its life at i.
    """
    reciprocals = _sum_reciprocals(superblock_pages)

    def compute_share(stale: int) -> tuple[float, float]:
        """Return the excess and the rate, whose ratio is the share of victims with `level` - 1 pages."""
        level = superblock_pages - stale
        return stale - superblock_pages * reciprocals[stale] / alpha, superblock_pages / (alpha * level) - 1.0

    def is_reached(stale: int) -> bool:
        # The rate grows with every stale page, and from where it is positive, the excess falls.
        excess, rate = compute_share(stale)
        return rate > 1e-12 and excess <= rate * (1.0 + 1e-12)

    stales = range(1, superblock_pages)
    at = bisect_left(stales, True, key=is_reached)
    if at == len(stales):
        return 1.0
    excess, rate = compute_share(stales[at])
    share = excess / rate
    # Less flash than user capacity has no equilibrium.
    return superblock_pages / (stales[at] + share) if share >= -1e-12 else 1.0


@functools.lru_cache(8)
def _sum_reciprocals(most: int) -> array[float]:
    """Return the sums of the reciprocals of whole numbers from `most` down: of none, one, two, ..."""
    return array("d", itertools.accumulate((1.0 / number for number in range(most, 0, -1)), initial=0.0))


def predict_d_choices(alpha: float, superblock_pages: int, choices: int) -> float:
    """Return the amplification of uniform writes with the emptiest of `choices` random victims.

    Van Houdt's mean field.
    """

    def sum_tail(rate: float) -> tuple[float, float]:
        """Return the sums of w(j) and w(j)**choices, with w(j) the share of superblocks with at least j valid
        pages.
        """
        above = valid = chosen = 0.0
        for pages in range(superblock_pages, 0, -1):
            above = _solve_tail_step(above, rate * pages, choices)
            valid += above
            chosen += above**choices
        return valid, chosen

    want = superblock_pages / alpha
    low, high = 1e-9, 1e3
    for _ in range(80):
        middle = math.sqrt(low * high)
        if sum_tail(middle)[0] > want:
            low = middle
        else:
            high = middle
    return superblock_pages / (superblock_pages - sum_tail(math.sqrt(low * high))[1])


def _solve_tail_step(above: float, rate: float, choices: int) -> float:
    """Solve rate * (w - above) = 1 - w**choices for w."""
    share = min(1.0, above + (1.0 - above**choices) / rate)
    for _ in range(50):  # Newton from above on a concave falling function never overshoots
        slope = choices * share ** (choices - 1) + rate
        step = (1.0 - share**choices - rate * (share - above)) / slope
        share += step
        if abs(step) < 1e-15:
            break
    return share


def predict_mapped_share(trim_ratio: float) -> float:
    """Return the share of U that stays mapped if a request trims a mapped page with probability `trim_ratio`.

    In equilibrium, trims unmap as many pages as random writes map: q = (1 - q) * (1 - s).
    """
    return (1.0 - 2.0 * trim_ratio) / (1.0 - trim_ratio)


def predict_greedy_with_static(alpha: float, superblock_pages: int, active_share: float) -> float:
    """Return the greedy amplification if only `active_share` of U is written.

    The static rest fills complete superblocks, which collection never touches.
    """
    return predict_greedy((alpha - (1.0 - active_share)) / active_share, superblock_pages)


def find_effective_alpha(
    amplification: float, model: Callable[[float], float] = predict_fifo
) -> float | None:
    """Return the T/U at which `model` gives this amplification, or None for an amplification up to 1."""
    if amplification <= 1.0:
        return None
    return _find_root(lambda alpha: model(alpha) - amplification, 1.0 + 1e-6, 1e3)


def _find_root(function: Callable[[float], float], low: float, high: float, steps: int = 200) -> float:
    """Find the root of a falling function in (low, high) by bisection, down to neighbouring numbers."""
    for _ in range(steps):
        middle = (low + high) / 2.0
        if not low < middle < high:
            break
        if function(middle) > 0.0:
            low = middle
        else:
            high = middle
    return (low + high) / 2.0
