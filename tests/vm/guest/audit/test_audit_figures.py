"""Bytes that reached the disks are exact, also where disks depend on each other or share a filesystem.

The blocks of the files behind loop devices are the oracle.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from opwatch.tools.commands.trim.audit import audit_mount
from opwatch.trim.audit.audit import Asked
from tests.kernel.support import trims
from tests.kernel.support.trims import mount_at
from tests.vm.guest.support import stacked, sysfs
from tests.vm.guest.support.audits import (
    MIB,
    Verdict,
    audit,
    codes,
    filesystem,
    freed,
    full_loop,
    image,
    leaf,
)
from tests.vm.guest.support.shell import call, put
from tests.vm.guest.support.trims import check
from tests.vm.requirements import need_module, need_tool

# Manual runs only: these tests would exceed CI's time limit.
TIERS = ()
DEVICES = ("virtio-blk-nodiscard",)


def _loops(opened: contextlib.ExitStack, count: int, size: int = 96 * MIB) -> list[str]:
    return [opened.enter_context(full_loop(size)) for _ in range(count)]


def test_the_journal_of_raid_5_is_not_in_it() -> None:
    need_module("raid456")
    put(Path("/sys/module/raid456/parameters/devices_handle_discard_safely"), "Y")
    with contextlib.ExitStack() as opened:
        *members, journal = _loops(opened, 4)
        nodes = [f"/dev/{member}" for member in members]
        argv = ["mdadm", "--create", "/dev/md77", "--run", "--metadata=1.2", "--level=5", "--raid-devices=3"]
        call(*argv, "--assume-clean", f"--write-journal=/dev/{journal}", *nodes)
        opened.callback(call, "mdadm", "--stop", "/dev/md77")
        with filesystem("md77", "ext4") as point:
            os.sync()
            for member in members:
                trims.fill_holes(image(member))
            result = audit(point)
            gone = sum(freed(member) for member in members)
    assert result.reached_bytes == gone > 96 * MIB
    assert result.unexplained_bytes == 0, result.rows
    assert list(codes(result)) == ["raid456-partial-stripe"]


def test_a_mirror_that_rebuilds_itself() -> None:
    with contextlib.ExitStack() as opened:
        one, two, new = _loops(opened, 3)
        top = opened.enter_context(stacked.md(1, [one, two]))
        with filesystem(top, "ext4") as point:
            (point / "file").write_bytes(os.urandom(32 * MIB))
            os.sync()
            call("mdadm", f"/dev/{top}", "--fail", f"/dev/{two}", "--remove", f"/dev/{two}")
            # Slow enough that the rebuild is still running during the trim.
            for limit in ("sync_speed_min", "sync_speed_max"):
                put(sysfs.SYS_BLOCK / top / "md" / limit, 1000)
            call("mdadm", f"/dev/{top}", "--add", f"/dev/{new}")
            result = audit_mount(mount_at(point), Asked(), prove=True)
            put(sysfs.SYS_BLOCK / top / "md/sync_action", "idle")
    assert "array-writes" in codes(result)
    assert result.verdict in (Verdict.ACCEPTED, Verdict.PARTIAL), result.rows


def test_a_mirror_of_device_mapper_that_copies_itself() -> None:
    with contextlib.ExitStack() as opened:
        one, two, *records = _loops(opened, 4)
        pairs = " ".join(f"/dev/{record} /dev/{leg}" for record, leg in zip(records, (one, two), strict=True))
        # Slow enough that the resync is still running during the trim.
        words = f"raid1 5 0 region_size 1024 max_recovery_rate 1000 2 {pairs}"
        table = f"0 {stacked.sectors(one)} raid {words}"
        top = opened.enter_context(stacked.mapped("raid", table, "dm_raid"))
        with filesystem(top.name, "ext4") as point:
            result = audit_mount(mount_at(point), Asked(), prove=True)
            [array] = [layer for layer in result.evidence.after.layers if layer.device == top.name]
    assert array.array and array.array.sync_action == "resync"
    assert "array-writes" in codes(result)
    assert result.verdict in (Verdict.ACCEPTED, Verdict.PARTIAL), result.rows


@contextlib.contextmanager
def f2fs_on(first: str, second: str) -> Iterator[Path]:
    """Yield f2fs on two devices, mostly unwritten."""
    need_module("f2fs")
    need_tool("mkfs.f2fs")
    call("mkfs.f2fs", "-q", "-f", "-t", "0", "-c", f"/dev/{second}", f"/dev/{first}")
    with trims.folder(Path("/tmp")) as point:
        call("mount", "-t", "f2fs", "-o", "nodiscard", f"/dev/{first}", str(point))
        try:
            yield point
        finally:
            call("umount", str(point))


def test_f2fs_on_two_devices() -> None:
    with contextlib.ExitStack() as opened:
        loops = _loops(opened, 2, 128 * MIB)
        point = opened.enter_context(f2fs_on(loops[0], loops[1]))
        os.sync()
        for loop in loops:
            trims.fill_holes(image(loop))
        result = audit(point)
        gone = [freed(loop) for loop in loops]
    assert [leaf(result, loop).bytes_ok for loop in loops] == gone
    assert result.reached_bytes == sum(gone) > 128 * MIB
    assert (result.verdict, result.unexplained_bytes) == (Verdict.ACCEPTED, 0), result.rows


def test_f2fs_of_which_a_device_takes_no_discards() -> None:
    other = sysfs.disk("opw-virtio-nodisc")
    with full_loop(128 * MIB) as one, f2fs_on(one, other) as point:
        os.sync()
        trims.fill_holes(image(one))
        result = audit(point)
        assert result.reached_bytes == freed(one) > 32 * MIB
    assert result.verdict is Verdict.PARTIAL, result.rows
    assert "virtual-no-discards" in codes(result)


@pytest.mark.parametrize(("block", "cluster"), [(1024, 16384), (4096, 65536)])
def test_clusters_of_ext4(block: int, cluster: int) -> None:
    """check and audit agree, and the backing file shrinks by the same amount."""
    with full_loop(192 * MIB) as loop:
        extra = ("-b", str(block), "-O", "bigalloc,^resize_inode", "-C", str(cluster))
        call(*trims.MKFS["ext4"], *extra, f"/dev/{loop}")
        with filesystem(loop, "ext4", make=False) as point:
            for number in range(200):
                (point / f"f{number}").write_bytes(bytes([number + 1]) * 5000)
            os.sync()
            for number in range(0, 200, 3):
                (point / f"f{number}").unlink()
            os.sync()
            foretold = check(point)
            trims.fill_holes(image(loop))
            result = audit(point)
            gone = freed(loop)
    assert foretold.expected_bytes == result.reached_bytes == gone > 128 * MIB
    assert foretold.sent_bytes == result.claimed_bytes
