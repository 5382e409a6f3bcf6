"""Whether a level goes up and down again and again in the same time. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import median

from opwatch.compare.blocks import autocorrelations
from opwatch.frozen import frozen

LEAST_PERIODS = 4
_LEAST_LENGTH = 3
# A likeness that chance makes of a series of n values is about 1 / sqrt(n); of many that are looked at, the
# largest may be a few times that.
_CHANCE_LIMIT = 4.5
_LEAST_LIKENESS = 0.25


@frozen
class Period:
    """A course repeats itself after so many intervals: `likeness` is the correlation with itself one period
    later, from 0 to 1, beyond what neighbours have in common."""

    intervals: int
    likeness: float
    limit: float


def _without_likeness(values: Sequence[float]) -> list[float]:
    """What each value has that the one before does not explain: neighbours that are alike make slow waves of
    nothing but chance, which are no period."""
    share = autocorrelations(values, 1)[1]
    mean = math.fsum(values) / len(values)
    off = [value - mean for value in values]
    return [now - share * before for before, now in pairwise(off)]


def period_of(values: Sequence[float]) -> Period | None:
    """The shortest period of a course; None where there is none that chance would not make."""
    if len(values) < LEAST_PERIODS * _LEAST_LENGTH * 2:
        return None
    rest = _without_likeness(values)
    # A few that are far off would outweigh all others.
    ordered = sorted(rest)
    low, high = (ordered[round(share * (len(rest) - 1))] for share in (0.02, 0.98))
    rest = [min(max(value, low), high) for value in rest]
    longest = len(rest) // LEAST_PERIODS
    like = autocorrelations(rest, 2 * longest + 2)
    # What all lags have in common is a trend.
    trend = max(median(like[_LEAST_LENGTH:]), 0.0)
    like = [one - trend for one in like]
    limit = max(_CHANCE_LIMIT / math.sqrt(len(rest)), _LEAST_LIKENESS)
    for lag in range(_LEAST_LENGTH, longest + 1):
        is_peak = like[lag] >= max(like[lag - 1], like[lag + 1])
        # Once more after twice the time, which a single coincidence does not do.
        again = max(like[2 * lag - 1 : 2 * lag + 2])
        # A peak without troughs on both sides is noise on a slow wave, which is alike after any short time.
        # What neighbours explain is already gone, which lowers the likeness after one interval.
        trough = max(min(like[2:lag]), min(like[lag + 1 : 2 * lag]))
        trough = max(trough, 0.0)
        if is_peak and like[lag] - trough >= limit and again - trough >= limit / 2:
            return Period(lag, like[lag], limit)
    return None
