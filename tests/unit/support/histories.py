"""Histories for tests: a disk with hot, cold and free space."""

from __future__ import annotations

import random
from array import array
from pathlib import Path

from opwatch.recording.writing.history import HistoryFile
from opwatch.trim.history.changes import ChangeKind
from opwatch.trim.history.requests import RequestRow
from opwatch.trim.history.saved import Checkpoint, DiskFreeSpace, HistoryDrive
from opwatch.trim.history.sectormap import SectorMap
from opwatch.trim.space.extents import Extents

UNIT_SECTORS = 8
UNITS = 1 << 13
DRIVE = HistoryDrive("sda", "S1", None, UNITS * UNIT_SECTORS, 8, 0)
# The upper part of the disk is free and never written.
ACTIVE = UNITS // 2
FREE = DiskFreeSpace(10**18, Extents.from_pairs([(3 * UNITS // 4 * 4096, UNITS * 4096)]))


def make_requests(count: int, seed: int = 1, active: int = ACTIVE) -> RequestRow:
    """Return uniform random writes of 4 KiB in an hour."""
    draw = random.Random(seed)
    sectors = array("Q", [draw.randrange(active) * UNIT_SECTORS for _ in range(count)])
    lengths = array("I", [UNIT_SECTORS]) * count
    return RequestRow(10**9, 3601 * 10**9, False, sectors, lengths, bytes([ChangeKind.WRITE]) * count)


def write_history(
    path: Path,
    requests: RequestRow | None,
    free: DiskFreeSpace | None = FREE,
    drive: HistoryDrive = DRIVE,
    owners: tuple[str, ...] = (),
) -> Path:
    look = Checkpoint(1, 2, "boot", 3, 4, 5, 6, 0, 0, 7, owners=owners)
    file = HistoryFile(path)
    if free:
        file.keep_free_space(free)
    file.replace_map(drive, look, SectorMap(drive.sectors))
    if requests:
        file.add_changes(look, (), requests)
    file.close()
    return path
