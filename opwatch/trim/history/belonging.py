"""Whether a history is of a drive, and of its life until now. Pure."""

from __future__ import annotations

import re

from opwatch.frozen import frozen
from opwatch.trim.history.journal import HistoryDrive, Look, Saved

_SLEPT_NS = 10_000_000


@frozen
class Conditions:
    """What must be the same for counts of two moments to be comparable."""

    boot: str
    diskseq: int | None
    slept_ns: int

    def slept_since(self, slept_ns: int) -> bool:
        """Whether the machine slept since a moment when it had slept so long."""
        return abs(slept_ns - self.slept_ns) > _SLEPT_NS

    def same_as(self, look: Look) -> str | None:
        """Why a look is of another life of the disk, None when it is of this one."""
        if look.boot != self.boot:
            return "the machine was started anew"
        if look.diskseq != self.diskseq:
            return "the disk was away"
        if self.slept_since(look.slept_ns):
            return "the machine slept, and another system may have used the disk"
        return None


def is_other(one: HistoryDrive, two: HistoryDrive) -> bool:
    """Whether two records are of different drives, as far as that can be known. A name is what it is called
    today, so it counts for a disk that has nothing else."""
    if one.wwid or two.wwid:
        return one.wwid != two.wwid
    if one.serial or two.serial:
        return (one.serial, one.sectors) != (two.serial, two.sectors)
    return one.name != two.name


def history_name(drive: HistoryDrive) -> str:
    """The file of a drive, called by what stays with it when names move."""
    lasting = re.sub(r"[^A-Za-z0-9.:+-]+", "_", drive.wwid or drive.serial or drive.name)
    return f"{lasting.strip('._')[:120] or 'disk'}.history"


def other_life(saved: Saved, drive: HistoryDrive, moment: Conditions) -> str | None:
    """Why a map says nothing of the disk as it is now, None when it is of this life of the disk."""
    then = saved.drive
    if (then.sectors, then.granule, then.offset) != (drive.sectors, drive.granule, drive.offset):
        return "the disk has another size or granule now"
    return moment.same_as(saved.look)
