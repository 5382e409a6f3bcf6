"""A stack that stands, and what the kernel itself says was freed below it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from opwatch.trim.space.extents import Extents
from tests.kernel.support import trims
from tests.vm.guest.support import sysfs
from tests.vm.guest.support.scsidebug import ScsiDebug
from tests.vm.guest.support.shell import call


def _nothing() -> None:
    """For a stack without a fault that comes later."""


@dataclass
class Built:
    """A mounted stack. `drives` are the files in memory, `scsi` the disk in place of the first of them with
    the sectors of its granules and where they begin, and `deaf` the one that drops discards; `files` are
    those that a filesystem between holds, and `homes` where it is mounted. `break_now` lets the fault in."""

    point: Path
    drives: list[Path] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)
    homes: list[Path] = field(default_factory=list)
    scsi: tuple[ScsiDebug, int, int] | None = None
    deaf: str = ""
    shares: bool = False
    break_now: Callable[[], object] = _nothing

    def watch(self) -> Callable[[], int]:
        """What tells the bytes that were freed since, by the kernel's own count: the places on its disk that
        the highest file has no more, nor any other that shares them; else blocks of the files in memory, and
        what the disk that drops was sent, for that looks freed from here."""
        places, blocks, sent = self._places(), self._blocks(), self._sent()
        if self.files:
            return lambda: (places - self._places()).total
        return lambda: blocks - self._blocks() + self._sent() - sent

    def _blocks(self) -> int:
        scsi = self.scsi[0].mapped_blocks() * self.scsi[1] * 512 if self.scsi else 0
        return scsi + sum(trims.allocated(drive) for drive in self.drives)

    def fill(self) -> None:
        """Each drive has all of its blocks, whatever was sent already."""
        for file in (*self.files, *self.drives):
            trims.fill_holes(file)
        if self.scsi:
            disk, granularity, alignment = self.scsi
            disk.fill_gaps(granularity, alignment)

    def _sent(self) -> int:
        return sysfs.stat(self.deaf).discard_bytes if self.deaf else 0

    def _places(self) -> Extents:
        """Where the file lies, and those that share its blocks. Sums would be of other things as well: the
        blocks of a file have those of its tree among them, and what is free in a filesystem is less by what
        was written meanwhile, and set aside for more."""
        if not self.files:
            return Extents()
        for home in self.homes:
            call("sync", "-f", str(home))
        sharing = self.homes[0].glob("copy") if self.shares else ()
        text = "".join(call("filefrag", "-v", "-b4096", str(file)) for file in (self.files[0], *sharing))
        pairs = re.findall(r"^ *[0-9]+: +[0-9]+\.\. *[0-9]+: +([0-9]+)\.\. *([0-9]+):", text, re.MULTILINE)
        return Extents.of((int(first) * 4096, (int(last) + 1) * 4096) for first, last in pairs)
