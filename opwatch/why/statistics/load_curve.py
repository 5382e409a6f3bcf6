"""Separate slow requests of a loaded device from those of a slow device. Pure.

The time of a request grows with its size and with the number of requests in flight. A curve that is fitted to
the usual intervals says how much of an excess the load and the sizes explain; the rest is the device itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import compress

MIN_BINS = 20
# More in flight than in nearly all usual intervals, by this factor, is beyond the curve.
_MAX_EXTRAPOLATION = 1.2
# Candidate knees are these quantiles of the requests in flight.
_KNEES = 12
# At saturation, the throughput grows less than this share of the requests in flight does.
_SATURATED_GROWTH = 0.2


@dataclass(frozen=True, slots=True)
class LoadBin:
    """One interval: completed requests, their mean device time, mean number in flight, mean size."""

    requests: float
    device_s: float
    in_flight: float
    mean_bytes: float


@dataclass(frozen=True, slots=True)
class LoadCurve:
    """Device time = base + per_byte * size + per_request * max(0, in flight - knee).

    `most_in_flight` is the largest number in flight that the fit saw. `is_saturated`: above the knee, more
    requests in flight only waited longer, so that the curve also holds for more of them.
    """

    base_s: float
    per_byte_s: float
    per_request_s: float
    knee: float
    most_in_flight: float
    is_saturated: bool

    def predict_device_s(self, one: LoadBin) -> float:
        """Return the mean device time that the load of an interval explains."""
        return self.base_s + self.predict_size_s(one) + self.predict_load_s(one)

    def predict_size_s(self, one: LoadBin) -> float:
        """Return the part of the device time due to the size of the requests."""
        return self.per_byte_s * one.mean_bytes

    def predict_load_s(self, one: LoadBin) -> float:
        """Return the part of the device time due to the requests in flight."""
        return self.per_request_s * max(0.0, one.in_flight - self.knee)


@dataclass(frozen=True, slots=True)
class ExcessSplit:
    """The excess of the mean device time in slow intervals, split by size, load and the rest.

    The three parts add up to `excess_s`. If `is_beyond_range`, `load_s` and `rest_s` cannot be separated,
    for `reason`.
    """

    excess_s: float
    size_s: float
    load_s: float
    rest_s: float
    is_beyond_range: bool = False
    reason: str | None = None


def fit_load_curve(bins: Sequence[LoadBin], slow: Sequence[bool]) -> LoadCurve | str:
    """Return the curve of the intervals that are not slow, or the reason why there is none."""
    usual = [one for one, is_slow in zip(bins, slow, strict=True) if not is_slow and one.requests > 0]
    if len(usual) < MIN_BINS:
        return f"only {len(usual)} intervals are not slow ({MIN_BINS} needed)"
    loads = sorted(one.in_flight for one in usual)
    knees = sorted({loads[place * (len(loads) - 1) // _KNEES] for place in range(_KNEES)} | {0.0})
    _, best = min((_fit(usual, knee) for knee in knees), key=lambda one: (one[0], one[1].knee))
    return replace(best, most_in_flight=loads[-1], is_saturated=_is_saturated(usual, best))


def split_excess(curve: LoadCurve, bins: Sequence[LoadBin], slow: Sequence[bool]) -> ExcessSplit:
    """Return how much of the excess of the slow intervals their sizes and their load explain."""
    slow_bins = [one for one in compress(bins, slow) if one.requests > 0]
    usual = [one for one, is_slow in zip(bins, slow, strict=True) if not is_slow and one.requests > 0]
    if not slow_bins or not usual:
        return ExcessSplit(0.0, 0.0, 0.0, 0.0, reason="no requests in slow or in usual intervals")

    def compare(times: Sequence[float], others: Sequence[float]) -> float:
        return _average(slow_bins, times) - _average(usual, others)

    excess = compare([one.device_s for one in slow_bins], [one.device_s for one in usual])
    size, load = (
        compare([part(one) for one in slow_bins], [part(one) for one in usual])
        for part in (curve.predict_size_s, curve.predict_load_s)
    )
    in_flight = _average(slow_bins, [one.in_flight for one in slow_bins])
    is_beyond = in_flight > _MAX_EXTRAPOLATION * curve.most_in_flight and not curve.is_saturated
    reason = (
        "more requests are in flight than in any usual interval: load and device cannot be separated; "
        "record a run with a varying load"
    )
    return ExcessSplit(excess, size, load, excess - size - load, is_beyond, reason if is_beyond else None)


def _average(bins: Sequence[LoadBin], values: Sequence[float]) -> float:
    """Return the mean over requests."""
    weights = [one.requests for one in bins]
    return math.fsum(w * value for w, value in zip(weights, values, strict=True)) / math.fsum(weights)


def _fit(usual: Sequence[LoadBin], knee: float) -> tuple[float, LoadCurve]:
    """Return (weighted sum of squares, curve) of the best curve with this knee and without negative
    slopes."""
    columns = [
        [one.mean_bytes for one in usual],
        [max(0.0, one.in_flight - knee) for one in usual],
    ]
    target = [one.device_s for one in usual]
    fits = []
    for used in ((True, True), (True, False), (False, True), (False, False)):
        slopes = _solve(usual, list(compress(columns, used)), target)
        if slopes is None or min(slopes, default=0.0) < 0:
            continue
        found = iter(slopes)
        per_byte, per_request = (next(found) if is_used else 0.0 for is_used in used)
        base = _average(
            usual,
            [
                time - per_byte * size - per_request * load
                for time, size, load in zip(target, *columns, strict=True)
            ],
        )
        curve = LoadCurve(base, per_byte, per_request, knee, math.inf, is_saturated=False)
        error = _average(usual, [(one.device_s - curve.predict_device_s(one)) ** 2 for one in usual])
        fits.append((error, curve))
    return min(fits, key=lambda one: one[0])


def _solve(
    usual: Sequence[LoadBin], columns: Sequence[Sequence[float]], target: Sequence[float]
) -> tuple[float, ...] | None:
    """Return the least-squares slopes of up to two columns, or None if they are not separable."""
    middles = [_average(usual, column) for column in columns]
    off = [[value - middle for value in column] for column, middle in zip(columns, middles, strict=True)]

    def multiply(one: Sequence[float], other: Sequence[float]) -> float:
        return _average(usual, [x * y for x, y in zip(one, other, strict=True)])

    with_target = [multiply(column, target) for column in off]
    if not off:
        return ()
    if len(off) == 1:
        square = multiply(off[0], off[0])
        return (with_target[0] / square,) if square else None
    first, both, second = multiply(off[0], off[0]), multiply(off[0], off[1]), multiply(off[1], off[1])
    determinant = first * second - both * both
    if determinant <= 1e-9 * first * second:
        return None
    return (
        (with_target[0] * second - with_target[1] * both) / determinant,
        (with_target[1] * first - with_target[0] * both) / determinant,
    )


def _is_saturated(usual: Sequence[LoadBin], curve: LoadCurve) -> bool:
    """Return whether the throughput of the usual intervals stops growing with the requests in flight."""
    above = sorted((one for one in usual if one.in_flight > curve.knee), key=lambda one: one.in_flight)
    if len(above) < MIN_BINS // 2 or not curve.per_request_s:
        return False
    half = len(above) // 2
    low, high = (
        (_average(part, [one.in_flight for one in part]), sum(one.requests for one in part) / len(part))
        for part in (above[:half], above[-half:])
    )
    growth = math.log(high[0] / low[0])
    return growth > math.log(_MAX_EXTRAPOLATION) and math.log(high[1] / low[1]) < _SATURATED_GROWTH * growth
