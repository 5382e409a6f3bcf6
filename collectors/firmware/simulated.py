"""Find the log pages of a simulated drive from its loop device. The layout equals a real drive's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opwatch.collectors.firmware.drive_folder import find_drive_folder
from opwatch.host.device import BlockDevice

if TYPE_CHECKING:
    from opwatch.collectors.firmware.transports import FolderTransport


# Longer than any delay with the fault log-slow.
_ANSWER_S = 600


def find_simulated(device: BlockDevice) -> FolderTransport | None:
    """Return the drive behind a loop device or its partition, or None for other devices."""
    folder = find_drive_folder(device)
    if not folder:
        return None
    # Imported only for simulated drives, because each audit calls this function.
    from opwatch.collectors.firmware.transports import FolderTransport
    from opwatch.drive.place import DriveFolder
    from opwatch.drive.process import run_with_timeout

    place = DriveFolder(folder.parent.name, folder.parent.parent)
    return FolderTransport(folder, lambda question: run_with_timeout(place, question, _ANSWER_S))
