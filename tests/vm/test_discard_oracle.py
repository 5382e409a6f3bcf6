"""The images on the host show whether a guest's discard had an effect: the oracle for trim tests."""

from __future__ import annotations

import sys

import pytest

from tests.vm import devices
from tests.vm.boot.machine import Machine
from tests.vm.config import Kernel

BYTES = 8 << 20

# device, serial number, image, whether a discard frees space in the image
CASES = (
    ("nvme", "opw-nvme", "plain", True),
    ("virtio-blk", "opw-virtio-blk", "vblk", True),
    ("virtio-blk-ignored", "opw-virtio-ignored", "vblkign", False),
    ("virtio-scsi", "opw-virtio-scsi", "vscsi", True),
    ("virtio-scsi-ignored", "opw-scsi-ignored", "vscsiign", False),
    ("ahci", "opw-ahci", "sata", True),
)

FILL = "head -c {size} /dev/urandom | dd of=/dev/{disk} bs=1M iflag=fullblock oflag=direct"


def _find_disk(machine: Machine, serial: str) -> str:
    program = f"from tests.vm.guest.support import sysfs; print(sysfs.disk({serial!r}))"
    done = machine.run([sys.executable, "-c", program])
    assert done.status == 0, done.stderr
    return done.stdout.decode().strip()


@pytest.mark.manual
def test_disk_image_shrinks_only_when_discards_take_effect(bootable: Kernel) -> None:
    chosen = devices.choose_devices([name for name, *_ in CASES], devices.read_devices())
    with Machine(bootable, chosen) as machine:
        for name, serial, node, empties in CASES:
            disk = _find_disk(machine, serial)
            fill = FILL.format(size=BYTES, disk=disk)
            assert machine.run(["sh", "-c", fill]).status == 0, name
            assert machine.disk_bytes(node) >= BYTES, name
            argv = ["blkdiscard", "-f", "-l", str(BYTES), f"/dev/{disk}"]
            assert machine.run(argv).status == 0, name
            assert (machine.disk_bytes(node) < BYTES // 2) is empties, name
