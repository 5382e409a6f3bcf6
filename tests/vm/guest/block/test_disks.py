"""virtio-blk, virtio-scsi, SATA and USB disks appear with the properties in their recipes."""

from __future__ import annotations

import pytest

from tests.vm.guest.support import sysfs
from tests.vm.guest.support.workload import Fio, discard_range, run_fio

DEVICES = (
    "virtio-blk",
    "virtio-blk-ignored",
    "virtio-blk-nodiscard",
    "virtio-scsi",
    "virtio-scsi-ignored",
    "ahci",
    "usb",
)
# Tests of a recipe; the tests that use it fail with it.
TIERS = ()

DISCARDS = {
    "opw-virtio-blk": True,
    "opw-virtio-ignored": True,
    "opw-virtio-nodisc": False,
    "opw-virtio-scsi": True,
    "opw-scsi-ignored": True,
    "opw-ahci": True,
    "opw-usb": False,
}


@pytest.mark.parametrize(("serial", "discards"), DISCARDS.items(), ids=DISCARDS)
def test_disk_offers_discard(serial: str, discards: bool) -> None:
    disk = sysfs.disk(serial)
    assert (sysfs.read_number(disk, "queue/discard_max_bytes") > 0) is discards


@pytest.mark.parametrize("serial", [s for s, discards in DISCARDS.items() if discards])
def test_discard_is_counted(serial: str) -> None:
    disk = sysfs.disk(serial)
    before = sysfs.read_stat(disk)
    discard_range(disk, 0, 8 << 20)
    assert (sysfs.read_stat(disk) - before).discard_bytes == 8 << 20


@pytest.mark.parametrize("serial", DISCARDS)
def test_writes_agree_with_fio(serial: str) -> None:
    disk = sysfs.disk(serial)
    before = sysfs.read_stat(disk)
    counts = run_fio(disk, Fio("write", 499))
    delta = sysfs.read_stat(disk) - before
    assert counts.errors == 0
    assert delta.write_bytes == counts.write_bytes == 499 * 4096


def test_virtio_blk_has_several_queues() -> None:
    assert sysfs.count_hardware_queues(sysfs.disk("opw-virtio-blk")) == 2
