"""Facts about a disk, on fake machines."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from opwatch.collectors.guard import openers
from opwatch.collectors.guard.disk_facts import (
    find_counted_disks,
    find_same_identity,
    find_sharers,
    is_virtual,
    read_disk_identity,
)
from opwatch.collectors.guard.exports import find_exports
from opwatch.host.device import Devices


def add_disk(sys: Path, name: str, **attributes: str) -> None:
    folder = sys / "block" / name
    for path, text in ({"size": "2048", "dev": "8:0"} | attributes).items():
        file = folder / path.replace("__", "/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")
    (sys / "class" / "block").mkdir(parents=True, exist_ok=True)
    (sys / "class" / "block" / name).symlink_to(folder)


def list_similar_disks(sys: Path, name: str) -> list[str]:
    devices = Devices(sys)
    disk = devices.by_name(name)
    assert disk
    return [other.name for other in find_same_identity(devices, disk, read_disk_identity(devices, disk))]


def test_disks_with_equal_serial_or_wwid_are_the_same_drive(tmp_path: Path) -> None:
    add_disk(tmp_path, "sda", device__serial="S1", device__wwid="naa.1")
    add_disk(tmp_path, "sdb", device__serial="S2", device__wwid="naa.1")
    add_disk(tmp_path, "sdc", device__serial="S1", device__wwid="naa.3")
    add_disk(tmp_path, "sdd", device__serial="S4", device__wwid="naa.4")
    add_disk(tmp_path, "sdg", size="0", device__serial="S1")
    add_disk(tmp_path, "sde")
    add_disk(tmp_path, "sdf")
    assert list_similar_disks(tmp_path, "sda") == ["sdb", "sdc"]
    assert list_similar_disks(tmp_path, "sdd") == list_similar_disks(tmp_path, "sde") == []


def test_paths_of_a_multipath_head_are_counted_and_are_not_other_disks(tmp_path: Path) -> None:
    add_disk(tmp_path, "nvme0n1", serial="S1", wwid="eui.1")
    add_disk(tmp_path, "nvme0c0n1", serial="S1", wwid="eui.1", hidden="1")
    devices = Devices(tmp_path)
    head = devices.by_name("nvme0n1")
    assert head
    assert [disk.name for disk in find_counted_disks(devices, head)] == ["nvme0c0n1"]
    assert list_similar_disks(tmp_path, "nvme0n1") == []


def test_process_whose_files_do_not_answer_is_reported_as_unseen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in ("7", "8", "9"):
        (tmp_path / number / "fd").mkdir(parents=True)
        (tmp_path / number / "comm").write_text("tar\n")
        (tmp_path / number / "maps").write_text("00400000-00401000 r-xp 00000000 fe:00 12 /bin/tar\n")
        (tmp_path / number / "fd" / "3").symlink_to("/dev/null")
    never = threading.Event()

    def is_device(link: Path, wanted: object) -> bool:
        if link.parts[-3] == "7":
            never.wait(5)
        return link.parts[-3] == "9"

    monkeypatch.setattr(openers, "_ANSWER_S", 0.1)
    monkeypatch.setattr(openers, "_is_device", is_device)
    users = openers.find_openers([(8, 0)], tmp_path)
    never.set()
    assert users.openers == ("process 9 (tar)",)
    [unseen] = users.unseen
    assert unseen.startswith("process 7 (tar) ")


def test_unreadable_loop_device_is_reported(tmp_path: Path) -> None:
    add_disk(tmp_path, "sda")
    backing = tmp_path / "block" / "loop7654321" / "loop" / "backing_file"
    backing.parent.mkdir(parents=True)
    backing.write_text("/sdb\n")
    disk = Devices(tmp_path).by_name("sda")
    assert disk
    [user] = openers.find_loops(disk, tmp_path)
    assert user.name == "loop7654321"
    assert user.unknown


@pytest.mark.parametrize(
    ("way", "others"),
    [
        ("platform/host3/session1/target3:0:0/3:0:0:0", ["it is on a network (iscsi)"]),
        ("pci0000:00/host4/rport-4:0-1/target4:0:0/4:0:0:0", ["it is on a network (fc)"]),
        ("pci0000:00/ata1/host0/target0:0:0/0:0:0:0", []),
        ("pci0000:00/host1/port-1:0/end_device-1:0/target1:0:0/1:0:0:0", []),
    ],
)
def test_disk_on_a_network_may_have_other_users(way: str, others: list[str], tmp_path: Path) -> None:
    folder = tmp_path / "devices" / way / "block" / "sda"
    folder.mkdir(parents=True)
    (folder / "size").write_text("2048\n")
    (tmp_path / "class" / "block").mkdir(parents=True)
    (tmp_path / "class" / "block" / "sda").symlink_to(folder)
    devices = Devices(tmp_path)
    disk = devices.by_name("sda")
    assert disk
    assert [sharer.partition(",")[0] for sharer in find_sharers(devices, disk)] == others


@pytest.mark.parametrize(
    ("attributes", "is_one"),
    [
        ({"device__vendor": "ATA     ", "device__model": "QEMU HARDDISK   "}, True),
        ({"device__vendor": "QEMU    ", "device__model": "QEMU HARDDISK   "}, True),
        ({"device__vendor": "ATA     ", "device__model": "VMware Virtual SATA Hard Drive"}, True),
        ({"device__vendor": "VMware  ", "device__model": "Virtual disk    "}, True),
        ({"device__vendor": "ATA     ", "device__model": "VBOX HARDDISK   "}, True),
        ({"device__vendor": "Msft    ", "device__model": "Virtual Disk    "}, True),
        ({"device__model": "QEMU NVMe Ctrl"}, True),
        ({"device__model": "VMware Virtual NVMe Disk"}, True),
        ({"device__vendor": "ATA     ", "device__model": "Samsung SSD 870 "}, False),
        ({"device__vendor": "SEAGATE ", "device__model": "XS1600LE70084   "}, False),
        ({"device__model": "INTEL SSDPE2KX040T8"}, False),
        ({}, False),
    ],
)
def test_hypervisor_disk_is_virtual_on_any_bus(
    attributes: dict[str, str], is_one: bool, tmp_path: Path
) -> None:
    add_disk(tmp_path, "sda", **attributes)
    devices = Devices(tmp_path)
    disk = devices.by_name("sda")
    assert disk
    assert is_virtual(devices, disk) is is_one


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A disk exported by the NVMe target, enabled, and twice by the SCSI target, once disabled."""
    files = {
        "nvmet/subsystems/nqn.a/namespaces/1/device_path": "/dev/null",
        "nvmet/subsystems/nqn.a/namespaces/1/enable": "1",
        "nvmet/subsystems/nqn.a/namespaces/2/device_path": "",
        "target/core/fileio_0/disk/udev_path": "/dev/null",
        "target/core/fileio_0/disk/enable": "1",
        "target/core/fileio_0/off/udev_path": "/dev/null",
        "target/core/fileio_0/off/enable": "0",
        "target/core/fileio_0/file/udev_path": "/srv/file",
    }
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(f"{text}\n")
    return tmp_path


def test_exporting_targets_are_found(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(find_exports([(1, 3)], config)) == [], "no block device"
    monkeypatch.setattr(stat, "S_ISBLK", lambda mode: True)
    status = Path("/dev/null").stat()
    number = (os.major(status.st_rdev), os.minor(status.st_rdev))
    nvme, scsi = find_exports([number], config)
    assert "NVMe" in nvme and nvme.endswith(" nqn.a")
    assert "SCSI" in scsi and scsi.endswith(" fileio_0/disk")
    assert list(find_exports([(8, 0)], config)) == []
    assert list(find_exports([number], config / "none")) == []
