"""Detect a periodic variation of a level. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from opwatch.compare.blocks import compute_autocorrelations
from opwatch.compare.spacing import Spacing, find_spacing

MIN_PERIODS = 4
_MIN_LENGTH = 3
# Random series of n values have autocorrelations of about 1 / sqrt(n); the largest over many lags may be a
# few times that.
_CHANCE_LIMIT = 4.5
_MIN_CORRELATION = 0.25
# A pulse exceeds the median by this many standard deviations, which are estimated from the median deviation.
_MIN_PULSE = 2.5
_MAD = 1.4826


@dataclass(frozen=True, slots=True)
class Period:
    """A timeline repeats after `intervals`, by its autocorrelation at that lag or by the spacing of short
    pulses.

    `likeness` is the autocorrelation, from 0 to 1, after removal of the correlation between neighbours, and
    `limit` its maximum by chance; both are None if `pulses` are what repeats.
    """

    intervals: int
    likeness: float | None = None
    limit: float | None = None
    pulses: Spacing | None = None


def _remove_autocorrelation(values: Sequence[float]) -> list[float]:
    """Return each value minus the part that the previous value explains.

    Correlated neighbours produce slow random waves, which are not periods.
    """
    share = compute_autocorrelations(values, 1)[1]
    mean = math.fsum(values) / len(values)
    off = [value - mean for value in values]
    return [now - share * before for before, now in pairwise(off)]


def find_period(values: Sequence[float]) -> Period | None:
    """Return the shortest repetition of a timeline or the period of its pulses, or None if neither is beyond
    chance."""
    if len(values) < MIN_PERIODS * _MIN_LENGTH * 2:
        return None
    rest = _remove_autocorrelation(values)
    return _find_repetition(rest) or _find_pulses(rest)


def _find_repetition(rest: Sequence[float]) -> Period | None:
    """Return the shortest lag after which the whole timeline repeats, or None."""
    # Clip outliers, because a few would outweigh all other values.
    ordered = sorted(rest)
    low, high = (ordered[round(share * (len(rest) - 1))] for share in (0.02, 0.98))
    rest = [min(max(value, low), high) for value in rest]
    longest = len(rest) // MIN_PERIODS
    like = compute_autocorrelations(rest, 2 * longest + 2)
    # A correlation common to all lags is a trend.
    trend = max(median(like[_MIN_LENGTH:]), 0.0)
    like = [one - trend for one in like]
    limit = max(_CHANCE_LIMIT / math.sqrt(len(rest)), _MIN_CORRELATION)
    for lag in range(_MIN_LENGTH, longest + 1):
        is_peak = like[lag] >= max(like[lag - 1], like[lag + 1])
        # A true period correlates again at twice the lag; a coincidence does not.
        again = max(like[2 * lag - 1 : 2 * lag + 2])
        # A peak without troughs on both sides is noise on a slow wave, which is alike after any short time.
        # What neighbours explain is already gone, which lowers the likeness after one interval.
        trough = max(min(like[2:lag]), min(like[lag + 1 : 2 * lag]))
        trough = max(trough, 0.0)
        if is_peak and like[lag] - trough >= limit and again - trough >= limit / 2:
            return Period(lag, like[lag], limit)
    return None


def _find_pulses(rest: Sequence[float]) -> Period | None:
    """Return the period of short peaks or dips, or None.

    Their autocorrelation is small, because they take a small part of the time.
    """
    # A pulse may fall on two intervals.
    pairs = [one + other for one, other in pairwise(rest)]
    found = (_find_peak_spacing(values, sign) for values in (rest, pairs) for sign in (1, -1))
    best = min((one for one in found if one), key=lambda one: one.p, default=None)
    return Period(round(best.period), pulses=best) if best else None


def _find_peak_spacing(values: Sequence[float], sign: int) -> Spacing | None:
    """Return the spacing of the values far above the others, or far below for a negative sign."""
    centre = median(values)
    limit = _MIN_PULSE * _MAD * median(abs(value - centre) for value in values)
    high = [sign * (value - centre) > limit for value in values]
    starts = [place for place, (before, now) in enumerate(pairwise((False, *high))) if now and not before]
    return find_spacing(starts, 0, len(values), 1)
