"""Disks and CPUs that disappear while in use."""

from __future__ import annotations

import os
import subprocess
import time

import pytest

from tests.vm.guest.support import removal, sysfs
from tests.vm.guest.support.nullblk import NullBlk, create_null_blk
from tests.vm.guest.support.workload import Fio
from tests.vm.requirements import need_tool

DEVICES = ("nvme", "virtio-blk", "virtio-scsi")
# Tests of a recipe; the tests that use it fail with it.
TIERS = ()
CPUS = 2


def _start_endless_reads(disk: str) -> subprocess.Popen[bytes]:
    need_tool("fio")
    job = Fio("randread", 1 << 30, iodepth=4)
    running = subprocess.Popen(job.build_argv(f"/dev/{disk}"), stdout=subprocess.PIPE)
    before = sysfs.read_stat(disk).reads
    sysfs.wait_for("reads", lambda: sysfs.read_stat(disk).reads > before + 100)
    return running


@pytest.mark.parametrize(("device", "serial"), [("nvme-plain", "opw-nvme"), ("virtio-blk", "opw-virtio-blk")])
def test_unplug_under_load(device: str, serial: str) -> None:
    disk = sysfs.disk(serial)
    with _start_endless_reads(disk) as running:
        removal.unplug_device(device, disk)
        assert running.wait(300) != 0
    assert sysfs.find_disks(serial) == []


def test_scsi_delete_under_load() -> None:
    disk = sysfs.disk("opw-virtio-scsi")
    with _start_endless_reads(disk) as running:
        removal.delete_scsi(disk)
        assert running.wait(300) != 0


def test_processor_offline_under_load() -> None:
    with create_null_blk(NullBlk(submit_queues=2)) as disk:
        before = sysfs.read_stat(disk)
        argv = Fio("randread", 40_009, jobs=2).build_argv(f"/dev/{disk}")
        with subprocess.Popen(argv, stdout=subprocess.DEVNULL) as running:
            time.sleep(0.5)
            with removal.take_cpu_offline(1):
                assert os.sysconf("SC_NPROCESSORS_ONLN") == 1
                time.sleep(0.5)
            assert running.wait(300) == 0
        delta = sysfs.read_stat(disk) - before
        assert delta.reads + delta.read_merges == 2 * 40_009
