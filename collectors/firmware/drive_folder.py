"""Find the files of a simulated drive from its loop device."""

from __future__ import annotations

from pathlib import Path

from opwatch.foreign import read_names, split_lines
from opwatch.host.device import BlockDevice


def find_drive_folder(device: BlockDevice) -> Path | None:
    """Return the folder behind a loop device or its partition, or None for other devices."""
    backing = device.disk.read_attribute("loop/backing_file")
    if not backing or not backing.endswith("/mnt/disk"):
        return None
    folder = Path(backing).parent
    mounts = split_lines(read_names(Path("/proc/self/mountinfo")))
    served = any(
        " - fuse.drive opwatch " in line and line.split(" ")[4:5] == [str(folder)] for line in mounts
    )
    return folder if served else None
