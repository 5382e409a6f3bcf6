"""Read and set the highest address of an ATA drive. Sectors above the highest address cannot be accessed."""

from __future__ import annotations

import os
import time

from opwatch.collectors.space.device_handle import open_device
from opwatch.errors import OpwatchError, RefusedError, Unsupported
from opwatch.host.device import BlockDevice
from opwatch.sweep.ata.commands import make_read_native_command, make_set_max_command
from opwatch.tools.acting.addresses.line import ABORTED, AtaLine

# Another process may send a command between the read and the set, and the drive then aborts the set.
_TRIES = 5
# The rescan is synchronous. A later size change is not its result.
_PATIENCE_S = 2.0


class HighestAddress:
    """Highest address of an open drive.

    Prefers SET MAX ADDRESS EXT, which a power cycle undoes. Raises Unsupported if the drive cannot report its
    highest address.
    """

    def __init__(self, descriptor: int, disk: BlockDevice) -> None:
        self._line, self.disk = AtaLine(descriptor, disk), disk
        self.offers = self._line.identify()
        self._is_accessible = not self.offers.has_protected_area
        self.way = "SET ACCESSIBLE MAX ADDRESS EXT" if self._is_accessible else "SET MAX ADDRESS EXT"

    def read_visible_bytes(self) -> int:
        """Return the size that the drive reports now."""
        self.offers = self._line.identify()
        return self.offers.sectors * self.offers.sector_bytes

    def read_native_bytes(self) -> int:
        """Return the native size in bytes. Reads only, changes nothing."""
        registers = self._line.send_command(make_read_native_command(is_accessible=self._is_accessible))
        if registers.is_failed:
            raise Unsupported(f"{self.disk.name} does not report its native maximum address ({registers})")
        return (registers.lba + 1) * self.offers.sector_bytes

    def set_visible_bytes(self, n_bytes: int) -> None:
        """Set the visible size. Raise OpwatchError if the drive refuses or then reports another size."""
        command = make_set_max_command(
            n_bytes // self.offers.sector_bytes - 1, is_accessible=self._is_accessible
        )
        for _ in range(_TRIES):
            self.read_native_bytes()
            registers = self._line.send_command(command)
            if not registers.is_failed or not registers.error & ABORTED:
                break
        if registers.is_failed:
            raise Unsupported(f"{self.disk.name} refuses {self.way} ({registers})")
        if (shown := self.read_visible_bytes()) != n_bytes:
            raise OpwatchError(f"{self.disk.name} shows {shown} bytes instead of the {n_bytes} that were set")

    def rescan(self) -> int:
        """Have the kernel rescan the drive, and return the kernel's size, which is outdated for drivers that
        read the size only once (libata)."""
        try:
            (self.disk.sysfs / "device" / "rescan").write_text("1")
        except OSError as error:
            raise OpwatchError(
                f"{self.disk.name}: the kernel cannot re-read its size: {error.strerror}"
            ) from error
        shown, until = self.read_visible_bytes(), time.monotonic() + _PATIENCE_S
        while (size := self.disk.size_bytes) != shown and time.monotonic() < until:
            time.sleep(0.05)
        return size


def require_full_size(address: HighestAddress) -> None:
    """Raise RefusedError if part of the drive is hidden, or Unsupported if the drive cannot report it."""
    disk, shown, native = address.disk, address.read_visible_bytes(), address.read_native_bytes()
    if shown != native:
        raise RefusedError(
            f"{disk.name} shows {shown} of its {native} bytes: the hidden part may hold data, and no "
            "discard reaches it"
        )
    if shown != disk.size_bytes:
        raise RefusedError(
            f"{disk.name} shows {shown} bytes, but the kernel uses {disk.size_bytes}: "
            "rescan it, then try again"
        )


def probe_highest(disk: BlockDevice) -> None:
    """Check that the drive's highest address can be read, without changes.

    Raises PermissionMissing without root, or another OpwatchError with the reason.
    """
    descriptor = open_device(disk)
    try:
        require_full_size(HighestAddress(descriptor, disk))
    finally:
        os.close(descriptor)
