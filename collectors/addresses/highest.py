"""The highest address that an ATA drive shows: asked of the drive itself, and set. What lies behind it is
there for nobody.
"""

from __future__ import annotations

import os
import time

from opwatch.collectors.addresses.line import ABORTED, AtaLine
from opwatch.collectors.space.device_handle import open_device
from opwatch.errors import OpwatchError, RefusedError, Unsupported
from opwatch.host.device import BlockDevice
from opwatch.sweep.ata.commands import read_native_command, set_max_command

# A command of somebody else's may come between the look and the setting, which the drive aborts then.
_TRIES = 5
# The kernel looks while it is told to; what comes later is no answer to that.
_PATIENCE_S = 2.0


class HighestAddress:
    """The highest address of the drive that is open. By SET MAX ADDRESS EXT, which a loss of power undoes,
    where the drive knows that. Unsupported where it cannot be asked."""

    def __init__(self, descriptor: int, disk: BlockDevice) -> None:
        self._line, self.disk = AtaLine(descriptor, disk), disk
        self.offers = self._line.identify()
        self._is_accessible = not self.offers.has_protected_area
        self.way = "SET ACCESSIBLE MAX ADDRESS EXT" if self._is_accessible else "SET MAX ADDRESS EXT"

    def shown_bytes(self) -> int:
        """What the drive shows now, as it says itself."""
        self.offers = self._line.identify()
        return self.offers.sectors * self.offers.sector_bytes

    def native_bytes(self) -> int:
        """The most that it can show. It reads, and changes nothing."""
        registers = self._line.ask(read_native_command(is_accessible=self._is_accessible))
        if registers.is_failed:
            raise Unsupported(f"{self.disk.name} does not tell its native highest address ({registers})")
        return (registers.lba + 1) * self.offers.sector_bytes

    def set(self, n_bytes: int) -> None:
        """Have the drive show so many bytes. OpwatchError where it refuses, or shows others then."""
        command = set_max_command(n_bytes // self.offers.sector_bytes - 1, is_accessible=self._is_accessible)
        for _ in range(_TRIES):
            self.native_bytes()
            registers = self._line.ask(command)
            if not registers.is_failed or not registers.error & ABORTED:
                break
        if registers.is_failed:
            raise Unsupported(f"{self.disk.name} refuses {self.way} ({registers})")
        if (shown := self.shown_bytes()) != n_bytes:
            raise OpwatchError(f"{self.disk.name} shows {shown} bytes, although {n_bytes} were set")

    def rescan(self) -> int:
        """Have the kernel look, and return what it takes the drive's size for: that of now, or, where its
        driver looks once alone (libata), that of before."""
        try:
            (self.disk.sysfs / "device" / "rescan").write_text("1")
        except OSError as error:
            raise OpwatchError(
                f"{self.disk.name}: the kernel does not look again: {error.strerror}"
            ) from error
        shown, until = self.shown_bytes(), time.monotonic() + _PATIENCE_S
        while (size := self.disk.size_bytes) != shown and time.monotonic() < until:
            time.sleep(0.05)
        return size


def require_whole(address: HighestAddress) -> None:
    """RefusedError where somebody has hidden a part of the drive, and Unsupported where that cannot be
    asked."""
    disk, shown, native = address.disk, address.shown_bytes(), address.native_bytes()
    if shown != native:
        raise RefusedError(
            f"{disk.name} shows {shown} of its {native} bytes: what somebody has hidden there may be of use, "
            "and no discard reaches it"
        )
    if shown != disk.size_bytes:
        raise RefusedError(f"{disk.name} shows {shown} bytes, and the kernel {disk.size_bytes}: look again")


def probe_highest(disk: BlockDevice) -> None:
    """Ask the drive, without a change, whether its highest address can be known. PermissionMissing without
    root; any other OpwatchError says why not."""
    descriptor = open_device(disk)
    try:
        require_whole(HighestAddress(descriptor, disk))
    finally:
        os.close(descriptor)
