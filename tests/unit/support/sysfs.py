"""Small sysfs trees in a folder, with the kernel's layout: real folders below devices/, links everywhere
else."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from opwatch.host.device import BlockDevice, Devices

PCI = "pci0000:00/0000:00:1f.2"
SSD_QUEUE = {
    "rotational": "0",
    "scheduler": "[none] mq-deadline",
    "write_cache": "write back",
    "logical_block_size": "512",
    "physical_block_size": "4096",
    "max_sectors_kb": "1280",
    "max_hw_sectors_kb": "32767",
    "discard_granularity": "512",
    "discard_max_bytes": "2147450880",
    "discard_max_hw_bytes": "2147450880",
    "write_zeroes_max_bytes": "0",
    "nr_requests": "256",
    "wbt_lat_usec": "2000",
    "iostats": "1",
    "io_poll": "0",
    "fua": "1",
    "zoned": "none",
}


def write_attributes(folder: Path, attributes: Mapping[str, str | bytes]) -> None:
    for name, value in attributes.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(value if isinstance(value, bytes) else value.encode() + b"\n")


class Tree:
    def __init__(self, root: Path) -> None:
        self.sys = root / "sys"
        self.dev = root / "dev"
        for folder in ("block", "class/block", "dev/block", "devices"):
            (self.sys / folder).mkdir(parents=True)
        self.dev.mkdir()
        self.devices = Devices(self.sys, self.dev)

    def __getitem__(self, name: str) -> BlockDevice:
        device = self.devices.by_name(name)
        assert device, f"the tree has no {name}"
        return device

    def _add_link(self, path: str, target: Path) -> None:
        link = self.sys / path
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(target, link.parent))

    def _add_device(self, folder: Path, dev: str | None, sectors: int) -> None:
        write_attributes(folder, {"size": str(sectors), "ro": "0"})
        self._add_link(f"class/block/{folder.name}", folder)
        if dev:
            write_attributes(folder, {"dev": dev})
            self._add_link(f"dev/block/{dev}", folder)
        for links in ("slaves", "holders"):
            (folder / links).mkdir()

    def add_disk(
        self,
        name: str,
        dev: str | None,
        *,
        where: str = "virtual/block",
        sectors: int = 1 << 21,
        tags: Sequence[int] = (),
        queue: Mapping[str, str] | None = None,
        attributes: Mapping[str, str | bytes] | None = None,
    ) -> Path:
        """Add a whole disk below devices/`where`. `tags` has the tag count of each hardware queue; without
        tags the disk is bio-based."""
        folder = self.sys / "devices" / where / name.replace("/", "!")
        folder.mkdir(parents=True)
        self._add_device(folder, dev, sectors)
        self._add_link(f"block/{folder.name}", folder)
        write_attributes(folder, {"hidden": "0" if dev else "1", "removable": "0"})
        write_attributes(folder / "queue", SSD_QUEUE if queue is None else queue)
        for index, count in enumerate(tags):
            write_attributes(folder / "mq" / str(index), {"nr_tags": str(count)})
        write_attributes(folder, attributes or {})
        return folder

    def add_partition(self, disk: str, name: str, dev: str, *, start: int, sectors: int) -> Path:
        folder = self[disk].sysfs / name
        folder.mkdir()
        number = "".join(char for char in reversed(name) if char.isdigit())[::-1]
        write_attributes(folder, {"partition": number, "start": str(start), "discard_alignment": "0"})
        self._add_device(folder, dev, sectors)
        return folder

    def stack_device(self, upper: str, *lowers: str) -> None:
        """Stack `upper` on the other devices."""
        top = self[upper].sysfs
        for lower in lowers:
            folder = self[lower].sysfs
            (top / "slaves" / folder.name).symlink_to(folder)
            (folder / "holders" / top.name).symlink_to(top)

    def set_driver(self, where: str, name: str, link: str = "driver") -> None:
        """Give the folder devices/`where` this driver."""
        self._add_link(f"devices/{where}/{link}", self.sys / "bus" / "some" / "drivers" / name)


def add_sata_disks(tree: Tree) -> None:
    """sda and sdb: partitions, a raid1 on one of each, dm-crypt on the last."""
    for index, letter in enumerate("ab"):
        where = f"{PCI}/ata{index + 1}/host{index}/target{index}:0:0/{index}:0:0:0"
        page = b"\0\x80\0\x0e" + f"S3Z8NB0K5077{letter}".encode().rjust(14)
        folder = tree.add_disk(
            f"sd{letter}", f"8:{index * 16}", where=f"{where}/block", sectors=1875385008, tags=[32]
        )
        write_attributes(
            tree.sys / "devices" / where,
            {"model": "SAMSUNG MZ7LH960", "vendor": "ATA     ", "rev": "904Q", "vpd_pg80": page},
        )
        write_attributes(tree.sys / "devices" / where, {"wwid": "naa.5002538e4034d3ab"})
        (folder / "device").symlink_to(os.path.relpath(tree.sys / "devices" / where, folder))
        tree.set_driver(where, "sd")
        for number, (start, sectors) in enumerate(
            ((2048, 1 << 20), (1 << 21, 1 << 22), (1 << 23, 1 << 24)), 1
        ):
            name = f"sd{letter}{number}"
            tree.add_partition(f"sd{letter}", name, f"8:{index * 16 + number}", start=start, sectors=sectors)
    tree.set_driver(PCI, "ahci")
    tree.add_disk("md0", "9:0", attributes={"md/level": "raid1"})
    tree.stack_device("md0", "sda2", "sdb2")
    label = {"dm/uuid": "CRYPT-LUKS2-0123456789abcdef-root", "dm/name": "cryptroot"}
    tree.add_disk("dm-0", "253:0", attributes=label)
    tree.stack_device("dm-0", "sda3")


def add_nvme_disks(tree: Tree) -> None:
    """nvme0n1, the only namespace of its controller; nvme1n1, a multipath head with two hidden paths."""
    controller = "pci0000:00/0000:00:04.0/nvme/nvme0"
    facts = {
        "model": "ACME 7400 1920GB   ",
        "serial": "S0001",
        "firmware_rev": "E2MU200",
        "transport": "pcie",
    }
    folder = tree.add_disk(
        "nvme0n1",
        "259:0",
        where=controller,
        sectors=3750748848,
        tags=[1023] * 8,
        attributes={"wwid": "eui.00253885614003d1"},
    )
    write_attributes(tree.sys / "devices" / controller, facts)
    (folder / "device").symlink_to("..")
    tree.set_driver("pci0000:00/0000:00:04.0", "nvme")
    head = tree.add_disk("nvme1n1", "259:2", where="virtual/nvme-subsystem/nvme-subsys1", sectors=3750748848)
    write_attributes(head.parent, {key: facts[key] for key in ("model", "serial", "firmware_rev")})
    (head / "device").symlink_to("..")
    for number in (1, 2):
        where = f"pci0000:00/0000:00:0{number + 4}.0/nvme/nvme{number}"
        path = tree.add_disk(f"nvme1c{number}n1", None, where=where, sectors=3750748848, tags=[127])
        write_attributes(tree.sys / "devices" / where, facts)
        (path / "device").symlink_to("..")
        tree.set_driver(f"pci0000:00/0000:00:0{number + 4}.0", "nvme")


def add_virtual_disks(tree: Tree) -> None:
    """zram0; loop0 with a file and loop1 without; cciss/c0d0, with a slash in its name."""
    tree.add_disk("zram0", "252:0", queue=SSD_QUEUE | {"scheduler": "none", "write_cache": "write through"})
    tree.add_disk("loop0", "7:0", tags=[128], attributes={"loop/backing_file": "/srv/disk one.img"})
    tree.add_disk("loop1", "7:1", sectors=0, tags=[128])
    tree.add_disk("cciss/c0d0", "104:0", where="pci0000:00/cciss0", tags=[64])


def make_machine(root: Path) -> Tree:
    """Return a machine with one of each."""
    tree = Tree(root)
    add_sata_disks(tree)
    add_nvme_disks(tree)
    add_virtual_disks(tree)
    return tree
