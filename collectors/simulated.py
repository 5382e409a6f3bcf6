"""The log pages of a simulated drive, found from its loop device. The bytes are a real drive's."""

from __future__ import annotations

from pathlib import Path

from opwatch.collectors.transports import FolderTransport
from opwatch.device import BlockDevice
from opwatch.foreign import lines_of, read_names


def find_simulated(device: BlockDevice) -> FolderTransport | None:
    """The drive behind a loop device or a partition of it; None for every other device."""
    backing = device.disk.attribute("loop/backing_file")
    if not backing or not backing.endswith("/mnt/disk"):
        return None
    folder = Path(backing).parent
    mounts = lines_of(read_names(Path("/proc/self/mountinfo")))
    served = any(
        " - fuse.drive opwatch " in line and line.split(" ")[4:5] == [str(folder)] for line in mounts
    )
    return FolderTransport(folder) if served else None
