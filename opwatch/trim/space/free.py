"""Free space of a file system, by device."""

from __future__ import annotations

from dataclasses import dataclass

from opwatch.trim.space.extents import Extents

Number = tuple[int, int]


@dataclass(frozen=True, slots=True)
class FreeSpace:
    """Free bytes by device number. `notes` list the free space that is not included."""

    filesystem: str
    block_bytes: int
    extents: dict[Number, Extents]
    notes: tuple[str, ...] = ()

    @property
    def total_bytes(self) -> int:
        return sum(extent.total_bytes for extent in self.extents.values())
