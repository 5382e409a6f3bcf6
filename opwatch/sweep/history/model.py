"""A recorded history in the mapping units of a model, and whether it is long enough to predict from. Pure."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import repeat
from typing import NamedTuple

from opwatch.errors import NotEnoughData
from opwatch.ftl.drive import ServiceOp
from opwatch.ftl.recorded import OP_SHIFT, OWNER_SHIFT

UNIT_BYTES = 4096
# Marks a trim in the number of units of a change.
TRIM = 1 << 31
# Share of the last quarter's writes that may go to places not written before. A larger share means that most
# of what this system rewrites was not recorded yet.
_MAX_FRESH_RATIO = 0.4
# A history with fewer writes has no statistics.
_MIN_WRITES = 256


class UnitChange(NamedTuple):
    """A write or a trim of mapping units."""

    first: int
    size: int
    is_trim: bool


class UnitRange(NamedTuple):
    """Mapping units from `first` up to, and without, `last`."""

    first: int
    last: int

    @property
    def size(self) -> int:
        return self.last - self.first


@dataclass(frozen=True, slots=True)
class HistoryModel:
    """A disk of `units` mapping units, and what a system changed on it.

    `changes` has two 32-bit numbers per change: the first unit and the number of units, or'ed with TRIM for a
    trim; `records` are the same as struct ow_host_record. `written_units` counts each unit as often as it
    was written. `free` has no live data between two repetitions, as far as known. `unmapped` is what the
    drive itself did not hold at the start. Both are sorted. `owners` has one byte per change, the number of
    its owner; without it, nobody owns the changes.
    """

    units: int
    changes: array[int]
    free: tuple[UnitRange, ...] = ()
    unmapped: tuple[UnitRange, ...] = ()
    owners: bytes = b""
    records: bytes = field(init=False, repr=False)
    written_units: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "records", encode_records(self.iter_changes(), self.owners))
        object.__setattr__(self, "written_units", sum(one for one in self.changes[1::2] if one < TRIM))

    def iter_changes(self) -> Iterator[UnitChange]:
        for first, count in zip(self.changes[::2], self.changes[1::2], strict=True):
            yield UnitChange(first, count & ~TRIM, count >= TRIM)

    def find_written(self) -> bytearray:
        """Return 1 for each unit that was written, and 0 for the others."""
        written = bytearray(self.units)
        for first, count, is_trim in self.iter_changes():
            if not is_trim:
                written[first : first + count] = b"\1" * count
        return written

    def list_spare(self) -> list[UnitRange]:
        """Return the free space that was never written, which can be given up without moving data."""
        written = self.find_written()
        return join_units(unit for one in self.free for unit in range(*one) if not written[unit])

    def compute_fresh_ratio(self) -> float:
        """Return the share of the last quarter's writes that went to places not written before."""
        written, done, fresh = bytearray(self.units), 0, 0
        late = 3 * self.written_units // 4
        for first, count, is_trim in self.iter_changes():
            if is_trim:
                continue
            if done >= late:
                fresh += written.count(0, first, first + count)
            written[first : first + count] = b"\1" * count
            done += count
        return fresh / (done - late) if done > late else 1.0

    def require_enough(self) -> float:
        """Return the fresh ratio. Raise NotEnoughData for a history that is too short to predict from."""
        if len(self.changes) // 2 < _MIN_WRITES:
            raise NotEnoughData(
                f"the history is too short: {len(self.changes) // 2} changes in the model, and "
                f"{_MIN_WRITES} are needed: record for longer"
            )
        fresh = self.compute_fresh_ratio()
        if fresh > _MAX_FRESH_RATIO:
            raise NotEnoughData(
                f"the history is too short: {100 * fresh:.0f} % of the writes in its last quarter went to "
                "places that it had not seen written before, and at most "
                f"{100 * _MAX_FRESH_RATIO:.0f} % may: record for several times as long"
            )
        return fresh


def join_units(units: Iterable[int]) -> list[UnitRange]:
    """Return sorted units as ranges."""
    ranges: list[UnitRange] = []
    for unit in units:
        if ranges and ranges[-1].last == unit:
            ranges[-1] = UnitRange(ranges[-1].first, unit + 1)
        else:
            ranges.append(UnitRange(unit, unit + 1))
    return ranges


def take_units(ranges: Iterable[UnitRange], count: int) -> list[UnitRange]:
    """Return the first `count` units of the ranges."""
    taken: list[UnitRange] = []
    for one in ranges:
        if count <= 0:
            break
        taken.append(UnitRange(one.first, min(one.last, one.first + count)))
        count -= taken[-1].size
    return taken


def encode_records(changes: Iterable[UnitChange], owners: bytes = b"") -> bytes:
    """Return changes as struct ow_host_record."""
    words = array("Q")
    for (first, count, is_trim), owner in zip(changes, owners or repeat(0), strict=False):
        op = ServiceOp.TRIM if is_trim else ServiceOp.WRITE
        words.extend((first * UNIT_BYTES, op << OP_SHIFT | owner << OWNER_SHIFT | count * UNIT_BYTES))
    return words.tobytes()
