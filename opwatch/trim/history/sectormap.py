"""Map of a disk's sectors to states, stored as runs. Plain Python: overwriting written data costs two
bisections."""

from __future__ import annotations

import enum
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator
from itertools import repeat
from operator import rshift

from opwatch.trim.space.extents import Extents

SECTOR = 512
# The map is divided into parts of 256 MiB, so that a change moves few runs. Very large disks get larger
# parts, which limits the number of parts.
_SHIFT, _PARTS_SHIFT = 19, 13
# A run takes 9 bytes in memory and 17 in the file. More runs in a part would make each change slow.
MAX_PIECES, _MAX_IN_PART = 1 << 22, 1 << 17
# Detail is dropped in regions of this fraction (as a power of two) of a part.
_REGIONS_SHIFT = 8
# Maximum number of logged runs; beyond this limit the whole map is saved.
_MAX_LOGGED = 1 << 20


class SectorState(enum.IntEnum):
    """A sector's state, as far as completed commands show."""

    UNKNOWN = 0
    WRITTEN = 1
    TRIMMED = 2


Run = tuple[int, int, int]


class SectorMap:
    """Map of sector states, all unknown at first. If `log` is a list, each run that changes state is
    appended; if there are too many, `log_is_whole` becomes False.

    A map of more than `most_pieces` runs drops its most fragmented regions: they become unknown, and
    `given_up` counts how often this happened.
    """

    def __init__(self, sectors: int, most_pieces: int = MAX_PIECES) -> None:
        self.sectors = sectors
        self.log: list[Run] | None = None
        self.log_is_whole = True
        self.given_up = 0
        self.pieces = 0
        self._most_pieces = most_pieces
        self._shift = max(_SHIFT, (sectors - 1).bit_length() - _PARTS_SHIFT)
        # Part number -> (starts of the runs, states of the runs). A missing part is unknown.
        self._parts: dict[int, tuple[array[int], bytearray]] = {}

    def set_state(self, start: int, end: int, state: int) -> None:
        """Set the state of start..end, clipped to the disk."""
        end = min(end, self.sectors)
        while start < end:
            edge = min(end, ((start >> self._shift) + 1) << self._shift)
            if self._set_part_state(start, edge, state):
                self._record_change(start, edge, state)
            start = edge
        if self.pieces > self._most_pieces:
            self._reduce_map()

    def _record_change(self, start: int, end: int, state: int) -> None:
        if self.log is not None:
            if len(self.log) < _MAX_LOGGED:
                self.log.append((start, end, state))
            else:
                self.log_is_whole = False
        part = self._parts.get(start >> self._shift)
        if part and len(part[0]) > _MAX_IN_PART:
            self.given_up += 1
            self._coarsen(start >> self._shift, 16)

    def _reduce_map(self) -> None:
        """Reduce the map to three quarters of its limit, starting with the most fragmented parts."""
        self.given_up += 1
        target = self._most_pieces * 3 // 4
        for limit in (16, 4, 0):
            for number in sorted(self._parts, key=lambda number: -len(self._parts[number][0])):
                if self.pieces <= target:
                    return
                self._coarsen(number, limit)

    def _coarsen(self, number: int, limit: int) -> None:
        """Make the regions of a part with more than `limit` runs unknown; with a limit of 0, the whole
        part."""
        first = number << self._shift
        if not limit:
            self._forget_range(first, first + (1 << self._shift))
            return
        shift = max(self._shift - _REGIONS_SHIFT, 0)
        regions = Counter(map(rshift, self._parts[number][0], repeat(shift)))
        for region in [region for region, runs in regions.items() if runs > limit]:
            self._forget_range(region << shift, (region + 1) << shift)

    def _forget_range(self, start: int, end: int) -> None:
        end = min(end, self.sectors)
        if self._set_part_state(start, end, SectorState.UNKNOWN) and self.log is not None:
            self.log.append((start, end, SectorState.UNKNOWN))

    def count_parts(self, start: int, end: int) -> int:
        """Return the number of parts that a range touches: the cost of set_state()."""
        return (max(min(end, self.sectors) - 1, start) >> self._shift) - (start >> self._shift) + 1

    def replace_state(self, start: int, end: int, before: int, after: int) -> None:
        """Change sectors of start..end in state `before` to state `after`."""
        for first, last, state in list(self.iter_runs(start, end)):
            if state == before:
                self.set_state(first, last, after)

    def clear_states(self) -> None:
        """Make all sectors unknown."""
        for number in list(self._parts):
            self.set_state(number << self._shift, (number + 1) << self._shift, SectorState.UNKNOWN)

    def iter_runs(self, start: int = 0, end: int | None = None) -> Iterator[Run]:
        """Yield (first sector, sector after the last, state) for start..end, in order. Neighbouring runs may
        have the same state."""
        end = self.sectors if end is None else min(end, self.sectors)
        while start < end:
            number = start >> self._shift
            edge = min(end, (number + 1) << self._shift)
            part = self._parts.get(number)
            if part is None:
                yield start, edge, SectorState.UNKNOWN
            else:
                yield from _clip_runs(part, start, edge)
            start = edge

    def collect_extents(self, state: int) -> Extents:
        """Return the bytes in the given state."""
        known = (
            (first * SECTOR, last * SECTOR)
            for number in sorted(self._parts)
            for first, last, state_of_run in self.iter_runs(
                number << self._shift, (number + 1) << self._shift
            )
            if state_of_run == state
        )
        if state != SectorState.UNKNOWN:
            return Extents.from_sorted(known)
        others = self.collect_extents(SectorState.WRITTEN) | self.collect_extents(SectorState.TRIMMED)
        return others.find_gaps(0, self.sectors * SECTOR)

    def _set_part_state(self, start: int, end: int, state: int) -> bool:
        """Set the state of a range within one part. Return False if the whole range had the state already."""
        number = start >> self._shift
        part = self._parts.get(number)
        if part is None:
            if state == SectorState.UNKNOWN:
                return False
            part = self._parts[number] = (
                array("q", [number << self._shift]),
                bytearray([SectorState.UNKNOWN]),
            )
            self.pieces += 1
        starts, states = part
        before = len(starts)
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
        if (starts[last] if last < len(starts) else (number + 1) << self._shift) > end:
            if states[last - 1] != state:
                new_starts.append(end)
                new_states.append(states[last - 1])
        elif last < len(starts) and states[last] == state:
            last += 1
        starts[begin:last] = array("q", new_starts)
        states[begin:last] = bytes(new_states)
        self.pieces += len(starts) - before
        if len(starts) == 1 and states[0] == SectorState.UNKNOWN:
            del self._parts[number]
            self.pieces -= 1
        return True


def _clip_runs(part: tuple[array[int], bytearray], start: int, end: int) -> Iterator[Run]:
    starts, states = part
    for at in range(bisect_right(starts, start) - 1, bisect_left(starts, end)):
        last = starts[at + 1] if at + 1 < len(starts) else end
        yield max(start, starts[at]), min(end, last), states[at]
