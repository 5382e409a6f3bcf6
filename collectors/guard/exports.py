"""Who lends a disk to other hosts: targets in the kernel, which have it open without a claim or a process."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterator
from pathlib import Path

from opwatch.foreign import read_text

CONFIG = Path("/sys/kernel/config")


def exports_of(numbers: Collection[tuple[int, int]], config: Path = CONFIG) -> Iterator[str]:
    """The targets that have one of these devices, beginnings of sentences. NVMe's and those of SCSI that have
    it as a file open it as anybody may: no claim shows them."""
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
    """The number of the device behind the path that this file holds, None when it is none."""
    try:
        node = read_text(path).strip()
        # A file of a file system that does not answer would keep us waiting: devices have such names.
        if not node.startswith("/dev/"):
            return None
        status = Path(node).stat()
    except (OSError, ValueError):
        return None
    return (os.major(status.st_rdev), os.minor(status.st_rdev)) if stat.S_ISBLK(status.st_mode) else None
