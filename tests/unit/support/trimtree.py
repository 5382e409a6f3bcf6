"""Stacks in a fake sysfs tree, read and predicted like those of a real machine."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from opwatch.collectors.stack.layers import LayerReader
from opwatch.counters.decode.identify import Controller, Namespace
from opwatch.errors import OpwatchError
from opwatch.host.device import BlockDevice
from opwatch.host.usage import Usage, parse_mountinfo
from opwatch.trim.check.prediction import FreeExtents, Prediction, predict_trim
from opwatch.trim.space.extents import Extents
from opwatch.trim.stack import dmtable
from opwatch.trim.stack.dmtable import DmTarget
from opwatch.trim.stack.layers import Stack
from tests.unit.support.sysfs import SSD_QUEUE, Tree, write_attributes

NO_DISCARD = SSD_QUEUE | {"discard_granularity": "0", "discard_max_bytes": "0", "discard_max_hw_bytes": "0"}
MIB = 1 << 20


@dataclass
class FakeDm:
    """Tables and status lines by minor number; unreadable if locked."""

    tables: dict[int, str] = field(default_factory=dict)
    statuses: dict[int, str] = field(default_factory=dict)
    locked: bool = False

    def _parse_text(self, texts: dict[int, str], dev: tuple[int, int]) -> list[DmTarget]:
        if self.locked or dev[1] not in texts:
            raise OpwatchError("reading device-mapper tables requires root")
        return dmtable.parse_table(texts[dev[1]])

    def read_table(self, dev: tuple[int, int]) -> list[DmTarget]:
        return self._parse_text(self.tables, dev)

    def read_status(self, dev: tuple[int, int]) -> list[DmTarget]:
        return self._parse_text(self.statuses, dev)


class Machine:
    """A tree, its device-mapper tables, the answers of its NVMe drives, and its mounts."""

    def __init__(self, root: Path) -> None:
        self.tree = Tree(root)
        self.dm = FakeDm()
        self.identify: dict[str, tuple[Controller, Namespace]] = {}
        self.mountinfo = ""
        self.members: dict[str, str] = {}

    def add_sata_disk(self, *, trim: str, queue: Mapping[str, str]) -> None:
        """sda behind libata, with libata's trim attribute."""
        port = "pci0000:00/0000:00:1f.2/ata1"
        self.add_scsi_disk(where=f"{port}/host0/target0:0:0/0:0:0:0", queue=queue)
        write_attributes(self.tree.sys / "devices" / port, {"link1/dev1.0/ata_device/dev1.0/trim": trim})

    def add_scsi_disk(
        self,
        name: str = "sda",
        *,
        where: str = "pci0000:00/0000:00:02.0/host1/target1:0:0/1:0:0:0",
        queue: Mapping[str, str] = SSD_QUEUE,
        mode: str = "unmap",
        thin: str = "1",
        driver: str = "sd",
        model: str = "ACME 960",
    ) -> None:
        """Add a SCSI disk with this provisioning."""
        minor = (ord(name[-1]) - ord("a")) * 16
        folder = self.tree.add_disk(name, f"8:{minor}", where=f"{where}/block", tags=[32], queue=queue)
        device = self.tree.sys / "devices" / where
        write_attributes(device, {"model": model, "vendor": "ACME"})
        names = {"provisioning_mode": mode, "thin_provisioning": thin}
        write_attributes(device / "scsi_disk" / Path(where).name, names)
        (folder / "device").symlink_to(os.path.relpath(device, folder))
        self.tree.set_driver(where, "sd")
        if driver != "sd":
            self.tree.set_driver(str(Path(where).parents[2]), driver)

    def add_disk(self, name: str = "vda", dev: str = "254:0", queue: Mapping[str, str] = SSD_QUEUE) -> None:
        """Add a disk that reports no properties."""
        self.tree.add_disk(name, dev, where="pci0000:00/0000:00:09.0", tags=[1], queue=queue)

    def add_dm_device(
        self,
        minor: int,
        table: str,
        *below: str,
        status: str | None = None,
        queue: Mapping[str, str] = SSD_QUEUE,
        uuid: str = "",
        label: str = "vg-home",
    ) -> None:
        attributes = {"dm/uuid": uuid, "dm/name": label}
        self.tree.add_disk(f"dm-{minor}", f"253:{minor}", queue=queue, attributes=attributes)
        self.tree.stack_device(f"dm-{minor}", *below)
        self.dm.tables[minor] = table
        if status:
            self.dm.statuses[minor] = status

    def add_mount(self, dev: str, kind: str = "ext4", *, source: str = "/dev/x", options: str = "rw") -> None:
        self.mountinfo += f"30 1 {dev} / /m rw,relatime shared:1 - {kind} {source} {options}\n"

    def _identify_disk(self, disk: BlockDevice) -> tuple[Controller, Namespace]:
        try:
            return self.identify[disk.name]
        except KeyError:
            raise OpwatchError("Identify needs CAP_SYS_ADMIN") from None

    def make_reader(self) -> LayerReader:
        usage = Usage(parse_mountinfo(self.mountinfo), [], self.members)
        return LayerReader(self.tree.devices, usage, self.dm, self._identify_disk, self.tree.sys)

    def read_stack(self, device: str | None = None) -> Stack:
        """Return the stack of the last mount, or of a device."""
        if device:
            return self.make_reader().read_device(self.tree[device])
        return self.make_reader().read_mount(parse_mountinfo(self.mountinfo)[-1])

    def predict_trim(
        self,
        device: str | None = None,
        *,
        free: Sequence[tuple[int, int]] = (),
        minimum_bytes: int = 0,
        fstab_options: Sequence[str] = (),
    ) -> Prediction:
        """Return the prediction for the last mount with these free extents, or for a device."""
        stack = self.read_stack(device)
        space = None
        if free and stack.find_tops():
            space = FreeExtents({stack.find_tops()[0].dev: Extents.from_pairs(free)})
        return predict_trim(stack, space, minimum_bytes=minimum_bytes, fstab_options=fstab_options)
