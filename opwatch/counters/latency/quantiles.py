"""Quantiles and means of what a drive counted, with the bounds that its slots and steps leave."""

from __future__ import annotations

from collections.abc import Sequence

from opwatch.counters.decode.amazon import DirectionTimes, TimeSlot
from opwatch.named import NamedTuple

QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99_9": 0.999}
# Parts of a rank, so that no rounding moves it.
_PARTS = 100_000
_US = 1000


class TimeRange(NamedTuple):
    """Nanoseconds from `low` to `high`; None: nothing bounds it from above."""

    low: float
    high: float | None


def rank_of(ratio: float, commands: int) -> int:
    """The nearest rank of a quantile, from 1 on."""
    return max(1, -(-round(ratio * _PARTS) * commands // _PARTS))


def span_of(slot: TimeSlot) -> TimeRange:
    """What a command of a slot took. Whether an edge is of this slot or the next nobody says, nor how a
    microsecond is rounded: one is taken off below and given above."""
    return TimeRange(
        max(0, slot.low_us - 1) * _US, None if slot.high_us is None else (slot.high_us + 1) * _US
    )


def at_rank(slots: Sequence[TimeSlot], rank: int) -> TimeRange | None:
    """What the command of a rank took; None where there are not so many."""
    running = 0
    for slot in slots:
        running += slot.count
        if running >= rank:
            return span_of(slot)
    return None


def quantile(slots: Sequence[TimeSlot], ratio: float) -> TimeRange | None:
    """A quantile as the slots bound it; it is None where there was no command."""
    commands = sum(slot.count for slot in slots)
    return at_rank(slots, rank_of(ratio, commands)) if commands else None


def mean(times: DirectionTimes) -> TimeRange | None:
    """The mean, a microsecond wide to either side: each command's time may be rounded."""
    if not times.commands:
        return None
    middle = times.time_us / times.commands
    return TimeRange(max(0.0, middle - 1) * _US, (middle + 1) * _US)
