"""The log pages of a simulated drive, found from its loop device. The bytes are a real drive's."""

from __future__ import annotations

from opwatch.collectors.firmware.drive_folder import drive_folder
from opwatch.host.device import BlockDevice

TYPE_CHECKING = False
if TYPE_CHECKING:
    from opwatch.collectors.firmware.transports import FolderTransport

# Longer than anybody makes a page take with the fault log-slow.
_ANSWER_S = 600


def find_simulated(device: BlockDevice) -> FolderTransport | None:
    """The drive behind a loop device or a partition of it; None for every other device."""
    folder = drive_folder(device)
    if not folder:
        return None
    # These are imported for simulated drives alone: every audit asks whether a disk is one.
    from opwatch.collectors.firmware.transports import FolderTransport
    from opwatch.drive.place import Place
    from opwatch.drive.process import ask

    place = Place(folder.parent.name, folder.parent.parent)
    return FolderTransport(folder, lambda question: ask(place, question, _ANSWER_S))
