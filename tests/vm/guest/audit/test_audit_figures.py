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
from opwatch.trim.layers.arrays import find_array
from tests.kernel.support import trims
from tests.kernel.support.trims import find_mount_at
from tests.vm.guest.support import stacked, sysfs
from tests.vm.guest.support.audits import (
    MIB,
    Verdict,
    audit_point,
    count_freed_bytes,
    find_image,
    find_leaf_row,
    full_loop,
    mount_filesystem,
    sum_reasons,
)
from tests.vm.guest.support.shell import run_command, write_attribute
from tests.vm.guest.support.trims import run_check
from tests.vm.requirements import need_module, need_tool

# Manual runs only: these tests would exceed CI's time limit.
TIERS = ()
DEVICES = ("virtio-blk-nodiscard",)


def _create_loops(opened: contextlib.ExitStack, count: int, size: int = 96 * MIB) -> list[str]:
    return [opened.enter_context(full_loop(size)) for _ in range(count)]


def test_raid_5_journal_device_is_not_counted() -> None:
    need_module("raid456")
    write_attribute(Path("/sys/module/raid456/parameters/devices_handle_discard_safely"), "Y")
    with contextlib.ExitStack() as opened:
        *members, journal = _create_loops(opened, 4)
        nodes = [f"/dev/{member}" for member in members]
        argv = ["mdadm", "--create", "/dev/md77", "--run", "--metadata=1.2", "--level=5", "--raid-devices=3"]
        run_command(*argv, "--assume-clean", f"--write-journal=/dev/{journal}", *nodes)
        opened.callback(run_command, "mdadm", "--stop", "/dev/md77")
        with mount_filesystem("md77", "ext4") as point:
            os.sync()
            for member in members:
                trims.fill_holes(find_image(member))
            result = audit_point(point)
            gone = sum(count_freed_bytes(member) for member in members)
    assert result.reached_bytes == gone > 96 * MIB
    assert result.unexplained_bytes == 0, result.rows
    assert list(sum_reasons(result)) == ["raid456-partial-stripe"]


def test_rebuilding_md_mirror_is_never_proven() -> None:
    with contextlib.ExitStack() as opened:
        one, two, new = _create_loops(opened, 3)
        top = opened.enter_context(stacked.create_md(1, [one, two]))
        with mount_filesystem(top, "ext4") as point:
            (point / "file").write_bytes(os.urandom(32 * MIB))
            os.sync()
            run_command("mdadm", f"/dev/{top}", "--fail", f"/dev/{two}", "--remove", f"/dev/{two}")
            # Slow enough that the rebuild is still running during the trim.
            for limit in ("sync_speed_min", "sync_speed_max"):
                write_attribute(sysfs.SYS_BLOCK / top / "md" / limit, 1000)
            run_command("mdadm", f"/dev/{top}", "--add", f"/dev/{new}")
            result = audit_mount(find_mount_at(point), Asked(), prove=True)
            write_attribute(sysfs.SYS_BLOCK / top / "md/sync_action", "idle")
    assert "array-writes" in sum_reasons(result)
    assert result.verdict in (Verdict.ACCEPTED, Verdict.PARTIAL), result.rows


def test_resyncing_dm_mirror_is_never_proven() -> None:
    with contextlib.ExitStack() as opened:
        one, two, *records = _create_loops(opened, 4)
        pairs = " ".join(f"/dev/{record} /dev/{leg}" for record, leg in zip(records, (one, two), strict=True))
        # Slow enough that the resync is still running during the trim.
        words = f"raid1 5 0 region_size 1024 max_recovery_rate 1000 2 {pairs}"
        table = f"0 {stacked.count_sectors(one)} raid {words}"
        top = opened.enter_context(stacked.create_mapped("raid", table, "dm_raid"))
        with mount_filesystem(top.name, "ext4") as point:
            result = audit_mount(find_mount_at(point), Asked(), prove=True)
            [array] = [layer for layer in result.evidence.after.layers if layer.device == top.name]
    facts = find_array(array)
    assert facts and facts.sync_action == "resync"
    assert "array-writes" in sum_reasons(result)
    assert result.verdict in (Verdict.ACCEPTED, Verdict.PARTIAL), result.rows


@contextlib.contextmanager
def mount_f2fs(first: str, second: str) -> Iterator[Path]:
    """Yield f2fs on two devices, mostly unwritten."""
    need_module("f2fs")
    need_tool("mkfs.f2fs")
    run_command("mkfs.f2fs", "-q", "-f", "-t", "0", "-c", f"/dev/{second}", f"/dev/{first}")
    with trims.create_folder(Path("/tmp")) as point:
        run_command("mount", "-t", "f2fs", "-o", "nodiscard", f"/dev/{first}", str(point))
        try:
            yield point
        finally:
            run_command("umount", str(point))


def test_f2fs_on_two_devices_frees_bytes_on_both() -> None:
    with contextlib.ExitStack() as opened:
        loops = _create_loops(opened, 2, 128 * MIB)
        point = opened.enter_context(mount_f2fs(loops[0], loops[1]))
        os.sync()
        for loop in loops:
            trims.fill_holes(find_image(loop))
        result = audit_point(point)
        gone = [count_freed_bytes(loop) for loop in loops]
    assert [find_leaf_row(result, loop).bytes_ok for loop in loops] == gone
    assert result.reached_bytes == sum(gone) > 128 * MIB
    assert (result.verdict, result.unexplained_bytes) == (Verdict.ACCEPTED, 0), result.rows


def test_f2fs_is_partial_when_a_device_accepts_no_discards() -> None:
    other = sysfs.disk("opw-virtio-nodisc")
    with full_loop(128 * MIB) as one, mount_f2fs(one, other) as point:
        os.sync()
        trims.fill_holes(find_image(one))
        result = audit_point(point)
        assert result.reached_bytes == count_freed_bytes(one) > 32 * MIB
    assert result.verdict is Verdict.PARTIAL, result.rows
    assert "virtual-no-discards" in sum_reasons(result)


@pytest.mark.parametrize(("block", "cluster"), [(1024, 16384), (4096, 65536)])
def test_ext4_cluster_prediction_equals_the_freed_bytes(block: int, cluster: int) -> None:
    """check and audit agree, and the backing file shrinks by the same amount."""
    with full_loop(192 * MIB) as loop:
        extra = ("-b", str(block), "-O", "bigalloc,^resize_inode", "-C", str(cluster))
        run_command(*trims.MKFS["ext4"], *extra, f"/dev/{loop}")
        with mount_filesystem(loop, "ext4", make=False) as point:
            for number in range(200):
                (point / f"f{number}").write_bytes(bytes([number + 1]) * 5000)
            os.sync()
            for number in range(0, 200, 3):
                (point / f"f{number}").unlink()
            os.sync()
            foretold = run_check(point)
            trims.fill_holes(find_image(loop))
            result = audit_point(point)
            gone = count_freed_bytes(loop)
    assert foretold.expected_bytes == result.reached_bytes == gone > 128 * MIB
    assert foretold.sent_bytes == result.claimed_bytes
