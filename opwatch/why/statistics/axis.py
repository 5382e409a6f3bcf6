"""Decide whether events follow the time or the bytes written. Pure.

At a constant rate both are the same. If the rate varies, the gaps between events are equal on one axis only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from statistics import median

MIN_EVENTS = 6
MIN_RATE_RATIO = 1.2
# The gaps on the right axis deviate less than those on the other one by this factor.
_MAX_SPREAD_RATIO = 0.6
# Larger deviations of the gaps on both axes mean that the events are not regular.
_MAX_SPREAD = 0.25


class Axis(Enum):
    """What the events follow."""

    SECONDS = "seconds"
    BYTES = "bytes"
    UNKNOWN = "cannot tell"


@dataclass(frozen=True, slots=True)
class AxisAnswer:
    """What events follow, and the evidence.

    `period_s` and `period_bytes` are the median gaps, `spread_s` and `spread_bytes` the mean absolute
    deviations of their logarithms. `rate_ratio` compares a fast gap (90th percentile) with a slow one (10th).
    `reason` says why the axis is unknown and what would decide it.
    """

    axis: Axis
    events: int
    period_s: float | None = None
    period_bytes: float | None = None
    spread_s: float | None = None
    spread_bytes: float | None = None
    rate_ratio: float | None = None
    reason: str | None = None


def find_axis(seconds: Sequence[float], totals: Sequence[float]) -> AxisAnswer:
    """Return the axis on which events are regular.

    `seconds` are the starts of the events, `totals` the bytes written until then.
    """
    events = len(seconds)
    if events != len(totals):
        raise ValueError(f"{events} events in seconds, but {len(totals)} in bytes")
    if events < MIN_EVENTS:
        return AxisAnswer(Axis.UNKNOWN, events, reason=f"only {events} events ({MIN_EVENTS} needed)")
    gaps_s = [other - one for one, other in pairwise(seconds)]
    gaps_bytes = [other - one for one, other in pairwise(totals)]
    if min(gaps_s) <= 0 or min(gaps_bytes) <= 0:
        return AxisAnswer(Axis.UNKNOWN, events, reason="nothing was written between some of the events")
    rates = sorted(size / gap for gap, size in zip(gaps_s, gaps_bytes, strict=True))
    slow, fast = (rates[round(share * (len(rates) - 1))] for share in (0.1, 0.9))
    spread_s, spread_bytes = _measure_spread(gaps_s), _measure_spread(gaps_bytes)
    axis, reason = _choose_axis(fast / slow, spread_s, spread_bytes)
    return AxisAnswer(
        axis=axis,
        events=events,
        period_s=median(gaps_s),
        period_bytes=median(gaps_bytes),
        spread_s=spread_s,
        spread_bytes=spread_bytes,
        rate_ratio=fast / slow,
        reason=reason,
    )


def _choose_axis(rate_ratio: float, spread_s: float, spread_bytes: float) -> tuple[Axis, str | None]:
    """Return (axis, None) or (unknown, reason)."""
    if rate_ratio < MIN_RATE_RATIO:
        varied = f"{100 * (rate_ratio - 1):.0f} %"
        return Axis.UNKNOWN, f"the write rate varied by {varied} only: vary the write rate"
    if min(spread_s, spread_bytes) > _MAX_SPREAD:
        return Axis.UNKNOWN, "the events are regular neither in seconds nor in bytes"
    if spread_bytes <= _MAX_SPREAD_RATIO * spread_s:
        return Axis.BYTES, None
    if spread_s <= _MAX_SPREAD_RATIO * spread_bytes:
        return Axis.SECONDS, None
    return Axis.UNKNOWN, "the events are about as regular in seconds as in bytes: vary the write rate more"


def _measure_spread(gaps: Sequence[float]) -> float:
    logs = [math.log(gap) for gap in gaps]
    centre = median(logs)
    return math.fsum(abs(log - centre) for log in logs) / len(logs)
