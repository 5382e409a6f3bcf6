"""Find kernel targets that export a disk to other hosts, with the disk open but without a claim or a
process."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterator
from pathlib import Path

from opwatch.foreign import read_text

CONFIG = Path("/sys/kernel/config")


def exports_of(numbers: Collection[tuple[int, int]], config: Path = CONFIG) -> Iterator[str]:
    """Yield the targets for the given devices, as beginnings of sentences. NVMe targets and SCSI file targets
    open a device non-exclusively, so no claim shows such a user."""
    for path in sorted(config.glob("nvmet/subsystems/*/namespaces/*/device_path")):
        if _is_on(path) and _number_of(path) in numbers:
            yield f"the NVMe target {path.parents[2].name}"
    for path in sorted(config.glob("target/core/*/*/udev_path")):
        if _is_on(path) and _number_of(path) in numbers:
            yield f"the SCSI target {path.parents[1].name}/{path.parent.name}"


def _is_on(path: Path) -> bool:
    try:
        return read_text(path.with_name("enable")).strip() == "1"
    except OSError:
        return True


def _number_of(path: Path) -> tuple[int, int] | None:
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
