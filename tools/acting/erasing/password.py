"""Erase a drive. The journal holds the password for as long as the drive may have one."""

from __future__ import annotations

import fcntl
import os

from opwatch.collectors.space.device_handle import open_device
from opwatch.errors import OpwatchError, RefusedError
from opwatch.host.device import Devices
from opwatch.journal.changes import append_change, append_restoration
from opwatch.journal.file import JournalFile
from opwatch.journal.state import SweepState
from opwatch.journal.undo import PasswordUndo, parse_undo
from opwatch.sweep.ata.security import PASSWORD, format_unlock_commands
from opwatch.tools.acting.erasing.lockable import LockableDrive
from opwatch.tools.acting.guard.held_disk import HeldDisk

# linux/fs.h: write back and drop the kernel's cached pages of the disk.
_BLKFLSBUF = 0x1261


def erase_drive(claim: HeldDisk, journal: JournalFile, state: SweepState) -> None:
    """Erase the entire drive, or change nothing if it must not be erased.

    After a failure, the password is removed again.
    """
    disk = claim.disk
    drive = LockableDrive(claim.fileno(), disk)
    _require_same(drive.require_erasable().serial, state, disk.name)
    # Cached writes would reach the drive after the erase, and cached reads would be outdated.
    fcntl.ioctl(claim.fileno(), _BLKFLSBUF, 0)
    undo = PasswordUndo(PASSWORD)
    append_change(journal, state, undo)
    try:
        drive.set_password()
        drive.erase()
    except OpwatchError as error:
        _remove_password(drive, journal, f"{error}; and ")
        append_restoration(journal, state, undo)
        raise
    append_restoration(journal, state, undo)
    fcntl.ioctl(claim.fileno(), _BLKFLSBUF, 0)


def _remove_password(drive: LockableDrive, journal: JournalFile, before: str = "") -> None:
    try:
        drive.remove_password()
    except OpwatchError as error:
        name = drive.disk.name
        raise OpwatchError(
            f"{before}{name} has the password {PASSWORD} and will be locked after a power cycle, "
            f"because removing it failed: {error}; once that is fixed, {journal.resume_command} removes "
            f"it; or manually: {format_unlock_commands(name)}"
        ) from error


def _require_same(serial: str, state: SweepState, name: str) -> None:
    """Raise RefusedError if the drive reports another serial number than the kernel."""
    if serial != state.disk_identity.serial:
        raise RefusedError(
            f"{name} reports serial number {serial!r}, not {state.disk_identity.serial!r}: its password "
            "was not touched"
        )


def undo_passwords(devices: Devices, named: str, journal: JournalFile, state: SweepState) -> None:
    """Remove the password that a killed sweep left. No data are lost.

    A locked drive is unreadable and cannot be held, so only IDENTIFY data identify the drive.
    """
    for undo in [parse_undo(text) for text in state.undo]:
        if not isinstance(undo, PasswordUndo):
            continue
        disk = devices.resolve(named).disk
        descriptor = open_device(disk)
        try:
            drive = LockableDrive(descriptor, disk)
            _require_same(drive.identify_drive().serial, state, disk.name)
            _remove_password(drive, journal)
        finally:
            os.close(descriptor)
        append_restoration(journal, state, undo)
