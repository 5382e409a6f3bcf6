"""The log pages of a simulated drive, found from its loop device. The bytes are a real drive's."""

from __future__ import annotations

from opwatch.collectors.firmware.drive_folder import drive_folder
from opwatch.collectors.firmware.transports import FolderTransport
from opwatch.host.device import BlockDevice


def find_simulated(device: BlockDevice) -> FolderTransport | None:
    """The drive behind a loop device or a partition of it; None for every other device."""
    folder = drive_folder(device)
    return FolderTransport(folder) if folder else None
