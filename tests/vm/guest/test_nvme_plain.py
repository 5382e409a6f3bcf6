"""NVMe without a multipath node: the request queue is the disk's own."""

from __future__ import annotations

from pathlib import Path

from tests.vm.guest import sysfs
from tests.vm.guest.workload import Fio, fio, flush

DEVICES = ("nvme",)


def test_disk_is_not_a_multipath_node() -> None:
    disk = sysfs.disk("opw-nvme")
    assert not list(Path("/sys/block").glob("nvme*c*n*"))
    assert sysfs.hardware_queues(disk) == 2


def test_counts_agree_with_fio() -> None:
    disk = sysfs.disk("opw-nvme")
    before = sysfs.stat(disk)
    counts = fio(disk, Fio("randwrite", 5003))
    delta = sysfs.stat(disk) - before
    assert (counts.writes, counts.errors) == (5003, 0)
    assert (delta.writes + delta.write_merges, delta.write_bytes) == (5003, 5003 * 4096)


def test_flush_is_also_counted_as_a_write_of_nothing() -> None:
    # Linux kernel: an empty flush comes back as the write it was submitted as, of 0 bytes.
    disk = sysfs.disk("opw-nvme")
    fio(disk, Fio("write", 7))
    before = sysfs.stat(disk)
    flush(disk)
    delta = sysfs.stat(disk) - before
    assert (delta.flushes, delta.writes, delta.write_bytes) == (1, 1, 0)
