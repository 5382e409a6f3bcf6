"""scsi_debug: a SCSI disk in memory with error injection."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import resource
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntFlag
from pathlib import Path

from tests.kernel.support.load import BLKZEROOUT, allocate_aligned, open_direct
from tests.vm.guest.support.shell import run_command, write_attribute
from tests.vm.guest.support.sysfs import SYS_BLOCK, wait_for
from tests.vm.requirements import need_module

_DRIVER = Path("/sys/bus/pseudo/drivers/scsi_debug")

# Sectors whose reads fail with Opts.MEDIUM_ERROR.
BAD_SECTORS = range(0x1234, 0x1234 + 10)


class Opts(IntFlag):
    """Faults applied to every n-th command (MEDIUM_ERROR needs no every_nth)."""

    NONE = 0
    MEDIUM_ERROR = 0x2
    IGNORE_COMMAND = 0x4
    RECOVERED_ERROR = 0x8
    TRANSPORT_ERROR = 0x10
    SHORT_TRANSFER = 0x100
    HOST_BUSY = 0x8000
    ABORT = 0x10000


@dataclass(frozen=True)
class ScsiDebug:
    """A loaded scsi_debug with one disk."""

    name: str

    @contextlib.contextmanager
    def inject_faults(self, opts: Opts, every_nth: int = 0) -> Iterator[None]:
        """Make commands fail for the duration: every n-th, or as selected by `opts` itself."""
        write_attribute(_DRIVER / "opts", int(opts))
        write_attribute(_DRIVER / "every_nth", every_nth)
        try:
            yield
        finally:
            write_attribute(_DRIVER / "every_nth", 0)
            write_attribute(_DRIVER / "opts", 0)

    @contextlib.contextmanager
    def delay_commands(self, ticks: int) -> Iterator[None]:
        """Delay each command by this many kernel ticks for the duration."""
        write_attribute(_DRIVER / "delay", ticks)
        try:
            yield
        finally:
            write_attribute(_DRIVER / "delay", 0)

    def write_start(self) -> None:
        """Write the first 64 MiB completely, because its map only shows discards of mapped blocks."""
        node = f"of=/dev/{self.name}"
        run_command("dd", "if=/dev/zero", node, "bs=1M", "count=64", "oflag=direct", "status=none")

    def count_mapped_blocks(self) -> int:
        """Return the number of mapped provisioning blocks: the oracle for discards.

        A provisioning block is a logical block unless unmap_granularity is larger.
        """
        return sum(last - first for first, last in _read_map())

    def fill_gaps(self, granularity: int, alignment: int = 0) -> None:
        """Write zeroes to every unmapped range. Both arguments are the module's parameters."""
        # A filesystem's unwritten data may lie in a gap, and zeroes would overwrite it.
        os.sync()
        size = int((SYS_BLOCK / self.name / "size").read_text())
        before = (granularity - alignment) % granularity
        bounds = [min(max(index * granularity - before, 0), size) for run in _read_map() for index in run]
        with open_direct(f"/dev/{self.name}") as disk:
            for first, end in zip([0, *bounds[1::2]], [*bounds[::2], size], strict=True):
                if end > first:
                    _zero_range(disk, first * 512, end * 512)
            os.fsync(disk)
        if len(_read_map()) != 1:
            raise RuntimeError(f"{self.name} has gaps still: {_read_map()[:3]}")


def _zero_range(disk: int, start: int, end: int) -> None:
    try:
        fcntl.ioctl(disk, BLKZEROOUT, struct.pack("=QQ", start, end - start))
    except OSError as error:
        # A mounted filesystem's journal holds buffers of these pages.
        if error.errno != errno.EBUSY:
            raise
        piece = allocate_aligned(1 << 20)
        for at in range(start, end, len(piece)):
            os.pwrite(disk, memoryview(piece)[: end - at], at)


def _read_map() -> list[tuple[int, int]]:
    """Return the mapped ranges of provisioning blocks; the kernel reports at most a page of text."""
    text = (_DRIVER / "map").read_text().replace("\0", "").strip()
    if len(text) >= resource.getpagesize() - 2:
        raise OSError(errno.EOVERFLOW, "the map of scsi_debug has more pieces than it tells")
    pairs = (piece.partition("-") for piece in text.split(",") if piece)
    return [(int(first), int(last or first) + 1) for first, _, last in pairs]


@contextlib.contextmanager
def ignore_media_commands() -> Iterator[None]:
    """Make media commands succeed without effect for the duration. Reads then return noise."""
    write_attribute(_DRIVER / "fake_rw", 1)
    try:
        yield
    finally:
        write_attribute(_DRIVER / "fake_rw", 0)


@contextlib.contextmanager
def load_scsi_debug(**parameters: int) -> Iterator[ScsiDebug]:
    """Load scsi_debug with these module parameters, yield the disk and unload the module."""
    defaults = {"dev_size_mb": 64, "lbpu": 1, "lbpws": 1, "delay": 0, "submit_queues": 2}
    need_module("sd_mod")
    before = {path.name for path in SYS_BLOCK.glob("sd*")}
    need_module("scsi_debug", *(f"{k}={v}" for k, v in (defaults | parameters).items()))
    try:
        wait_for("a disk of scsi_debug", lambda: bool(_list_added(before)))
        yield ScsiDebug(_list_added(before)[0])
    finally:
        run_command("modprobe", "-r", "scsi_debug")


def _list_added(before: set[str]) -> list[str]:
    names = sorted({path.name for path in SYS_BLOCK.glob("sd*")} - before)
    return [name for name in names if (SYS_BLOCK / name / "size").read_text().strip() != "0"]
