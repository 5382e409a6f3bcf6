"""What the histories of disks tell of free space: what of it the drives still hold, to the sector."""

from __future__ import annotations

from pathlib import Path

from opwatch.frozen import frozen
from opwatch.trim.history.journal import Look
from opwatch.trim.space.extents import Extents
from opwatch.trim.space.remap import Landing
from opwatch.trim.stale.stale import Bounds


@frozen
class Remembered:
    """A history as it can be believed at a moment. `doubts` say what is not known because of what."""

    file: Path
    look: Look
    written: Extents
    unknown: Extents
    doubts: tuple[str, ...]
    notes: tuple[str, ...]


@frozen
class Part:
    """Free space on one device. `remembered` is None where no history is of this device."""

    landing: Landing
    size_bytes: int
    granule_bytes: int
    untrimmable_bytes: int
    held_bytes: int
    unknown_bytes: int
    remembered: Remembered | None

    @property
    def on_drive(self) -> Bounds | None:
        """What of the whole drive holds data, by the history; None without one."""
        if self.remembered is None:
            return None
        low, unknown = self.remembered.written.total, self.remembered.unknown.total
        return Bounds(None if unknown else low, low, low + unknown)

    @property
    def unknown_in_use_bytes(self) -> int:
        """What is not free and may hold data or not."""
        return self.remembered.unknown.total - self.unknown_bytes if self.remembered else 0


@frozen
class StaleSpace:
    """Free space, and what of it is stale for certain and what perhaps."""

    parts: tuple[Part, ...]
    seconds: float
    notes: tuple[str, ...]

    @property
    def free_bytes(self) -> int:
        return sum(part.landing.extents.total for part in self.parts)

    @property
    def held_bytes(self) -> int:
        return sum(part.held_bytes for part in self.parts)

    @property
    def unknown_bytes(self) -> int:
        return sum(part.unknown_bytes for part in self.parts)
