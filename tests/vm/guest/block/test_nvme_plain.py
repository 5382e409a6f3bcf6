"""NVMe without a multipath node: the request queue is the disk's own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.vm.guest.support import sysfs
from tests.vm.guest.support.exact import assert_explained, observe_disks
from tests.vm.guest.support.shell import run_command, write_attribute
from tests.vm.guest.support.workload import Fio, flush_cache, run_fio
from tests.vm.requirements import need_tool

DEVICES = ("nvme",)


@pytest.mark.manual
def test_disk_is_not_a_multipath_node() -> None:
    disk = sysfs.disk("opw-nvme")
    assert not list(Path("/sys/block").glob("nvme*c*n*"))
    assert sysfs.count_hardware_queues(disk) == 2


@pytest.mark.manual
def test_counts_agree_with_fio() -> None:
    disk = sysfs.disk("opw-nvme")
    before = sysfs.read_stat(disk)
    counts = run_fio(disk, Fio("randwrite", 5003))
    delta = sysfs.read_stat(disk) - before
    assert (counts.writes, counts.errors) == (5003, 0)
    assert (delta.writes + delta.write_merges, delta.write_bytes) == (5003, 5003 * 4096)


def test_kernel_counts_a_flush_also_as_an_empty_write() -> None:
    # Linux kernel: an empty flush completes as the write that was submitted, with 0 bytes.
    disk = sysfs.disk("opw-nvme")
    run_fio(disk, Fio("write", 7))
    before = sysfs.read_stat(disk)
    flush_cache(disk)
    delta = sysfs.read_stat(disk) - before
    assert (delta.flushes, delta.writes, delta.write_bytes) == (1, 1, 0)


# Kernels before 6.13 have no switch: both cases are the same.
@pytest.mark.parametrize("are_counted", [False, pytest.param(True, marks=pytest.mark.manual)])
def test_passthrough_commands_are_explained_with_and_without_kernel_counts(are_counted: bool) -> None:
    # Linux kernel commit 110234da18ab ("block: enable passthrough command statistics") (in v6.13) counts
    # passthrough commands as reads and writes of the disk if switched on. 5.10 has no switch and always does.
    need_tool("nvme")
    disk = sysfs.disk("opw-nvme")
    switch = sysfs.SYS_BLOCK / disk / "queue/iostats_passthrough"
    if switch.exists():
        write_attribute(switch, int(are_counted))
    read = ("nvme", "read", f"/dev/{disk}", "--block-count=7", "--data-size=4096", "--data=/dev/null")

    def run_workload() -> None:
        for _ in range(23):
            run_command(*read)

    before = sysfs.read_stat(disk)
    [watched] = observe_disks([disk], run_workload)
    delta = sysfs.read_stat(disk) - before
    is_old = os.uname().release.startswith("5.10.")
    assert delta.reads == (23 if is_old or (switch.exists() and are_counted) else 0)
    assert watched.count_by_op()["other"] == (23, 23 * 4096)
    assert_explained(f"nvme, commands of user space{', counted' * are_counted}", watched)
