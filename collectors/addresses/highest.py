"""The highest address that an ATA drive shows: asked of the drive itself, and set. What lies behind it is
there for nobody.
"""

from __future__ import annotations

import os
import time

from opwatch.collectors.space.raw_disk import open_device
from opwatch.collectors.space.scsi import ScsiAnswer, send_scsi
from opwatch.errors import BadInput, OpwatchError, PermissionMissing, RefusedError, Unsupported
from opwatch.host.device import BlockDevice
from opwatch.sweep.ata.commands import (
    AtaRegisters,
    decode_registers,
    identify_command,
    read_native_command,
    set_max_command,
)
from opwatch.sweep.ata.offers import AtaOffers, decode_identify

_IDENTIFY_BYTES = 512
# A drive may write down what is set before it answers.
_TIMEOUT_MS = 30_000
# A command of somebody else's may come between the look and the setting, which the drive aborts then.
_TRIES, _ABORTED = 5, 0x04
# The kernel looks while it is told to; what comes later is no answer to that.
_PATIENCE_S = 2.0


class HighestAddress:
    """The highest address of the drive that is open. By SET MAX ADDRESS EXT, which a loss of power undoes,
    where the drive knows that. Unsupported where it cannot be asked."""

    def __init__(self, descriptor: int, disk: BlockDevice) -> None:
        self._descriptor, self.disk = descriptor, disk
        self.offers = self._identify()
        self._is_accessible = not self.offers.has_protected_area
        self.way = "SET ACCESSIBLE MAX ADDRESS EXT" if self._is_accessible else "SET MAX ADDRESS EXT"

    def _identify(self) -> AtaOffers:
        answer = self._send(identify_command(), _IDENTIFY_BYTES)
        if not answer.is_good:
            raise Unsupported(f"{self.disk.name}: IDENTIFY DEVICE does not get to the drive ({_why(answer)})")
        try:
            return decode_identify(answer.data)
        except BadInput as error:
            raise Unsupported(f"{self.disk.name}: {error}") from error

    def _send(self, command: bytes, length: int = 0) -> ScsiAnswer:
        try:
            return send_scsi(self._descriptor, command, length, _TIMEOUT_MS)
        except PermissionError as error:
            raise PermissionMissing(f"ATA commands to {self.disk.name} are for root only") from error
        except OSError as error:
            raise Unsupported(f"{self.disk.name} takes no ATA commands: {error.strerror}") from error

    def _ask(self, command: bytes) -> AtaRegisters:
        answer = self._send(command)
        try:
            return decode_registers(answer.sense)
        except BadInput as error:
            raise Unsupported(f"{self.disk.name}: {error} ({_why(answer)})") from error

    def shown_bytes(self) -> int:
        """What the drive shows now, as it says itself."""
        self.offers = self._identify()
        return self.offers.sectors * self.offers.sector_bytes

    def native_bytes(self) -> int:
        """The most that it can show. It reads, and changes nothing."""
        registers = self._ask(read_native_command(is_accessible=self._is_accessible))
        if registers.is_failed:
            raise Unsupported(f"{self.disk.name} does not tell its native highest address ({registers})")
        return (registers.lba + 1) * self.offers.sector_bytes

    def set(self, n_bytes: int) -> None:
        """Have the drive show so many bytes. OpwatchError where it refuses, or shows others then."""
        command = set_max_command(n_bytes // self.offers.sector_bytes - 1, is_accessible=self._is_accessible)
        for _ in range(_TRIES):
            self.native_bytes()
            registers = self._ask(command)
            if not registers.is_failed or not registers.error & _ABORTED:
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


def _why(answer: ScsiAnswer) -> str:
    return f"status {answer.status:02X}h, sense {answer.sense[:22].hex() or 'none'}"


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
