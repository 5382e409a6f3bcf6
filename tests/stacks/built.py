"""A mounted stack, and the number of bytes freed below it according to the kernel."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from opwatch.trim.space.extents import Extents
from tests.kernel.support import trims
from tests.vm.guest.support import sysfs
from tests.vm.guest.support.scsidebug import ScsiDebug
from tests.vm.guest.support.shell import run_command


def _do_nothing() -> None:
    """Do nothing: the default for a stack without a late fault."""


@dataclass
class MountedStack:
    """A mounted stack.

    `drives` are the files in memory. `scsi` is the SCSI disk in place of the first file, with granularity and
    alignment in sectors. `deaf` is the disk that drops discards. `files` are the files of loop devices on
    intermediate filesystems, and `homes` the mount points. `break_now` activates the fault.
    """

    point: Path
    drives: list[Path] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)
    homes: list[Path] = field(default_factory=list)
    scsi: tuple[ScsiDebug, int, int] | None = None
    deaf: str = ""
    shares: bool = False
    break_now: Callable[[], object] = _do_nothing

    def watch_freed_bytes(self) -> Callable[[], int]:
        """Return a function that returns the bytes freed since this call, according to the kernel.

        With intermediate files: the disk ranges that the highest file no longer has, nor any file sharing its
        blocks. Otherwise: the blocks of the files in memory, plus discards sent to the disk that drops
        discards, which look freed from here.
        """
        places, blocks, sent = self._find_extents(), self._count_block_bytes(), self._read_sent()
        if self.files:
            return lambda: (places - self._find_extents()).total_bytes
        return lambda: blocks - self._count_block_bytes() + self._read_sent() - sent

    def _count_block_bytes(self) -> int:
        scsi = self.scsi[0].count_mapped_blocks() * self.scsi[1] * 512 if self.scsi else 0
        return scsi + sum(trims.count_allocated(drive) for drive in self.drives)

    def allocate_blocks(self) -> None:
        """Allocate all blocks of each drive, including those already discarded."""
        for file in (*self.files, *self.drives):
            trims.fill_holes(file)
        if self.scsi:
            disk, granularity, alignment = self.scsi
            disk.fill_gaps(granularity, alignment)

    def _read_sent(self) -> int:
        return sysfs.read_stat(self.deaf).discard_bytes if self.deaf else 0

    def _find_extents(self) -> Extents:
        """Return the disk ranges of the file and of files that share its blocks.

        Totals would include other changes: a file's block count includes its extent tree, and a filesystem's
        free space also shrinks by concurrent writes and reservations.
        """
        if not self.files:
            return Extents()
        for home in self.homes:
            run_command("sync", "-f", str(home))
        sharing = self.homes[0].glob("copy") if self.shares else ()
        text = "".join(
            run_command("filefrag", "-v", "-b4096", str(file)) for file in (self.files[0], *sharing)
        )
        pairs = re.findall(r"^ *[0-9]+: +[0-9]+\.\. *[0-9]+: +([0-9]+)\.\. *([0-9]+):", text, re.MULTILINE)
        return Extents.from_pairs((int(first) * 4096, (int(last) + 1) * 4096) for first, last in pairs)
