"""Open a block device by name, and verify its identity."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from opwatch.errors import OpwatchError, PermissionMissing, RefusedError
from opwatch.host.device import BlockDevice
from opwatch.host.loop import read_diskseq


def read_disk_sequence(device: BlockDevice) -> int | None:
    """Return the diskseq of a device's disk, which is unique per boot, or None before Linux 5.15."""
    return device.disk.read_number("diskseq")


def open_node(node: Path, flags: int) -> int:
    """Open a node, with errors in words."""
    try:
        return os.open(node, os.O_RDONLY | os.O_CLOEXEC | flags)
    except PermissionError as error:
        raise PermissionMissing(f"opening {node} requires root") from error
    except OSError as error:
        raise OpwatchError(f"{node}: {error.strerror}") from error


def open_device(device: BlockDevice) -> int:
    """Return a descriptor of this disk, or raise RefusedError if the node leads to another device."""
    node = Path("/dev") / device.name
    descriptor = open_node(node, os.O_NONBLOCK)
    status = os.fstat(descriptor)
    dev = (os.major(status.st_rdev), os.minor(status.st_rdev))
    is_same = stat.S_ISBLK(status.st_mode) and dev == device.dev
    if is_same and read_diskseq(descriptor) in (None, read_disk_sequence(device)):
        return descriptor
    os.close(descriptor)
    raise RefusedError(f"{node} is no longer {device.name}: the device has changed")
