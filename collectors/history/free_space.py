"""Read the free space of all mounted filesystems on a disk."""

from __future__ import annotations

import time

from opwatch.collectors.space.lowest import find_free_landings
from opwatch.collectors.stack.layers import LayerReader
from opwatch.errors import OpwatchError
from opwatch.host.device import BlockDevice, Devices
from opwatch.host.usage import Mount, read_usage
from opwatch.trim.history.saved import DiskFreeSpace
from opwatch.trim.space.extents import Extents


def read_disk_free_space(devices: Devices, disk: BlockDevice, *, settled: bool) -> DiskFreeSpace | None:
    """Return the free space of the filesystems that report it, or None if none does.

    `settled`: sync the filesystems first. Space outside filesystems does not count, because its use is
    unknown.
    """
    usage = read_usage()
    reader = LayerReader(devices, usage)
    mounts: dict[tuple[str, str], Mount] = {(mount.dev, mount.source): mount for mount in usage.mounts}
    parts: list[Extents] = []
    for mount in mounts.values():
        stack = reader.read_mount(mount)
        if not stack.find_layer(disk.name):
            continue
        try:
            landings, _ = find_free_landings(devices, stack, mount, settled=settled)
        except OpwatchError:
            # A filesystem that does not report its free space counts as full.
            continue
        parts += [one.extents for one in landings if one.device == disk.name and not one.stopped]
    if not parts:
        return None
    return DiskFreeSpace(time.time_ns(), Extents.from_pairs(pair for part in parts for pair in part))
