"""The requests of every interval of a disk, in a few bytes per interval. Pure.

Bins add up neighbours, which hides pauses that are short beside the run.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator

from opwatch.compare.estimates import MIN_INTERVALS
from opwatch.recording.reading.phases import Phase
from opwatch.report.bins import TimeBin
from opwatch.report.levels import Pause
from opwatch.report.pauses import find_pauses

# Operations that pauses are looked for in.
_OPS = ("read", "write")
_UNKNOWN = -1

# Only a changed recording has larger values; an array cannot hold them.
_MAX_INTEGER = (1 << 63) - 1


def _limit_integer(value: float) -> int:
    """Return the nearest integer that fits into an array."""
    return round(min(max(value, -_MAX_INTEGER), _MAX_INTEGER))


class IntervalCounts:
    """Requests per operation and requests in flight, interval by interval: 48 bytes each."""

    def __init__(self) -> None:
        self._begins_ns, self._ends_ns = array("q"), array("q")
        self._counts = {op: array("q") for op in _OPS}
        self._all_counts = array("q")
        self._in_flight = array("q")

    def __len__(self) -> int:
        return len(self._begins_ns)

    def add_interval(self, one: TimeBin) -> None:
        """Add the next interval."""
        self._begins_ns.append(_limit_integer(one.begin_ns))
        self._ends_ns.append(_limit_integer(one.end_ns))
        for op, counts in self._counts.items():
            counts.append(_limit_integer(one.find_op(op).count))
        self._all_counts.append(_limit_integer(sum(op.count for op in one.ops.values())))
        self._in_flight.append(_UNKNOWN if one.in_flight is None else _limit_integer(one.in_flight.most))

    def find_pauses(self, op: str, phase: Phase | None) -> list[Pause]:
        """Return the pauses of an operation within a phase, or within the run, after its first request. Empty
        intervals at the end are a pause if they are too many to be a usual gap."""
        places = phase.places(self._begins_ns, self._ends_ns) if phase else range(len(self))
        counts = self._counts[op]
        first = next((place for place in places if counts[place]), None)
        if first is None:
            return []
        last = next(place for place in reversed(places) if counts[place])
        pauses = list(self._find_pauses_between(op, first, places.stop))
        if last + 1 == places.stop or any(pause.is_last for pause in pauses):
            return pauses
        return list(self._find_pauses_between(op, first, last + 1))

    def _find_pauses_between(self, op: str, begin: int, end: int) -> Iterator[Pause]:
        counts = self._counts[op]
        rates = [
            counts[at] * 1e9 / max(self._ends_ns[at] - self._begins_ns[at], 1) for at in range(begin, end)
        ]
        for first, last in find_pauses(rates, MIN_INTERVALS):
            yield Pause(
                begin_ns=self._begins_ns[begin + first],
                end_ns=self._ends_ns[begin + last - 1],
                intervals=last - first,
                is_last=begin + last == end,
                in_flight=self._find_in_flight_range(op, begin + first, begin + last),
            )

    def _find_in_flight_range(self, op: str, begin: int, end: int) -> tuple[int, int] | None:
        """The fewest and the most requests in flight, None if that is not known, or if they can be those of
        other operations, which went on."""
        in_flight = self._in_flight[begin:end]
        if _UNKNOWN in in_flight:
            return None
        others = sum(self._all_counts[begin:end]) - sum(self._counts[op][begin:end])
        return None if others and max(in_flight) else (min(in_flight), max(in_flight))
