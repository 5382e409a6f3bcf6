"""Find kernel targets that export a disk to other hosts, with the disk open but without a claim or a
process."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterator
from pathlib import Path

from opwatch.foreign import read_text

CONFIG = Path("/sys/kernel/config")


def find_exports(numbers: Collection[tuple[int, int]], config: Path = CONFIG) -> Iterator[str]:
    """Yield the targets for the given devices, as beginnings of sentences. NVMe targets and SCSI file targets
    open a device non-exclusively, so no claim shows such a user."""
    for path in sorted(config.glob("nvmet/subsystems/*/namespaces/*/device_path")):
        if _is_enabled(path) and _read_device_number(path) in numbers:
            yield f"the NVMe target {path.parents[2].name}"
    for path in sorted(config.glob("target/core/*/*/udev_path")):
        if _is_enabled(path) and _read_device_number(path) in numbers:
            yield f"the SCSI target {path.parents[1].name}/{path.parent.name}"


def _is_enabled(path: Path) -> bool:
    try:
        return read_text(path.with_name("enable")).strip() == "1"
    except OSError:
        return True


def _read_device_number(path: Path) -> tuple[int, int] | None:
    """Return the number of the device named in a file; None if the name is not a block device."""
    try:
        node = read_text(path).strip()
        # stat() of a path on an unresponsive file system would block; device nodes are below /dev.
        if not node.startswith("/dev/"):
            return None
        status = Path(node).stat()
    except (OSError, ValueError):
        return None
    return (os.major(status.st_rdev), os.minor(status.st_rdev)) if stat.S_ISBLK(status.st_mode) else None
