"""Every request of every driver is explained: our counts, fio's and the kernel's are equal."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path

import pytest

from opwatch.collectors.block.blk import BlockTracer
from opwatch.host.device import Devices
from opwatch.tools.runs.live_watch import choose_leaves
from tests.kernel.support.load import BLKZEROOUT, discards, flushes, reads, writes
from tests.kernel.support.watching import run_opwatch
from tests.vm.guest.support import sysfs
from tests.vm.guest.support.exact import assert_explained, observe_disks, run_and_check
from tests.vm.guest.support.nullblk import Irq, NullBlk, create_null_blk
from tests.vm.guest.support.shell import run_command, write_attribute
from tests.vm.guest.support.stacked import create_loop
from tests.vm.guest.support.workload import Fio, discard_range
from tests.vm.requirements import need_module

DEVICES = ("nvme", "nvme-4k", "virtio-blk", "virtio-scsi", "ahci", "usb")
TIERS = ("full", "floor")
CPUS = 4
TIMEOUT_S = 2400

MORE_NULL_BLK = ((Irq.NONE, 1), (Irq.SOFTIRQ, 1), (Irq.SOFTIRQ, 4), (Irq.TIMER, 1), (Irq.TIMER, 4))
DRIVERS = {
    "nvme": "opw-nvme",
    "virtio-blk": "opw-virtio-blk",
    "virtio-scsi": "opw-virtio-scsi",
    "ahci": "opw-ahci",
    "usb": "opw-usb",
}
DISCARDING = ("nvme", "virtio-blk", "virtio-scsi", "ahci")


def choose_in_ci(drivers: Iterable[str], *in_ci: str) -> list[object]:
    """Return the drivers as parameters, with those that CI leaves out marked as manual."""
    return [pytest.param(one, marks=[pytest.mark.manual] * (one not in in_ci)) for one in drivers]


@pytest.mark.parametrize(
    ("irqmode", "queues"),
    [
        (Irq.NONE, 4),
        *(pytest.param(*one, marks=pytest.mark.manual) for one in MORE_NULL_BLK),
    ],
)
def test_null_blk_counts_are_exact_at_full_speed(irqmode: Irq, queues: int) -> None:
    """More than a million requests in total: 4 jobs of 43,003 requests in six configurations."""
    with create_null_blk(NullBlk(irqmode=irqmode, submit_queues=queues, completion_nsec=1000)) as disk:
        job = Fio("randrw", 43_003, jobs=4, iodepth=32)
        before = sysfs.read_stat(disk)
        _, watched = run_and_check(f"null_blk {irqmode.name.lower()} {queues}q", disk, job)
        delta = sysfs.read_stat(disk) - before
    # When tags run out, even random neighbours can meet in a plug and merge.
    merged = delta.read_merges + delta.write_merges
    # Each skipped program run can hide a request.
    counted = sum(count for count, _ in watched.count_by_op().values()) + merged
    assert 4 * 43_003 - (watched.trust.misses or 0) <= counted <= 4 * 43_003


@pytest.mark.parametrize("scheduler", [pytest.param("none", marks=pytest.mark.manual), "mq-deadline"])
def test_merged_writes_are_explained_with_each_scheduler(scheduler: str) -> None:
    """Sequential writes merge under a scheduler; we count issued requests, not submitted ones."""
    with create_null_blk(NullBlk(irqmode=Irq.TIMER, submit_queues=1)) as disk:
        write_attribute(sysfs.SYS_BLOCK / disk / "queue/scheduler", scheduler)
        job = Fio("write", 10_007, iodepth=64, extra=("--iodepth_batch=16",))
        run_and_check(f"null_blk {scheduler}", disk, job)


@pytest.mark.parametrize("driver", choose_in_ci(DRIVERS, "nvme", "ahci"))
def test_reads_and_writes_of_every_driver_are_explained(driver: str) -> None:
    disk = sysfs.disk(DRIVERS[driver])
    run_and_check(driver, disk, Fio("randrw", 2003, jobs=2, iodepth=16))


@pytest.mark.parametrize("driver", choose_in_ci(DISCARDING, "virtio-blk"))
def test_synchronous_writes_of_every_driver_count_once(driver: str) -> None:
    """An O_DSYNC write counts once, with or without FUA, whatever requests the kernel makes of it."""
    disk = sysfs.disk(DRIVERS[driver])

    def run_workload() -> None:
        writes(f"/dev/{disk}", 331, flags=os.O_DSYNC)
        flushes(f"/dev/{disk}", 13)

    [watched] = observe_disks([disk], run_workload)
    assert watched.count_by_op()["write"] == (331, 331 * 4096)
    assert_explained(f"{driver} O_DSYNC", watched)


@pytest.mark.parametrize("driver", choose_in_ci(DISCARDING, "nvme", "virtio-scsi"))
def test_discards_of_every_driver_are_explained(driver: str) -> None:
    disk = sysfs.disk(DRIVERS[driver])

    def run_workload() -> None:
        discard_range(disk, 0, 64 << 20)
        discards(f"/dev/{disk}", 11)
        discards(f"/dev/{disk}", 3, request=BLKZEROOUT)

    [watched] = observe_disks([disk], run_workload)
    assert watched.count_by_op()["discard"][1] == (64 << 20) + 11 * (1 << 19)
    assert_explained(f"{driver} discard", watched)


def test_discard_larger_than_the_limit_is_split() -> None:
    with create_null_blk(NullBlk(size=64, memory_backed=1, discard=1)) as disk:
        limit = 1 << 20
        write_attribute(sysfs.SYS_BLOCK / disk / "queue/discard_max_bytes", limit)
        [watched] = observe_disks([disk], lambda: discards(f"/dev/{disk}", 1, length=16 << 20))
    assert watched.count_by_op()["discard"] == (16, 16 << 20)
    assert_explained("null_blk split discard", watched)


@pytest.mark.manual
def test_nvme_discards_merge_into_a_command_with_many_ranges(tmp_path: Path) -> None:
    """XFS sends the discards of a commit in one plug, and NVMe merges them into a single command."""
    disk = sysfs.disk("opw-nvme")
    run_command("mkfs.xfs", "-q", "-f", f"/dev/{disk}")
    need_module("xfs")
    run_command("mount", "-t", "xfs", "-o", "discard", f"/dev/{disk}", str(tmp_path))
    files = [tmp_path / str(index) for index in range(2 * 101)]
    for file in files:
        with file.open("wb") as opened:
            opened.write(bytes(1 << 16))
            os.fsync(opened.fileno())
    before = sysfs.read_stat(disk)

    def run_workload() -> None:
        for file in files[::2]:
            file.unlink()
        run_command("umount", str(tmp_path))

    [watched] = observe_disks([disk], run_workload)
    delta = sysfs.read_stat(disk) - before
    assert delta.discard_merges >= 50
    assert watched.count_by_op()["discard"] == (delta.discards, delta.discard_bytes)
    assert delta.discards + delta.discard_merges >= 101
    assert delta.discard_bytes >= 101 << 16
    assert_explained("nvme multi-range discard", watched)


@pytest.mark.manual
def test_loop_requests_are_explained() -> None:
    with create_loop(256 << 20) as disk:
        run_and_check("loop", disk, Fio("randrw", 10_007, jobs=2))


def test_queue_time_is_known_for_every_request() -> None:
    with create_null_blk(NullBlk(irqmode=Irq.TIMER, submit_queues=2)) as disk:
        write_attribute(sysfs.SYS_BLOCK / disk / "queue/scheduler", "mq-deadline")
        _, watched = run_and_check("null_blk queue", disk, Fio("randread", 5003), queue_time=True)
    read = watched.interval.ops["read"]
    assert read.queue is not None
    assert read.queue.histogram.total == read.issued


def test_verifier_accepts_typed_programs() -> None:
    """If the verifier refuses typed programs, raw twins count the same, silently, at three times the cost."""
    with create_null_blk(NullBlk(submit_queues=2)) as disk:
        leaves, _ = choose_leaves(Devices(), [disk])
        tracer = BlockTracer(leaves)
        hooks = tracer.hooks
        tracer.close()
    assert hooks == "tp_btf"


def test_verifier_accepts_every_program_and_its_raw_twin() -> None:
    """Includes the bio programs, which otherwise load only for disks without requests."""
    checks = json.loads(run_opwatch("doctor", "--json", timeout=300).stdout)["checks"]
    probes = {check["name"]: check for check in checks if check["name"].startswith("probe")}
    refused = {name: check["finding"] for name, check in probes.items() if check["state"] == "problem"}
    assert {"probe rq_issue", "probe bio_complete"} <= set(probes)
    assert refused == {}


def test_raw_programs_count_the_same_requests() -> None:
    with create_null_blk(NullBlk(irqmode=Irq.SOFTIRQ, submit_queues=4)) as disk:
        run_and_check("null_blk raw_tp", disk, Fio("randrw", 20_011, jobs=2), raw_tp=True)


@pytest.mark.manual
def test_reads_of_a_4k_drive_are_explained() -> None:
    disk = sysfs.disk("opw-nvme-4k")
    [watched] = observe_disks([disk], lambda: reads(f"/dev/{disk}", 97))
    assert watched.count_by_op()["read"] == (97, 97 * 4096)
    assert_explained("nvme 4k", watched)
