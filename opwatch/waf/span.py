"""Write amplification of an interval and its error, from bounds of host and NAND bytes. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

# A value whose error is as large as the value is not reported.
MAX_RELATIVE_ERROR = 1.0


@dataclass(frozen=True, slots=True)
class Span:
    """Bounds of a value, inclusive: whole numbers, or an infinity if unknown."""

    low: float
    high: float

    @property
    def is_known(self) -> bool:
        return math.isfinite(self.low) and math.isfinite(self.high)

    @property
    def best_estimate(self) -> int:
        """Return the best estimate. Known spans only."""
        return (int(self.low) + int(self.high)) // 2

    @property
    def error(self) -> int:
        """Return the maximum distance of the true value from the middle."""
        return int(self.high) - self.best_estimate

    def interpolate(self, share: float) -> int:
        """Return the value at this share of the distance from low to high. Known spans only."""
        return int(self.low) + int(share * (self.high - self.low))

    def subtract(self, earlier: Span) -> Span:
        """Return the growth since an earlier value; a counter does not shrink."""
        return Span(max(self.low - earlier.high, 0), max(self.high - earlier.low, 0))

    def widen(self, by: int) -> Span:
        return Span(max(self.low - by, 0), self.high + by)

    def intersect(self, other: Span) -> Span | None:
        """Return the intersection, or None if the spans contradict each other."""
        low, high = max(self.low, other.low), min(self.high, other.high)
        return Span(low, high) if low <= high else None


@dataclass(frozen=True, slots=True)
class Amplification:
    """Write amplification of an interval. The true value is within ±`error` of `waf`, which is None with a
    `reason`."""

    waf: float | None
    error: float | None
    host: Span
    nand: Span
    reason: str | None = None
    needed_bytes: int | None = None

    @property
    def is_below_one(self) -> bool:
        """Return True if certainly below 1: the drive compresses, or its counters are incomplete."""
        return self.waf is not None and self.error is not None and self.waf + self.error < 1

    @property
    def relative_error(self) -> float:
        """Return error / waf; infinite without a value."""
        return self.error / self.waf if self.waf and self.error is not None else math.inf


def compute_needed_bytes(host_error: int, nand_error: int, waf: float, target: float = 0.01) -> int:
    """Return the host bytes after which the relative error of a ratio like this one is at most `target`."""
    return math.ceil((host_error * (1 + target) + nand_error / max(waf, 1e-9)) / target)


NO_HOST_WRITES = "the host wrote nothing in the interval; all NAND writes are the drive's own"


def compute_amplification(nand: Span, host: Span, target: float = 0.01) -> Amplification:
    """Return NAND bytes per host byte. `needed_bytes` are the additional bytes for a relative error of
    `target`."""
    if not (nand.is_known and host.is_known):
        reason = "the drive's pages do not show the writes yet"
        return Amplification(None, None, host, nand, reason)
    likely = nand.best_estimate / host.best_estimate if host.best_estimate and nand.best_estimate else 1.0
    more = max(compute_needed_bytes(host.error, nand.error, likely, target) - host.best_estimate, 0)
    if not host.high:
        return Amplification(None, None, host, nand, NO_HOST_WRITES, more)
    waf = nand.best_estimate / host.best_estimate if host.best_estimate else 0.0
    low, high = nand.low / host.high, nand.high / host.low if host.low else math.inf
    error = max(high - waf, waf - low)
    if not waf or error > MAX_RELATIVE_ERROR * waf:
        reason = f"the counters' steps are too coarse for a result yet: {more} more bytes must be written"
        return Amplification(None, None, host, nand, reason, more)
    return Amplification(waf, error, host, nand, None, more)


@dataclass(frozen=True, slots=True)
class IntervalBytes:
    """Bytes and seconds of one interval, the error of its NAND bytes, and its end."""

    host_bytes: int
    nand_bytes: int
    seconds: float
    error_bytes: int = 0
    end_ns: int = 0


@dataclass(frozen=True, slots=True)
class Split:
    """NAND bytes = a per host byte + b per second, with half widths of 95 % confidence intervals."""

    a: float | None
    b_bytes_per_s: float | None
    a_error: float | None = None
    b_error: float | None = None
    reason: str | None = None
    # Sum of the squared residuals, in bytes.
    residual: float = math.inf
    # Maximum of the cumulated residuals, relative to its scale under chance.
    strayed: float = 0.0


MIN_INTERVALS = 8
_CLOSE = 4.0
# The 99th percentile of the supremum of a Brownian bridge: chance exceeds this in 1 of 100 runs.
_MAX_DRIFT = 1.63
MODE_CHANGED = (
    "the drive changed its behaviour during the interval: no single number of NAND bytes per host byte holds "
    "for all of it"
)


def fit_split(intervals: Sequence[IntervalBytes]) -> Split:
    """Fit the bytes per host byte and per second. Needs intervals of different write rates."""
    count = len(intervals)
    if count < MIN_INTERVALS:
        return Split(None, None, reason=f"{count} intervals are too few ({MIN_INTERVALS} needed)")
    hh = math.fsum(float(interval.host_bytes) ** 2 for interval in intervals)
    ht = math.fsum(interval.host_bytes * interval.seconds for interval in intervals)
    tt = math.fsum(interval.seconds**2 for interval in intervals)
    hn = math.fsum(float(interval.host_bytes) * interval.nand_bytes for interval in intervals)
    tn = math.fsum(interval.seconds * interval.nand_bytes for interval in intervals)
    determinant = hh * tt - ht * ht
    if determinant <= 1e-3 * hh * tt:
        return Split(None, None, reason="the write rate was too constant to separate the two")
    a, b = (hn * tt - tn * ht) / determinant, (tn * hh - hn * ht) / determinant
    left = [interval.nand_bytes - a * interval.host_bytes - b * interval.seconds for interval in intervals]
    residual = math.fsum(bytes_**2 for bytes_ in left)
    # A uniformly distributed step has a variance of a third of its square; applied at both ends.
    steps = math.fsum(interval.error_bytes**2 for interval in intervals) / 6
    variance = max(residual, steps) / (count - 2)
    student = 1.96 + 2.4 / (count - 2) + 3.0 / (count - 2) ** 2
    return Split(
        a,
        b,
        student * math.sqrt(variance * tt / determinant),
        student * math.sqrt(variance * hh / determinant),
        residual=residual,
        strayed=max(map(abs, accumulate(left))) / math.sqrt(variance * count) if variance else 0.0,
    )


def find_best_fit(fits: Sequence[Split]) -> Split:
    """Return the fit with the smallest residual, if it holds all the time. Its error covers the results of
    other fits that are about as close."""
    best = min(fits, key=lambda fit: fit.residual)
    if best.a is None or best.b_bytes_per_s is None:
        return best
    if best.strayed > _MAX_DRIFT:
        return Split(None, None, reason=MODE_CHANGED)
    close = [fit for fit in fits if fit.residual <= _CLOSE * best.residual]
    spread_a = max(abs((fit.a or 0) - best.a) for fit in close)
    spread_b = max(abs((fit.b_bytes_per_s or 0) - best.b_bytes_per_s) for fit in close)
    return replace(best, a_error=(best.a_error or 0) + spread_a, b_error=(best.b_error or 0) + spread_b)
