"""Quantiles and means of a drive's latency counts, with the bounds set by slot width and rounding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from opwatch.counters.decode.amazon import DirectionTimes, TimeSlot

QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99_9": 0.999}
# Ratios as integer parts, so that rounding does not change a rank.
_PARTS = 100_000
_US = 1000


class TimeRange(NamedTuple):
    """Nanoseconds from `low` to `high`; `high` is None without an upper bound."""

    low: float
    high: float | None


def compute_rank(ratio: float, commands: int) -> int:
    """Return the nearest rank of a quantile, starting at 1."""
    return max(1, -(-round(ratio * _PARTS) * commands // _PARTS))


def make_slot_range(slot: TimeSlot) -> TimeRange:
    """Return the latency range of a slot.

    The documentation does not say which slot includes an edge or how microseconds are rounded, so the range
    is one microsecond wider on each side.
    """
    return TimeRange(
        max(0, slot.low_us - 1) * _US, None if slot.high_us is None else (slot.high_us + 1) * _US
    )


def find_range_at_rank(slots: Sequence[TimeSlot], rank: int) -> TimeRange | None:
    """Return the latency range at a rank, or None for a rank beyond the last command."""
    running = 0
    for slot in slots:
        running += slot.count
        if running >= rank:
            return make_slot_range(slot)
    return None


def bound_quantile(slots: Sequence[TimeSlot], ratio: float) -> TimeRange | None:
    """Return the range of a quantile, or None if there were no commands."""
    commands = sum(slot.count for slot in slots)
    return find_range_at_rank(slots, compute_rank(ratio, commands)) if commands else None


def bound_mean(times: DirectionTimes) -> TimeRange | None:
    """Return the mean, one microsecond wider on each side because each command's time may be rounded."""
    if not times.commands:
        return None
    middle = times.time_us / times.commands
    return TimeRange(max(0.0, middle - 1) * _US, (middle + 1) * _US)
