"""Results from disk histories: free space still held by the drives, exact to the sector."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from opwatch.trim.history.saved import Checkpoint
from opwatch.trim.layers.remap import Landing
from opwatch.trim.space.extents import Extents
from opwatch.trim.stale.stale import Bounds


@dataclass(frozen=True, slots=True)
class TrustedHistory:
    """The trustworthy part of a history at a given moment. `doubts` say what is unknown, and why."""

    file: Path
    look: Checkpoint
    written: Extents
    unknown: Extents
    doubts: tuple[str, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DeviceFreeSpace:
    """Free space on one device. `remembered` is None if the device has no history."""

    landing: Landing
    size_bytes: int
    granule_bytes: int
    untrimmable_bytes: int
    held_bytes: int
    unknown_bytes: int
    remembered: TrustedHistory | None

    @property
    def drive_bounds(self) -> Bounds | None:
        """Bytes of the whole drive that hold data, by the history; None without a history."""
        if self.remembered is None:
            return None
        low, unknown = self.remembered.written.total_bytes, self.remembered.unknown.total_bytes
        return Bounds(None if unknown else low, low, low + unknown)

    @property
    def unknown_in_use_bytes(self) -> int:
        """Bytes in use that may or may not hold data."""
        return self.remembered.unknown.total_bytes - self.unknown_bytes if self.remembered else 0


@dataclass(frozen=True, slots=True)
class StaleSpace:
    """Free space, with certainly stale and possibly stale bytes."""

    parts: tuple[DeviceFreeSpace, ...]
    seconds: float
    notes: tuple[str, ...]

    @property
    def free_bytes(self) -> int:
        return sum(part.landing.extents.total_bytes for part in self.parts)

    @property
    def held_bytes(self) -> int:
        return sum(part.held_bytes for part in self.parts)

    @property
    def unknown_bytes(self) -> int:
        return sum(part.unknown_bytes for part in self.parts)
