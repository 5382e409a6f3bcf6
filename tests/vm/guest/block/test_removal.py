"""Disks and CPUs that disappear while in use."""

from __future__ import annotations

import os
import subprocess
import time

import pytest

from tests.vm.guest.support import removal, sysfs
from tests.vm.guest.support.nullblk import NullBlk, null_blk
from tests.vm.guest.support.workload import Fio
from tests.vm.requirements import need_tool

DEVICES = ("nvme", "virtio-blk", "virtio-scsi")
CPUS = 2


def _endless_reads(disk: str) -> subprocess.Popen[bytes]:
    need_tool("fio")
    job = Fio("randread", 1 << 30, iodepth=4)
    running = subprocess.Popen(job.argv(f"/dev/{disk}"), stdout=subprocess.PIPE)
    before = sysfs.stat(disk).reads
    sysfs.wait_for("reads", lambda: sysfs.stat(disk).reads > before + 100)
    return running


@pytest.mark.parametrize(("device", "serial"), [("nvme-plain", "opw-nvme"), ("virtio-blk", "opw-virtio-blk")])
def test_unplug_under_load(device: str, serial: str) -> None:
    disk = sysfs.disk(serial)
    with _endless_reads(disk) as running:
        removal.unplug(device, disk)
        assert running.wait(300) != 0
    assert sysfs.disks(serial) == []


def test_scsi_delete_under_load() -> None:
    disk = sysfs.disk("opw-virtio-scsi")
    with _endless_reads(disk) as running:
        removal.delete_scsi(disk)
        assert running.wait(300) != 0


def test_processor_offline_under_load() -> None:
    with null_blk(NullBlk(submit_queues=2)) as disk:
        before = sysfs.stat(disk)
        argv = Fio("randread", 40_009, jobs=2).argv(f"/dev/{disk}")
        with subprocess.Popen(argv, stdout=subprocess.DEVNULL) as running:
            time.sleep(0.5)
            with removal.cpu_offline(1):
                assert os.sysconf("SC_NPROCESSORS_ONLN") == 1
                time.sleep(0.5)
            assert running.wait(300) == 0
        delta = sysfs.stat(disk) - before
        assert delta.reads + delta.read_merges == 2 * 40_009
