"""A state for every sector of a disk, kept as runs. Plain Python: a write to where data is already costs two
bisections."""

from __future__ import annotations

import enum
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from opwatch.trim.extents import Extents

SECTOR = 512
# Runs are kept for 256 MiB at a time, so that a change moves few of them.
_SHIFT = 19


class State(enum.IntEnum):
    """What a drive holds of a sector, by what it was told."""

    UNKNOWN = 0
    WRITTEN = 1
    TRIMMED = 2


Run = tuple[int, int, int]


class SectorMap:
    """Unknown at first. `log`, when it is a list, gets each run that was given another state."""

    def __init__(self, sectors: int) -> None:
        self.sectors = sectors
        self.log: list[Run] | None = None
        # Number of the part -> where its runs begin, and their states. One that is not there is unknown.
        self._parts: dict[int, tuple[array[int], bytearray]] = {}

    def put(self, start: int, end: int, state: int) -> None:
        """Give all of start..end a state; what lies outside of the disk is left out."""
        end = min(end, self.sectors)
        while start < end:
            edge = min(end, ((start >> _SHIFT) + 1) << _SHIFT)
            if self._put(start, edge, state) and self.log is not None:
                self.log.append((start, edge, state))
            start = edge

    def turn(self, start: int, end: int, before: int, after: int) -> None:
        """Give another state to what has one state in start..end."""
        for first, last, state in list(self.runs(start, end)):
            if state == before:
                self.put(first, last, after)

    def forget(self) -> None:
        """Nothing is known of any sector."""
        for number in list(self._parts):
            self.put(number << _SHIFT, (number + 1) << _SHIFT, State.UNKNOWN)

    def runs(self, start: int = 0, end: int | None = None) -> Iterator[Run]:
        """(first sector, sector behind the last, state) of all in start..end, in order; neighbours may be
        alike."""
        end = self.sectors if end is None else min(end, self.sectors)
        while start < end:
            number = start >> _SHIFT
            edge = min(end, (number + 1) << _SHIFT)
            part = self._parts.get(number)
            if part is None:
                yield start, edge, State.UNKNOWN
            else:
                yield from _clipped(part, start, edge)
            start = edge

    def extents(self, state: int) -> Extents:
        """The bytes that have a state."""
        known = (
            (first * SECTOR, last * SECTOR)
            for number in sorted(self._parts)
            for first, last, found in self.runs(number << _SHIFT, (number + 1) << _SHIFT)
            if found == state
        )
        if state != State.UNKNOWN:
            return Extents.in_order(known)
        others = self.extents(State.WRITTEN) | self.extents(State.TRIMMED)
        return others.gaps(0, self.sectors * SECTOR)

    def _put(self, start: int, end: int, state: int) -> bool:
        """The same within one part; False when all of it had this state."""
        number = start >> _SHIFT
        part = self._parts.get(number)
        if part is None:
            if state == State.UNKNOWN:
                return False
            part = self._parts[number] = (array("q", [number << _SHIFT]), bytearray([State.UNKNOWN]))
        starts, states = part
        first = bisect_right(starts, start) - 1
        last = bisect_left(starts, end, first + 1)
        if last - first == 1 and states[first] == state:
            return False
        begin, new_starts, new_states = first, [start], [state]
        if starts[first] < start:
            if states[first] == state:
                new_starts = [starts[first]]
            else:
                new_starts, new_states = [starts[first], start], [states[first], state]
        elif first and states[first - 1] == state:
            begin, new_starts = first - 1, [starts[first - 1]]
        if (starts[last] if last < len(starts) else (number + 1) << _SHIFT) > end:
            if states[last - 1] != state:
                new_starts.append(end)
                new_states.append(states[last - 1])
        elif last < len(starts) and states[last] == state:
            last += 1
        starts[begin:last] = array("q", new_starts)
        states[begin:last] = bytes(new_states)
        if len(starts) == 1 and states[0] == State.UNKNOWN:
            del self._parts[number]
        return True


def _clipped(part: tuple[array[int], bytearray], start: int, end: int) -> Iterator[Run]:
    starts, states = part
    for at in range(bisect_right(starts, start) - 1, bisect_left(starts, end)):
        last = starts[at + 1] if at + 1 < len(starts) else end
        yield max(start, starts[at]), min(end, last), states[at]
