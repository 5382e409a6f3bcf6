"""Refuse a history of another drive than the one that it is used for."""

from __future__ import annotations

from opwatch.collectors.history.recorder import find_drive, identify_drive
from opwatch.errors import RefusedError
from opwatch.guard.identity import DiskIdentity
from opwatch.host.device import Devices
from opwatch.trim.history.saved import HistoryDrive
from opwatch.trim.history.sectormap import SECTOR
from opwatch.trim.history.validity import is_other_drive


def require_attached_drive(drive: HistoryDrive, device: str, history: str) -> None:
    """Raise RefusedError unless the history is of this device's drive."""
    devices = Devices()
    disk = devices.resolve(device).disk
    present = identify_drive(devices, disk)
    if _is_other(drive, present):
        found = find_drive(devices, drive)
        where = f"; {drive.name} is attached" if found and found.name != disk.name else ""
        raise RefusedError(f"{history} is the history of {_describe(drive)}, not of {disk.name}{where}")


def require_swept_drive(drive: HistoryDrive, identity: DiskIdentity, history: str, sweep: str) -> None:
    """Raise RefusedError unless the history is of the drive that a sweep measured."""
    sectors = identity.size_bytes // SECTOR
    swept = HistoryDrive(identity.name, identity.serial, identity.wwid, sectors, 1, 0)
    if _is_other(drive, swept):
        raise RefusedError(
            f"{history} is the history of {_describe(drive)}, but {sweep} measured another drive, "
            f"{_describe(swept)}: use a history of that drive"
        )


def _is_other(one: HistoryDrive, two: HistoryDrive) -> bool:
    return is_other_drive(one, two) or one.sectors != two.sectors


def _describe(drive: HistoryDrive) -> str:
    lasting = drive.serial or drive.wwid
    known = f"{lasting}, " if lasting else ""
    return f"{drive.name} ({known}{drive.sectors * SECTOR} bytes)"
