"""The security of an ATA drive that is open: its password is set and taken away, and all on it is erased."""

from __future__ import annotations

import os
import re
import time

from opwatch.collectors.addresses.highest import HighestAddress, require_whole
from opwatch.collectors.addresses.line import ABORTED, AtaLine
from opwatch.collectors.space.device_handle import open_device
from opwatch.errors import OpwatchError, RefusedError, Unsupported
from opwatch.foreign import read_text
from opwatch.host.device import BlockDevice
from opwatch.sweep.ata.commands import (
    DISABLE_PASSWORD,
    ERASE_PREPARE,
    ERASE_UNIT,
    SET_PASSWORD,
    UNLOCK,
    security_command,
)
from opwatch.sweep.ata.offers import AtaOffers
from opwatch.sweep.ata.security import THAW, AtaSecurity, password_page, security_refusal

_NAMES = {
    SET_PASSWORD: "SECURITY SET PASSWORD",
    UNLOCK: "SECURITY UNLOCK",
    ERASE_PREPARE: "SECURITY ERASE PREPARE",
    DISABLE_PASSWORD: "SECURITY DISABLE PASSWORD",
}
# A command of somebody else's may come between ERASE PREPARE and ERASE UNIT, which the drive aborts then, at
# once. What fails later was begun.
_TRIES, _AT_ONCE_S = 5, 1.0
# Drivers of controllers that have a mind of their own about drives that do not answer for hours.
_RAID = frozenset(
    ("megaraid_sas", "megaraid", "aacraid", "hpsa", "smartpqi", "arcmsr", "3w-9xxx", "3w-sas", "3w-xxxx")
) | {"mvumi", "stex", "hptiop", "ips", "esas2r", "gdth"}


class LockableDrive:
    """The drive that is open. Unsupported where it cannot be asked, or refuses."""

    def __init__(self, descriptor: int, disk: BlockDevice) -> None:
        self._descriptor, self.disk = descriptor, disk
        self._line = AtaLine(descriptor, disk)

    def look(self) -> AtaOffers:
        return self._line.identify()

    def require_erasable(self) -> AtaOffers:
        """What it says of itself. Unsupported or RefusedError where it is not to be erased; nothing is
        changed."""
        offers, name = self.look(), self.disk.name
        if refused := way_refusal(self.disk) or security_refusal(offers.security, name):
            raise Unsupported(refused)
        # An erase is of all of the drive, whatever it shows.
        if offers.has_protected_area or offers.has_accessible_max:
            require_whole(HighestAddress(self._descriptor, self.disk))
        elif offers.sectors * offers.sector_bytes != self.disk.size_bytes:
            raise RefusedError(
                f"{name} shows {offers.sectors * offers.sector_bytes} bytes, and the kernel "
                f"{self.disk.size_bytes}: an erase is of all of the drive"
            )
        return offers

    def _do(self, command: int, page: bytes = b"") -> None:
        registers = self._line.ask(security_command(command), page)
        if registers.is_failed:
            raise Unsupported(f"{self.disk.name} refuses {_NAMES[command]} ({registers})")

    def set_password(self) -> None:
        self._do(SET_PASSWORD, password_page())

    def take_password_away(self) -> None:
        """Leave it without our password. OpwatchError where it has one nevertheless."""
        security = self.look().security
        if not security.has_password:
            return
        if security.is_frozen:
            raise OpwatchError(f"its security is frozen (IDENTIFY word 128 bit 3): {THAW}")
        if security.is_locked:
            self._do(UNLOCK, password_page())
        self._do(DISABLE_PASSWORD, password_page())
        if self.look().security.has_password:
            raise OpwatchError("it has a password, although it took SECURITY DISABLE PASSWORD")

    def erase(self) -> None:
        """Erase all of it, which takes the password away. It cannot be called back, and is waited for."""
        security, name = self.look().security, self.disk.name
        self._erase(security)
        after = self.look().security
        if after.has_password or after.is_locked:
            raise OpwatchError(
                f"{name} says that it has erased all, and has its password nevertheless: whether it has is "
                "not known"
            )

    def _erase(self, security: AtaSecurity) -> None:
        page = password_page(is_enhanced=security.is_enhanced_alone)
        patience_ms = 1000 * security.time.patience_s
        for _ in range(_TRIES):
            self._do(ERASE_PREPARE)
            begun = time.monotonic()
            registers = self._line.ask(security_command(ERASE_UNIT), page, patience_ms)
            took = time.monotonic() - begun
            if not registers.is_failed or not registers.error & ABORTED or took > _AT_ONCE_S:
                break
        if registers.is_failed:
            raise OpwatchError(
                f"{self.disk.name}: SECURITY ERASE UNIT failed after {took:.0f} s ({registers}): what is on "
                "it by now nobody knows"
            )


def probe_erasable(disk: BlockDevice) -> None:
    """Ask the drive, without a change, whether it can be erased. PermissionMissing without root; any other
    OpwatchError says why not."""
    descriptor = open_device(disk)
    try:
        LockableDrive(descriptor, disk).require_erasable()
    finally:
        os.close(descriptor)


def way_refusal(disk: BlockDevice) -> str | None:
    """Why what lies between the drive and the kernel is not trusted with a password; None where it is."""
    place = disk.sysfs.resolve()
    if any(re.fullmatch(r"usb[0-9]+", part) for part in place.parts):
        return (
            f"{disk.name} is behind a USB bridge, which may end a long erase, or reset the drive, and leave "
            "it locked: connect it by SATA"
        )
    for host in (path for path in place.parents if re.fullmatch(r"host[0-9]+", path.name)):
        driver = read_text(host / "scsi_host" / host.name / "proc_name").strip()
        if driver in _RAID:
            return (
                f"{disk.name} is behind a RAID controller ({driver}), which may reset a drive that does not "
                "answer for long, and leave it locked: connect it by SATA or a plain SAS adapter"
            )
    return None
