"""Zones, and disks without requests: operations with and without a kernel counter."""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kernel.support.load import allocate_aligned, discards, open_direct, reads, writes
from tests.vm.guest.support import stacked, sysfs
from tests.vm.guest.support.copies import run_opwatch
from tests.vm.guest.support.events import trace_block_events
from tests.vm.guest.support.exact import assert_explained, observe_disks
from tests.vm.guest.support.nullblk import Irq, NullBlk, create_null_blk
from tests.vm.guest.support.shell import run_command
from tests.vm.guest.support.zones import ZONE_BYTES, manage_zones
from tests.vm.requirements import need_module

DEVICES = ()
TIERS = ()
CPUS = 2
TIMEOUT_S = 900


def test_zone_operations_agree_with_the_kernels_counts() -> None:
    """opwatch counts reset, open, close and finish as "other", the kernel counts them as writes."""
    zoned = NullBlk(size=64, memory_backed=1, zoned=1, irqmode=Irq.TIMER)
    with create_null_blk(zoned) as disk:
        node = f"/dev/{disk}"

        def run_workload() -> None:
            manage_zones(node, 5)
            reads(node, 3)

        [watched] = observe_disks([disk], run_workload)
    assert watched.count_by_op()["write"] == (35, 35 * 4096)
    assert watched.count_by_op()["other"] == (20, 0)
    assert_explained("null_blk zones", watched)


def test_zone_status_has_the_same_name_on_every_kernel() -> None:
    """Too many active zones is status 15 on newer kernels and 16 on older ones, where 15 meant offline."""
    zoned = NullBlk(size=64, memory_backed=1, zoned=1, zone_max_active=2)
    with create_null_blk(zoned) as disk, open_direct(f"/dev/{disk}") as descriptor:

        def run_workload() -> None:
            for zone in range(2):
                assert os.pwritev(descriptor, [allocate_aligned(4096)], zone * ZONE_BYTES) == 4096
            with pytest.raises(OSError, match=os.strerror(errno.EOVERFLOW)):
                os.pwritev(descriptor, [allocate_aligned(4096)], 2 * ZONE_BYTES)

        [watched] = observe_disks([disk], run_workload)
    assert watched.interval.ops["write"].statuses == {"zone resource": 1}
    assert_explained("null_blk active zones", watched)


def test_zone_appends_are_sequential() -> None:
    """Each append names the first sector of the zone, and the drive writes after the previous append."""
    zoned = NullBlk(size=1024, memory_backed=1, zoned=1, zone_size=16, irqmode=Irq.TIMER)
    cpus = os.sched_getaffinity(0)
    with (
        create_null_blk(zoned) as disk,
        mount_btrfs(disk) as folder,
        trace_block_events("block_rq_issue") as events,
    ):
        os.sched_setaffinity(0, {min(cpus)})
        try:
            [watched] = observe_disks(
                [disk], lambda: writes(str(folder / "file"), 17, size=16384, step=16384)
            )
        finally:
            os.sched_setaffinity(0, cpus)
        issued = events.list_issued_sectors(disk, 32)
    write = watched.interval.ops["write"]
    assert len(issued) == 17
    assert len(set(issued)) == 1
    assert (write.issued, write.sequential_ratio) == (17, 16 / 17)
    assert_explained("null_blk zone append", watched)


@contextlib.contextmanager
def mount_btrfs(disk: str) -> Iterator[Path]:
    """Mount a quiet zoned btrfs: an empty file, and no writes unless a test makes them."""
    need_module("btrfs")
    folder = Path("/tmp/zoned")
    folder.mkdir()
    run_command("mkfs.btrfs", "-q", "-O", "zoned", "-d", "single", "-m", "single", f"/dev/{disk}")
    run_command("mount", "-o", "noatime,nodatasum,commit=3000", f"/dev/{disk}", str(folder))
    try:
        (folder / "file").touch()
        os.sync()
        yield folder
    finally:
        run_command("umount", str(folder))


@pytest.mark.parametrize("driver", ["zram", pytest.param("brd", marks=pytest.mark.manual)])
def test_strict_passes_on_bio_based_drivers(driver: str) -> None:
    """Operations not counted by the driver are reported as not kept; none is unexplained."""
    with stacked.create_zram(64 << 20) if driver == "zram" else _RamDisk() as disk:
        program = (
            f"from tests.kernel.support.load import *; reads('/dev/{disk}', 101); writes('/dev/{disk}', 53)"
        )
        words = ("--strict", "--json", "-q", "--dev", disk, "--", "python3", "-c", program)
        done = run_opwatch(*words)
        [watched] = observe_disks([disk], lambda: reads(f"/dev/{disk}", 31))
    assert done.returncode == 0, done.stderr
    [summary] = map(json.loads, done.stdout.splitlines())
    assert summary["unexplained"] == []
    assert set(summary["trust"]["drift"]) == ({"read", "write"} if driver == "zram" else set())
    assert_explained(driver, watched)


class _RamDisk:
    """A RAM disk."""

    def __enter__(self) -> str:
        need_module("brd", "rd_nr=1", "rd_size=65536")
        sysfs.wait_for("ram0", (sysfs.SYS_BLOCK / "ram0").exists)
        return "ram0"

    def __exit__(self, *_: object) -> None:
        run_command("modprobe", "-r", "brd")


@pytest.mark.manual
def test_discards_of_a_bio_based_driver_complete() -> None:
    with stacked.create_zram(64 << 20) as disk:
        [watched] = observe_disks([disk], lambda: discards(f"/dev/{disk}", 3))
    assert watched.count_by_op()["discard"] == (3, 3 << 19)
    assert_explained("zram discard", watched)
