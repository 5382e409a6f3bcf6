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


def natural_key(name: str) -> list[tuple[int, str]]:
    """Return a sort key; orders sda2 before sda10, and sdz before sdaa."""
    key = []
    for letters, digits in re.findall(r"(\D+)|(\d+)", name):
        key.append((len(letters or digits.lstrip("0")), letters or digits))
    return key


class _Builder:
    def __init__(self, devices: Devices) -> None:
        self._devices = devices
        self._shown: set[str] = set()

    def build_node(self, device: BlockDevice) -> Node:
        if device.name in self._shown:
            return Node(device, again=True)
        self._shown.add(device.name)
        return Node(device, tuple(self.build_node(upper) for upper in self._list_upper(device)))

    def _list_upper(self, device: BlockDevice) -> Iterable[BlockDevice]:
        """Yield partitions, then holders, then the paths below a multipath head."""
        yield from self._devices.list_partitions(device)
        for name in sorted(device.list_holders(), key=natural_key):
            holder = self._devices.by_name(name)
            if holder:
                yield holder
        yield from self._devices.list_paths(device)

    def build(self) -> list[Node]:
        # Drives first, then virtual devices: loop, zram, ...
        disks = sorted(
            self._devices.iter_disks(), key=lambda disk: (disk.read_kind() != "disk", natural_key(disk.name))
        )
        under_heads = {path.name for disk in disks for path in self._devices.list_paths(disk)}
        bottom = [disk for disk in disks if not disk.list_lower_devices() and disk.name not in under_heads]
        trees = [self.build_node(disk) for disk in bottom]
        # A device is a root if all lower devices vanished during the reading.
        return trees + [self.build_node(disk) for disk in disks if disk.name not in self._shown]


def build_forest(devices: Devices) -> list[Node]:
    """Return the trees, with every device at least once."""
    return _Builder(devices).build()
