"""Decide whether a history belongs to a drive and is still valid. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from opwatch.trim.history.saved import Checkpoint, HistoryDrive, SavedHistory

_SLEPT_NS = 10_000_000


@dataclass(frozen=True, slots=True)
class Conditions:
    """Conditions that must be equal for counts from two moments to be comparable."""

    boot: str
    diskseq: int | None
    slept_ns: int

    def has_slept_since(self, slept_ns: int) -> bool:
        """Return True if the machine slept after its total sleep was `slept_ns`."""
        return abs(slept_ns - self.slept_ns) > _SLEPT_NS

    def explain_invalid_state(self, look: Checkpoint) -> str | None:
        """Return why a saved state no longer applies to the disk; None if the state is still valid."""
        if look.boot != self.boot:
            return "the machine was rebooted"
        if look.diskseq != self.diskseq:
            return "the disk was removed and attached again"
        if self.has_slept_since(look.slept_ns):
            return "the machine slept, and another system may have used the disk"
        return None


def is_other_drive(one: HistoryDrive, two: HistoryDrive) -> bool:
    """Return True if two records belong to different drives, as far as known. A name can move to another
    drive, so it only counts if there is neither a WWID nor a serial number."""
    if one.wwid or two.wwid:
        return one.wwid != two.wwid
    if one.serial or two.serial:
        return (one.serial, one.sectors) != (two.serial, two.sectors)
    return one.name != two.name


def make_history_name(drive: HistoryDrive) -> str:
    """Return the name of a drive's history file, from an identifier that survives renaming."""
    lasting = re.sub(r"[^A-Za-z0-9.:+-]+", "_", drive.wwid or drive.serial or drive.name)
    return f"{lasting.strip('._')[:120] or 'disk'}.history"


def explain_invalid_map(saved: SavedHistory, drive: HistoryDrive, moment: Conditions) -> str | None:
    """Return why a map no longer applies to the disk; None if the map is still valid."""
    then = saved.drive
    if (then.sectors, then.granule, then.offset) != (drive.sectors, drive.granule, drive.offset):
        return "the disk's size or granule has changed"
    return moment.explain_invalid_state(saved.look)
