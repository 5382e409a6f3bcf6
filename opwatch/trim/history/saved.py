"""Content of a history (`trim record`): the drive, its map, and the checkpoint that proves the map."""

from __future__ import annotations

from dataclasses import dataclass, field

from opwatch.trim.history.sectormap import SectorMap
from opwatch.trim.space.extents import Extents

MAX_SECTOR = 1 << 41


@dataclass(frozen=True, slots=True)
class HistoryDrive:
    """The drive of a history. `granule` and `offset` are in sectors. `serial` and `wwid` are None if the disk
    has none: the name then identifies the disk."""

    name: str
    serial: str | None
    wwid: str | None
    sectors: int
    granule: int
    offset: int

    @property
    def is_valid(self) -> bool:
        """Whether a drive can have this size and granule."""
        sizes = (self.sectors, self.granule, self.offset + 1)
        return all(0 < size < MAX_SECTOR for size in sizes)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The moment for which the map is correct, and the evidence to verify later that it still applies:
    `boot`, `diskseq`, `slept_ns` (the machine's total sleep) and the kernel's counts for the disk, in
    sectors, must be unchanged. A slack is the number of sectors that may have been missed unnoticed, None if
    unknown. Requests are in the rows `first_requests` to `last_requests` of the file, in none if the last one
    is below the first. `free_wall_ns` is when the free space was read, None if it is not in the file.
    `owners` are the control groups that requests belong to, numbered from 1."""

    mono_ns: int
    wall_ns: int
    boot: str
    diskseq: int | None
    slept_ns: int
    written: int
    discarded: int
    written_slack: int | None
    discarded_slack: int | None
    since_wall_ns: int
    forgotten: dict[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    first_requests: int = field(default=1, metadata={"added": True})
    last_requests: int = field(default=0, metadata={"added": True})
    free_wall_ns: int | None = field(default=None, metadata={"added": True})
    owners: tuple[str, ...] = field(default=(), metadata={"added": True})

    def detect_changes(self, counts: tuple[int, int]) -> tuple[bool, bool]:
        """Return (was written, was discarded): whether the disk may have changed unrecorded, given the
        kernel's counts now."""
        return (
            counts[0] != self.written or self.written_slack != 0,
            counts[1] != self.discarded or self.discarded_slack != 0,
        )


@dataclass(frozen=True, slots=True)
class DiskFreeSpace:
    """Free space of the mounted filesystems on a disk. `left_out_bytes` more are in too small pieces."""

    wall_ns: int
    extents: Extents
    left_out_bytes: int = 0


@dataclass(frozen=True, slots=True)
class SavedHistory:
    """Content of a history. `number` is that of its last change. `is_salvaged`: the file is damaged, but the
    rows collected from its pages are complete."""

    drive: HistoryDrive
    look: Checkpoint
    map: SectorMap
    number: int = 0
    is_salvaged: bool = False
