"""The devices requested by the user, and the disks that currently perform the I/O."""

from __future__ import annotations

from collections.abc import Sequence

from opwatch.errors import UsageError
from opwatch.host.device import BlockDevice, Devices, Leaf


class Selection:
    """Devices by name, resolved once, or all disks of the machine. Lower devices are looked up each time."""

    def __init__(self, devices: Devices, names: Sequence[str] | None) -> None:
        self._devices = devices
        self.named = [devices.resolve(name) for name in names or ()]
        # Named devices no longer present; another disk may have the same name.
        self.absent: set[BlockDevice] = set()
        for device in self.named:
            if not device.size_bytes:
                raise UsageError(f"{device.name} has no medium (its size is 0)")

    def find_leaves(self) -> list[Leaf]:
        """Return the disks to trace now. A disk shared by several named devices belongs to the first."""
        if not self.named:
            return self._list_all_disks()
        by_device: dict[BlockDevice, Leaf] = {}
        for device in self.named:
            if device in self.absent:
                continue
            for leaf in self._devices.find_leaves(device):
                by_device.setdefault(leaf.device, leaf)
        return list(by_device.values())

    def _list_all_disks(self) -> list[Leaf]:
        disks = [disk for disk in self._devices.iter_disks() if disk.size_bytes]
        visible = [disk for disk in disks if disk.is_request_based and not disk.is_hidden]
        heads = [disk for disk in disks if not disk.is_request_based and disk.name.startswith("nvme")]
        paths = [leaf for head in heads for leaf in self._devices.find_leaves(head)]
        return [Leaf(disk, disk) for disk in visible] + paths

    def list_notes(self) -> list[str]:
        """Return notes on where the named devices' I/O is counted, if not obvious."""
        return [
            note
            for device in self.named
            for note in _describe_leaves(device, self._devices.find_leaves(device))
        ]


def _describe_leaves(device: BlockDevice, leaves: Sequence[Leaf]) -> list[str]:
    names = ", ".join(leaf.device.name for leaf in leaves)
    if names != device.name:
        return [
            f"{device.name} is {device.read_kind()}: its I/O is traced on {names}, each in separate rows. "
            "I/O of other users of these disks is counted too."
        ]
    if device.is_partition:
        first, last = device.sector_range
        return [
            f"{device.name}: only sectors {first} to {last} of {device.disk.name} are counted; flushes are "
            "not counted, because they belong to the whole disk."
        ]
    if not device.is_request_based:
        return [f"{device.name}: its driver is bio-based; each bio is traced from submission to completion."]
    return []
