"""Find the bursts of a series: runs of values far above its usual level. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median

_MAD = 1.4826
# A burst exceeds the median by this many standard deviations and by this share of the median.
_MIN_DEVIATIONS, _MIN_RISE = 5.0, 0.25


def flag_bursts(values: Sequence[float]) -> list[bool]:
    """Return which values are far above the usual level. Above a usual level of 0, all others are."""
    if not values:
        return []
    usual = median(values)
    spread = _MAD * median(abs(value - usual) for value in values)
    limit = usual + max(_MIN_DEVIATIONS * spread, _MIN_RISE * abs(usual))
    return [value > limit for value in values]


def flag_largest(values: Sequence[float], count: int) -> list[bool]:
    """Return which values are among the `count` largest, and those that are equal to the least of them."""
    if not 0 < count <= len(values):
        return [False] * len(values)
    least = sorted(values)[-count]
    return [value >= least for value in values]


def list_runs(flags: Sequence[bool]) -> list[tuple[int, int]]:
    """Return [begin, end) of each run of True."""
    edges = [place for place, (one, other) in enumerate(pairwise((False, *flags, False))) if one != other]
    return list(zip(edges[::2], edges[1::2], strict=True))
