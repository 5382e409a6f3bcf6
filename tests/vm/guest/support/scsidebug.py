"""scsi_debug: a SCSI disk in memory that can be told to fail."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntFlag
from pathlib import Path

from tests.vm.guest.support.shell import call, put
from tests.vm.guest.support.sysfs import SYS_BLOCK, wait_for
from tests.vm.requirements import need_module

_DRIVER = Path("/sys/bus/pseudo/drivers/scsi_debug")

# With Opts.MEDIUM_ERROR reads of these sectors fail.
BAD_SECTORS = range(0x1234, 0x1234 + 10)


class Opts(IntFlag):
    """What every_nth does to the commands it picks (MEDIUM_ERROR needs no every_nth)."""

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
    def trouble(self, opts: Opts, every_nth: int = 0) -> Iterator[None]:
        """Makes commands fail while inside: every n-th, or those that `opts` picks by itself."""
        put(_DRIVER / "opts", int(opts))
        put(_DRIVER / "every_nth", every_nth)
        try:
            yield
        finally:
            put(_DRIVER / "every_nth", 0)
            put(_DRIVER / "opts", 0)

    def fill(self) -> None:
        """Give its first 64 MiB data everywhere: only then its map shows what a discard takes away."""
        node = f"of=/dev/{self.name}"
        call("dd", "if=/dev/zero", node, "bs=1M", "count=64", "oflag=direct", "status=none")

    def mapped_blocks(self) -> int:
        """How many blocks are written and not unmapped: the oracle for discards.

        Counts provisioning blocks, which are logical blocks unless unmap_granularity says other.
        """
        total = 0
        for piece in (_DRIVER / "map").read_text().replace("\0", "").strip().split(","):
            first, _, last = piece.partition("-")
            if first:
                total += int(last or first) - int(first) + 1
        return total


@contextlib.contextmanager
def ignoring() -> Iterator[None]:
    """Media commands complete without an error and do nothing: what is read is noise, so read nothing."""
    put(_DRIVER / "fake_rw", 1)
    try:
        yield
    finally:
        put(_DRIVER / "fake_rw", 0)


@contextlib.contextmanager
def scsi_debug(**parameters: int) -> Iterator[ScsiDebug]:
    """A scsi_debug loaded with these module parameters and unloaded after."""
    defaults = {"dev_size_mb": 64, "lbpu": 1, "lbpws": 1, "delay": 0, "submit_queues": 2}
    need_module("sd_mod")
    before = {path.name for path in SYS_BLOCK.glob("sd*")}
    need_module("scsi_debug", *(f"{k}={v}" for k, v in (defaults | parameters).items()))
    try:
        wait_for("a disk of scsi_debug", lambda: bool(_added(before)))
        yield ScsiDebug(_added(before)[0])
    finally:
        call("modprobe", "-r", "scsi_debug")


def _added(before: set[str]) -> list[str]:
    names = sorted({path.name for path in SYS_BLOCK.glob("sd*")} - before)
    return [name for name in names if (SYS_BLOCK / name / "size").read_text().strip() != "0"]
