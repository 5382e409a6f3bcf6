"""The erase of a drive, with its password in the journal for as long as the drive may have it."""

from __future__ import annotations

import fcntl
import os

from opwatch.collectors.erasing.lockable import LockableDrive
from opwatch.collectors.guard.held_disk import HeldDisk
from opwatch.collectors.space.device_handle import open_device
from opwatch.errors import OpwatchError, RefusedError
from opwatch.host.device import Devices
from opwatch.sweep.ata.security import PASSWORD, by_hand
from opwatch.sweep.journal.changes import note_changed, note_restored
from opwatch.sweep.journal.file import JournalFile
from opwatch.sweep.journal.state import SweepState
from opwatch.sweep.journal.undo import PasswordUndo, parse_undo

# linux/fs.h: write what the kernel has of the disk's pages, and forget them.
_BLKFLSBUF = 0x1261


def erase_drive(claim: HeldDisk, journal: JournalFile, state: SweepState) -> None:
    """Erase all of the drive. Nothing is done where it is not to be erased; where anything fails behind the
    password, that is taken away again."""
    disk = claim.disk
    drive = LockableDrive(claim.fileno(), disk)
    _require_same(drive.require_erasable().serial, state, disk.name)
    # What the kernel has still to write would come behind the erase, and what it has read is gone then.
    fcntl.ioctl(claim.fileno(), _BLKFLSBUF, 0)
    undo = PasswordUndo(PASSWORD)
    note_changed(journal, state, undo)
    try:
        drive.set_password()
        drive.erase()
    except OpwatchError as error:
        _take_away(drive, journal, f"{error}; and ")
        note_restored(journal, state, undo)
        raise
    note_restored(journal, state, undo)
    fcntl.ioctl(claim.fileno(), _BLKFLSBUF, 0)


def _take_away(drive: LockableDrive, journal: JournalFile, before: str = "") -> None:
    try:
        drive.take_password_away()
    except OpwatchError as error:
        name = drive.disk.name
        raise OpwatchError(
            f"{before}{name} has the password {PASSWORD}, and is locked once it was without power: it could "
            f"not be taken away: {error}; once that is mended, {journal.resume_words} does it; or by hand: "
            f"{by_hand(name)}"
        ) from error


def _require_same(serial: str, state: SweepState, name: str) -> None:
    """RefusedError where the drive calls itself by another serial number than the kernel calls it."""
    if serial != state.identity.serial:
        raise RefusedError(
            f"{name} calls itself {serial!r}, and not {state.identity.serial!r}: whose password it would be "
            "is not known"
        )


def undo_passwords(devices: Devices, named: str, journal: JournalFile, state: SweepState) -> None:
    """Take away the password that a sweep has left which was killed. A drive that is locked can be held by
    nobody, for it cannot be read: it is known by what it says itself. Nothing on it is lost by that."""
    for undo in [parse_undo(text) for text in state.undo]:
        if not isinstance(undo, PasswordUndo):
            continue
        disk = devices.resolve(named).disk
        descriptor = open_device(disk)
        try:
            drive = LockableDrive(descriptor, disk)
            _require_same(drive.look().serial, state, disk.name)
            _take_away(drive, journal)
        finally:
            os.close(descriptor)
        note_restored(journal, state, undo)
