"""Garbage collection: intervals in which NAND writes exceed what the host's bytes explain. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import groupby

from opwatch import units
from opwatch.why.candidate import CHANCE, Candidate, CauseName
from opwatch.why.full_cache import SEQUENTIAL, find_sequential_share
from opwatch.why.layers import DEVICE_LAYERS
from opwatch.why.slowness import GROWN_RATIO, SAME_RATIO, Slowness
from opwatch.why.statistics.dose import measure_dose

# Intervals between polls with more NAND writes have more excess by this rank correlation.
_MIN_CORRELATION = 0.5
# Collection writes more to NAND than the host wrote, by this ratio over the whole run.
_MIN_WAF = 1.1
NO_EXTRA_NAND = "the drive wrote hardly more to NAND than the host wrote"
# A burst exceeds the low values by this share of the difference to the high ones.
_HIGH_SHARE = 0.3
_CHECK = "leave more spare area (opwatch sweep advise), or trim free space (opwatch trim audit)"


def find_collection(slowness: Slowness) -> Candidate | None:
    """Return garbage collection as a candidate if the drive counts its NAND bytes."""
    drive, writes = slowness.drive, slowness.disk.ops.get("write")
    if drive is None or drive.nand_per_s is None or writes is None:
        return None
    # A poll's NAND bytes are compared with the host's bytes between the same polls.
    rates = drive.host_per_s or [
        count / seconds for count, seconds in zip(writes.bytes, slowness.seconds, strict=True)
    ]
    extra = [
        0.0 if math.isnan(nand) else max(nand - rate, 0.0)
        for nand, rate in zip(drive.nand_per_s, rates, strict=True)
    ]
    slow_waf, usual_waf = _compare_waf(slowness, drive.nand_per_s, rates)
    whole_waf = _divide(drive.nand_per_s, rates, [True] * len(rates))
    excluded = None
    if whole_waf < _MIN_WAF:
        # A buffer only moves NAND writes from one poll to another.
        excluded = NO_EXTRA_NAND
    elif slow_waf < SAME_RATIO * usual_waf:
        excluded = "the drive writes no more to NAND per host byte than otherwise"
    elif find_sequential_share(slowness) >= SEQUENTIAL:
        excluded = "the writes are sequential"
    elif slowness.find_ratio(writes.issued) > GROWN_RATIO:
        excluded = "the host writes more than otherwise"
    dose = _explain_dose(slowness, drive.nand_per_s, extra)
    slow_rate, usual_rate = slowness.compare_means(writes.bytes)
    return Candidate(
        CauseName.GARBAGE_COLLECTION,
        slowness.slow if dose else _add_next(_flag_high(extra)),
        f"NAND {slow_waf:.1f} times host in slow intervals, {usual_waf:.1f} times otherwise, at "
        f"{units.format_megabytes(slow_rate)} and {units.format_megabytes(usual_rate)} MB/s of writes"
        f"{dose or ''}",
        _CHECK,
        is_direct=dose is not None,
        excluded=excluded,
        explains=(CauseName.READ_BEHIND_WRITE, CauseName.HOUSEKEEPING),
    )


def _compare_waf(slowness: Slowness, nand: Sequence[float], rates: Sequence[float]) -> tuple[float, float]:
    """Return NAND bytes per host byte of slow intervals, or of those before if it is more, and of others.

    A drive counts the NAND bytes of a burst when it starts it, and is slow until they are programmed.
    """
    before = [*slowness.slow[1:], False]
    others = [usual and not early for usual, early in zip(slowness.list_usual(), before, strict=True)]
    return max(_divide(nand, rates, flags) for flags in (slowness.slow, before)), _divide(nand, rates, others)


def _flag_high(values: Sequence[float]) -> list[bool]:
    """Return which values belong to bursts, which may take more than half of the intervals, since each covers
    the time between two polls."""
    ordered = sorted(values)
    low, high = (ordered[round(share * (len(ordered) - 1))] for share in (0.1, 0.95))
    if high <= GROWN_RATIO * low:
        return [False] * len(values)
    return [value > low + _HIGH_SHARE * (high - low) for value in values]


def _add_next(flags: Sequence[bool]) -> list[bool]:
    """Return the flags with the interval after each, in which the drive may still program a burst."""
    return [flag or before for flag, before in zip(flags, [False, *flags[:-1]], strict=True)]


def _divide(nand: Sequence[float], rates: Sequence[float], flags: Sequence[bool]) -> float:
    """Return NAND bytes per host byte of the flagged intervals."""
    known = [at for at, flag in enumerate(flags) if flag and not math.isnan(nand[at])]
    host = math.fsum(rates[at] for at in known)
    written = math.fsum(nand[at] for at in known)
    return written / host if host else math.inf if written else 0.0


def _explain_dose(slowness: Slowness, nand: Sequence[float], extra: Sequence[float]) -> str | None:
    """Return that the excess grows with the NAND bytes between polls, or None.

    Bursts of a second that recur every few seconds leave hardly a poll without NAND writes of its own, but
    polls with more of them have more excess.
    """
    pairs = list(_iter_polls(slowness, nand, extra))
    dose = measure_dose([excess for excess, _ in pairs], [amount for _, amount in pairs])
    if dose.correlation is None or dose.p is None or dose.p > CHANCE or dose.correlation < _MIN_CORRELATION:
        return None
    return (
        f"; the excess grows with the NAND bytes between {len(pairs)} polls (rank correlation "
        f"{dose.correlation:.2f})"
    )


def _iter_polls(
    slowness: Slowness, nand: Sequence[float], extra: Sequence[float]
) -> Iterator[tuple[float, float]]:
    """Yield (excess time, NAND bytes beyond the host's) between two polls."""
    usual = math.fsum(slowness.usual.get(layer, 0.0) for layer in DEVICE_LAYERS)
    series = slowness.series
    left_out = slowness.left_out or [False] * len(nand)
    for rate, group in groupby(range(len(nand)), key=nand.__getitem__):
        places = [at for at in group if not left_out[at]]
        if places and not math.isnan(rate):
            excess = math.fsum(series.device_ns[at] - series.count[at] * usual for at in places)
            yield excess, math.fsum(extra[at] * slowness.seconds[at] for at in places)
