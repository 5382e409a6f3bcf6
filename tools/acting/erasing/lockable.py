"""Security commands of an open ATA drive: set and remove the password, and erase everything."""

from __future__ import annotations

import os
import re
import time

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
    make_security_command,
)
from opwatch.sweep.ata.offers import AtaFeatures
from opwatch.sweep.ata.security import THAW, AtaSecurity, find_security_refusal, make_password_page
from opwatch.tools.acting.addresses.highest import HighestAddress, require_full_size
from opwatch.tools.acting.addresses.line import ABORTED, AtaLine

_NAMES = {
    SET_PASSWORD: "SECURITY SET PASSWORD",
    UNLOCK: "SECURITY UNLOCK",
    ERASE_PREPARE: "SECURITY ERASE PREPARE",
    DISABLE_PASSWORD: "SECURITY DISABLE PASSWORD",
}
# Another process may send a command between ERASE PREPARE and ERASE UNIT. The drive then aborts at once. A
# later failure means that the erase had started.
_TRIES, _AT_ONCE_S = 5, 1.0
# Drivers of controllers that may act on drives without an answer for hours.
_RAID = frozenset(
    ("megaraid_sas", "megaraid", "aacraid", "hpsa", "smartpqi", "arcmsr", "3w-9xxx", "3w-sas", "3w-xxxx")
) | {"mvumi", "stex", "hptiop", "ips", "esas2r", "gdth"}


class LockableDrive:
    """Open ATA drive. Raises Unsupported if the drive cannot be queried or refuses a command."""

    def __init__(self, descriptor: int, disk: BlockDevice) -> None:
        self._descriptor, self.disk = descriptor, disk
        self._line = AtaLine(descriptor, disk)

    def identify_drive(self) -> AtaFeatures:
        return self._line.identify()

    def require_erasable(self) -> AtaFeatures:
        """Return the drive's IDENTIFY data, or raise Unsupported or RefusedError if an erase is not safe."""
        offers, name = self.identify_drive(), self.disk.name
        if refused := find_bridge_refusal(self.disk) or find_security_refusal(offers.security, name):
            raise Unsupported(refused)
        # An erase covers the entire drive, including hidden sectors.
        if offers.has_protected_area or offers.has_accessible_max:
            require_full_size(HighestAddress(self._descriptor, self.disk))
        elif offers.sectors * offers.sector_bytes != self.disk.size_bytes:
            raise RefusedError(
                f"{name} shows {offers.sectors * offers.sector_bytes} bytes, but the kernel uses "
                f"{self.disk.size_bytes}: an erase would erase the whole drive"
            )
        return offers

    def _send_security(self, command: int, page: bytes = b"") -> None:
        registers = self._line.send_command(make_security_command(command), page)
        if registers.is_failed:
            raise Unsupported(f"{self.disk.name} refuses {_NAMES[command]} ({registers})")

    def set_password(self) -> None:
        self._send_security(SET_PASSWORD, make_password_page())

    def remove_password(self) -> None:
        """Remove our password. Raise OpwatchError if the drive still has one."""
        security = self.identify_drive().security
        if not security.has_password:
            return
        if security.is_frozen:
            raise OpwatchError(f"its security is frozen (IDENTIFY word 128 bit 3): {THAW}")
        if security.is_locked:
            self._send_security(UNLOCK, make_password_page())
        self._send_security(DISABLE_PASSWORD, make_password_page())
        if self.identify_drive().security.has_password:
            raise OpwatchError("it still has a password after SECURITY DISABLE PASSWORD")

    def erase(self) -> None:
        """Erase the entire drive, which also removes the password. Cannot be cancelled; waits for the end."""
        security, name = self.identify_drive().security, self.disk.name
        self._erase_unit(security)
        after = self.identify_drive().security
        if after.has_password or after.is_locked:
            raise OpwatchError(
                f"{name} reports a complete erase but still has its password: whether it was erased is "
                "unknown"
            )

    def _erase_unit(self, security: AtaSecurity) -> None:
        page = make_password_page(is_enhanced=security.has_only_enhanced)
        patience_ms = 1000 * security.erase_time.timeout_s
        for _ in range(_TRIES):
            self._send_security(ERASE_PREPARE)
            begun = time.monotonic()
            registers = self._line.send_command(make_security_command(ERASE_UNIT), page, patience_ms)
            took = time.monotonic() - begun
            if not registers.is_failed or not registers.error & ABORTED or took > _AT_ONCE_S:
                break
        if registers.is_failed:
            raise OpwatchError(
                f"{self.disk.name}: SECURITY ERASE UNIT failed after {took:.0f} s ({registers}): its "
                "contents are now unknown"
            )


def probe_erasable(disk: BlockDevice) -> None:
    """Check that the drive can be erased, without changes.

    Raises PermissionMissing without root, or another OpwatchError with the reason.
    """
    descriptor = open_device(disk)
    try:
        LockableDrive(descriptor, disk).require_erasable()
    finally:
        os.close(descriptor)


def find_bridge_refusal(disk: BlockDevice) -> str | None:
    """Return the reason why a password is unsafe behind this bridge or controller, or None."""
    place = disk.sysfs.resolve()
    if any(re.fullmatch(r"usb[0-9]+", part) for part in place.parts):
        return (
            f"{disk.name} is behind a USB bridge, which may abort a long erase or reset the drive and "
            "leave it locked: connect it by SATA"
        )
    for host in (path for path in place.parents if re.fullmatch(r"host[0-9]+", path.name)):
        driver = read_text(host / "scsi_host" / host.name / "proc_name").strip()
        if driver in _RAID:
            return (
                f"{disk.name} is behind a RAID controller ({driver}), which may reset a drive during a "
                "long erase and leave it locked: connect it by SATA or a plain SAS adapter"
            )
    return None
