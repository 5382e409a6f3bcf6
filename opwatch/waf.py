"""Write amplification of an interval from two samples of counters, with its error. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from opwatch.counters.reading import Reading

# Counters that are known to wrap do it here: at 2^32 sectors, 2^32 and 2^48 units.
_MODULI = (1 << 32, 1 << 48)
_SECTOR = 512
# A count of the kernel's that is this close to the drive's is the same.
_AGREES = 0.02
_RESTARTS = "the drive lost power uncleanly in between: its counters may have gone back"
# An error as large as the value itself is no statement.
MAX_RELATIVE_ERROR = 1.0


@dataclass(frozen=True, slots=True)
class Sample:
    """Counters of one moment. `shutdowns` are the unclean ones; None for what was not read."""

    mono_ns: int
    host: Reading
    nand: Reading
    shutdowns: int | None = None
    kernel_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Delta:
    """What a counter grew by, and by how much that may be wrong; or the reason why nobody knows."""

    n_bytes: int | None
    error_bytes: int = 0
    reason: str | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Waf:
    """`waf` is None with a reason. The truth is within `error` of it, on either side."""

    waf: float | None
    error: float | None
    host: Delta
    nand: Delta
    interval_s: float
    source: str
    reason: str | None = None
    needed_bytes: int | None = None

    @property
    def below_one(self) -> bool:
        """Surely below 1: the drive compresses, or its counters leave something out."""
        return self.waf is not None and self.error is not None and self.waf + self.error < 1


def _rounding(begin: Reading, end: Reading) -> int:
    """A counter in steps of q hides up to q - 1 bytes at either end, in the same direction."""
    return max(begin.quantum, end.quantum, 1) - 1


def _unwrapped(back: int, unit: int, error: int, kernel: int | None) -> Delta | None:
    """A counter that went back by this much, if the kernel's count says that it wrapped."""
    if kernel is None:
        return None
    moduli = {modulus * each for modulus in _MODULI for each in (unit, _SECTOR)}
    fits = [each - back for each in moduli if abs(each - back - kernel) <= _AGREES * kernel + 2 * error]
    if len(fits) != 1:
        return None
    return Delta(fits[0], error, note="the counter wrapped; the kernel's count agrees")


def delta(begin: Reading, end: Reading, *, shut_down: bool = False, kernel: int | None = None) -> Delta:
    """Growth between two readings. `kernel` is what the kernel wrote meanwhile, to prove a wrap by."""
    if begin.value is None or end.value is None:
        return Delta(None, reason=end.reason or begin.reason or "it was not read")
    if begin.source != end.source or begin.proof != end.proof:
        return Delta(None, reason=f"the source changed from {begin.source} to {end.source}")
    error = _rounding(begin, end)
    grown = end.value - begin.value
    if shut_down:
        return Delta(None, reason=_RESTARTS)
    if grown >= 0:
        return Delta(grown, error)
    found = _unwrapped(-grown, begin.quantum, error, kernel)
    return found or Delta(None, reason="the counter went back: it was reset, or lost what it had not saved")


def _bounds(host: int, host_error: int, nand: int, nand_error: int) -> tuple[float, float]:
    """Least and greatest ratio that the steps allow."""
    high = (nand + nand_error) / (host - host_error) if host > host_error else math.inf
    return max(nand - nand_error, 0) / (host + host_error), high


def needed(host_error: int, nand_error: int, waf: float, target: float = 0.01) -> int:
    """Host bytes after which the error of a ratio like this one is at most `target` of it."""
    return math.ceil((host_error * (1 + target) + nand_error / max(waf, 1e-9)) / target)


def interval_waf(
    begin: Sample, end: Sample, *, stale_host: int = 0, stale_nand: int = 0, target: float = 0.01
) -> Waf:
    """WAF between two samples of one drive. `stale_*` is what pages may lag behind by, in bytes."""
    shut = begin.shutdowns is not None and end.shutdowns is not None and end.shutdowns != begin.shutdowns
    kernel = None
    if begin.kernel_bytes is not None and end.kernel_bytes is not None:
        kernel = end.kernel_bytes - begin.kernel_bytes
    host = delta(begin.host, end.host, shut_down=shut, kernel=kernel)
    nand = delta(begin.nand, end.nand, shut_down=shut)
    seconds = (end.mono_ns - begin.mono_ns) / 1e9
    source = f"{end.nand.source} / {end.host.source}"
    if host.n_bytes is None or nand.n_bytes is None:
        side, why = ("host", host.reason) if host.n_bytes is None else ("NAND", nand.reason)
        return Waf(None, None, host, nand, seconds, source, f"{side} bytes: {why}")
    host_error, nand_error = host.error_bytes + stale_host, nand.error_bytes + stale_nand
    likely = nand.n_bytes / host.n_bytes if host.n_bytes and nand.n_bytes else 1.0
    more = max(needed(host_error, nand_error, likely, target) - host.n_bytes, 0)
    if not host.n_bytes:
        reason = "the host wrote nothing in the interval; what went to NAND is the drive's own"
        return Waf(None, None, host, nand, seconds, source, reason, more)
    low, high = _bounds(host.n_bytes, host_error, nand.n_bytes, nand_error)
    waf = nand.n_bytes / host.n_bytes
    error = max(high - waf, waf - low)
    if not waf or error > MAX_RELATIVE_ERROR * waf:
        reason = f"the steps of the counters allow no statement yet: {more} more bytes must be written"
        return Waf(None, None, host, nand, seconds, source, reason, more)
    return Waf(waf, error, host, nand, seconds, source, needed_bytes=more)


@dataclass(frozen=True, slots=True)
class Interval:
    """Bytes and seconds of one of many intervals, with the error of its NAND bytes."""

    host_bytes: int
    nand_bytes: int
    seconds: float
    error_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Split:
    """NAND bytes = a for each host byte + b each second, with half widths of 95 % intervals."""

    a: float | None
    b_bytes_per_s: float | None
    a_error: float | None = None
    b_error: float | None = None
    reason: str | None = None


_MIN_INTERVALS = 8


def split(intervals: Sequence[Interval]) -> Split:
    """What the host caused, and what the drive does anyway. Needs intervals of different rates."""
    count = len(intervals)
    if count < _MIN_INTERVALS:
        return Split(None, None, reason=f"{count} intervals are too few, {_MIN_INTERVALS} are needed")
    hh = math.fsum(float(each.host_bytes) ** 2 for each in intervals)
    ht = math.fsum(each.host_bytes * each.seconds for each in intervals)
    tt = math.fsum(each.seconds**2 for each in intervals)
    hn = math.fsum(float(each.host_bytes) * each.nand_bytes for each in intervals)
    tn = math.fsum(each.seconds * each.nand_bytes for each in intervals)
    determinant = hh * tt - ht * ht
    if determinant <= 1e-3 * hh * tt:
        return Split(None, None, reason="the rate was too even: the two cannot be told apart")
    a, b = (hn * tt - tn * ht) / determinant, (tn * hh - hn * ht) / determinant
    residual = math.fsum(
        (each.nand_bytes - a * each.host_bytes - b * each.seconds) ** 2 for each in intervals
    )
    # A step that is spread evenly has a third of its square as variance, at both ends.
    steps = math.fsum(each.error_bytes**2 for each in intervals) / 6
    variance = max(residual, steps) / (count - 2)
    student = 1.96 + 2.4 / (count - 2) + 3.0 / (count - 2) ** 2
    return Split(
        a,
        b,
        student * math.sqrt(variance * tt / determinant),
        student * math.sqrt(variance * hh / determinant),
    )
