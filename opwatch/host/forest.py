"""Block devices as trees: disks, their partitions, and stacked devices."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from opwatch.host.device import BlockDevice, Devices


@dataclass(frozen=True, slots=True)
class Node:
    """A device and the devices on top. A device on top of several others appears under each; all nodes but
    the first have `again` set and no children."""

    device: BlockDevice
    children: tuple[Node, ...] = ()
    again: bool = False


def natural(name: str) -> list[tuple[int, str]]:
    """Return a sort key; orders sda2 before sda10, and sdz before sdaa."""
    key = []
    for letters, digits in re.findall(r"(\D+)|(\d+)", name):
        key.append((len(letters or digits.lstrip("0")), letters or digits))
    return key


class _Builder:
    def __init__(self, devices: Devices) -> None:
        self._devices = devices
        self._shown: set[str] = set()

    def node(self, device: BlockDevice) -> Node:
        if device.name in self._shown:
            return Node(device, again=True)
        self._shown.add(device.name)
        return Node(device, tuple(self.node(upper) for upper in self._above(device)))

    def _above(self, device: BlockDevice) -> Iterable[BlockDevice]:
        """Yield partitions, then holders, then the paths below a multipath head."""
        yield from self._devices.partitions(device)
        for name in sorted(device.holders(), key=natural):
            holder = self._devices.by_name(name)
            if holder:
                yield holder
        yield from self._devices.paths(device)

    def forest(self) -> list[Node]:
        # Drives first, then virtual devices: loop, zram, ...
        disks = sorted(self._devices.disks(), key=lambda disk: (disk.kind() != "disk", natural(disk.name)))
        under_heads = {path.name for disk in disks for path in self._devices.paths(disk)}
        bottom = [disk for disk in disks if not disk.below() and disk.name not in under_heads]
        trees = [self.node(disk) for disk in bottom]
        # A device is a root if all lower devices vanished during the reading.
        return trees + [self.node(disk) for disk in disks if disk.name not in self._shown]


def forest(devices: Devices) -> list[Node]:
    """Return the trees, with every device at least once."""
    return _Builder(devices).forest()
