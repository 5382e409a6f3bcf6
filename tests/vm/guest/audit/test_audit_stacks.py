"""`opwatch trim audit` through device mapper and btrfs, with the files behind loop devices as the oracle."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from opwatch.trim.space.extents import Extents
from tests.kernel.support import trims
from tests.vm.guest.support import stacked, sysfs
from tests.vm.guest.support.audits import (
    MIB,
    Audit,
    Verdict,
    audit_new_filesystem,
    audit_point,
    check_lossless,
    count_freed_bytes,
    find_image,
    find_leaf_row,
    find_row,
    full_loop,
    load_free_space,
    mount_filesystem,
    sum_reasons,
)
from tests.vm.guest.support.events import trace_block_events
from tests.vm.guest.support.shell import run_command
from tests.vm.guest.support.trims import run_check
from tests.vm.requirements import need_module

DEVICES = ("virtio-blk-nodiscard",)
TIERS = ()


SIZE = 256 * MIB
KERNEL = tuple(map(int, os.uname().release.split(".")[:2]))


@pytest.mark.parametrize("kind", ["ext4", pytest.param("xfs", marks=pytest.mark.manual)])
def test_linear_target_frees_the_sent_bytes(kind: str) -> None:
    with full_loop() as loop, stacked.create_linear(loop) as top:
        result = audit_new_filesystem(top.name, kind, loop)
        sent = check_lossless(result)
        assert sent == result.reached_bytes == count_freed_bytes(loop)
    # Before 6.11 XFS claimed the discarded bytes, since 6.11 the examined range.
    assert result.claimed_bytes == (SIZE if kind == "xfs" and KERNEL >= (6, 11) else sent)
    assert [line.layer for line in result.rows] == ["filesystem", "linear", "loop", "granules"]


def test_crypt_with_discards_frees_the_claimed_bytes() -> None:
    with full_loop() as loop, stacked.create_crypt(loop, discards=True) as top:
        result = audit_new_filesystem(top.name, "ext4", loop)
        assert check_lossless(result) == result.reached_bytes == count_freed_bytes(loop)
    assert find_row(result, "crypt").bytes_ok == result.claimed_bytes


@pytest.mark.manual
def test_discards_are_not_sent_through_crypt_without_the_option() -> None:
    with full_loop() as loop, stacked.create_crypt(loop, discards=False) as top:
        result = audit_new_filesystem(top.name, "ext4", loop)
        assert count_freed_bytes(loop) == 0
    assert result.verdict is Verdict.NOT_SENT
    assert list(sum_reasons(result)) == ["crypt-no-discards"]
    assert result.claimed_bytes is None


@pytest.mark.parametrize("feature", [pytest.param("", marks=pytest.mark.manual), "no_discard_passdown"])
def test_cache_passes_discards_down_unless_disabled(feature: str) -> None:
    need_module("dm_cache_smq")
    with full_loop() as origin, full_loop(64 * MIB) as fast, full_loop(64 * MIB) as metadata:
        stacked.blank_start(metadata)
        features = f"2 writethrough {feature}" if feature else "1 writethrough"
        nodes = f"/dev/{metadata} /dev/{fast} /dev/{origin}"
        table = f"0 {stacked.count_sectors(origin)} cache {nodes} 512 {features} smq 0"
        with stacked.create_mapped("cache", table) as top:
            result = audit_new_filesystem(top.name, "ext4", origin)
            assert (
                result.reached_bytes == count_freed_bytes(origin) == (0 if feature else result.claimed_bytes)
            )
    assert result.unexplained_bytes == 0
    assert sum_reasons(result) == ({"cache-no-passdown": result.claimed_bytes} if feature else {})
    assert result.verdict is (Verdict.NOT_SENT if feature else Verdict.ACCEPTED)


def test_flakey_target_rejects_every_discard_in_its_down_interval() -> None:
    """A flakey target in its down interval fails every discard."""
    with (
        full_loop() as loop,
        stacked.create_flakey(loop, up_s=3600, down_s=0) as top,
        mount_filesystem(top.name, "ext4") as point,
    ):
        os.sync()
        load_free_space(point)
        good = run_command("dmsetup", "table", top.label).strip()
        stacked.reload_table(top.label, f"0 {stacked.count_sectors(loop)} flakey /dev/{loop} 0 0 3600")
        result = audit_point(point)
        stacked.reload_table(top.label, good)
    sent = find_leaf_row(result, top.name).bytes_in
    assert sent
    assert find_leaf_row(result, top.name).errors == {"I/O": sent}
    assert (result.verdict, result.reached_bytes, result.claimed_bytes) == (Verdict.REJECTED, 0, 0)
    assert (sum_reasons(result), result.unexplained_bytes) == ({"target-fails": sent}, 0)


@contextlib.contextmanager
def mount_btrfs(*names: str) -> Iterator[Path]:
    need_module("btrfs")
    nodes = [f"/dev/{name}" for name in names]
    trims.run("mkfs.btrfs", "-q", "-f", "-K", "-d", "single", "-m", "single", *nodes)
    trims.run("btrfs", "device", "scan", *nodes)
    with trims.create_folder(Path("/tmp")) as point:
        trims.run("mount", "-t", "btrfs", "-o", "nodiscard", nodes[0], str(point))
        try:
            yield point
        finally:
            trims.run("umount", str(point))


def audit_btrfs(point: Path, *loops: str) -> Audit:
    """Return the audit, checked against all discards to the loop devices and the holes in their files."""
    os.sync()
    for loop in loops:
        trims.fill_holes(find_image(loop))
    with trace_block_events("block_bio_queue") as events:
        result = audit_point(point)
        sent = {loop: events.list_discards(loop) for loop in loops}
    for loop, ranges in sent.items():
        assert Extents.from_pairs(ranges).total_bytes == count_freed_bytes(loop)
        assert sum(end - start for start, end in ranges) == find_leaf_row(result, loop).bytes_ok
        # After skipping a superblock copy, btrfs trims the end of the device again, and claims the bytes too.
        twice = sum(end - start for start, end in ranges) - count_freed_bytes(loop)
        assert twice in (0, 4096)
        assert count_freed_bytes(loop) > 64 * MIB
    assert result.unexplained_bytes == 0
    assert (
        result.claimed_bytes
        == result.reached_bytes
        == sum(find_leaf_row(result, loop).bytes_ok or 0 for loop in loops)
    )
    return result


def test_btrfs_trims_unallocated_space_only_once_per_mount() -> None:
    with full_loop() as one, full_loop() as two, mount_btrfs(one, two) as point:
        result = audit_btrfs(point, one, two)
        # btrfs trims unallocated space once per mount, and free space in its block groups each time.
        again = audit_point(point)
    assert result.verdict is again.verdict is Verdict.ACCEPTED
    assert again.claimed_bytes == again.reached_bytes
    assert 0 < again.reached_bytes < result.reached_bytes


@pytest.mark.manual
def test_btrfs_skips_a_device_without_discards() -> None:
    other = sysfs.disk("opw-virtio-nodisc")
    with full_loop() as one, mount_btrfs(one, other) as point:
        result = audit_btrfs(point, one)
    assert result.verdict is Verdict.PARTIAL
    assert sum_reasons(result).keys() - {"btrfs-discards-again"} == {"btrfs-device-no-discards"}


@pytest.mark.manual
def test_btrfs_seed_device_receives_no_discards() -> None:
    """Free space on the seed stays allocated: the seed is not a device of the mounted filesystem."""
    with full_loop() as seed, full_loop() as sprout:
        trims.run("mkfs.btrfs", "-q", "-f", "-K", "-d", "single", "-m", "single", f"/dev/{seed}")
        trims.run("btrfstune", "-S", "1", f"/dev/{seed}")
        with mount_filesystem(seed, "btrfs", "nodiscard", make=False) as point:
            trims.run("btrfs", "device", "add", "-K", f"/dev/{sprout}", str(point))
            trims.run("mount", "-o", "remount,rw", str(point))
            trims.fill_holes(find_image(seed))
            foretold, result = run_check(point), audit_btrfs(point, sprout)
            assert count_freed_bytes(seed) == 0
    assert (foretold.outlook, result.verdict) == ("reaches", Verdict.ACCEPTED)
    assert [run["device"] for run in foretold.document["dry_run"]] == [sprout]
    assert "btrfs-seed" in foretold.reason_codes & sum_reasons(result).keys()


@pytest.mark.manual
def test_f2fs_with_nodiscard_is_trimmed_by_fitrim() -> None:
    with full_loop() as loop, mount_filesystem(loop, "f2fs", "nodiscard") as point:
        os.sync()
        trims.fill_holes(find_image(loop))
        result = audit_point(point)
        assert result.verdict is Verdict.ACCEPTED
        assert result.reached_bytes == count_freed_bytes(loop) == result.claimed_bytes
        assert result.unexplained_bytes == 0
        again = audit_point(point)
    assert again.verdict is Verdict.NOTHING_LEFT
    assert again.claimed_bytes == 0


@pytest.mark.manual
def test_f2fs_with_discard_trims_later() -> None:
    with full_loop() as loop, mount_filesystem(loop, "f2fs", "discard") as point:
        victim = point / "victim"
        victim.write_bytes(os.urandom(32 * MIB))
        os.sync()
        victim.unlink()
        os.sync()
        trims.fill_holes(find_image(loop))
        result = audit_point(point)
        assert result.claimed_bytes == 0
        assert result.reached_bytes == count_freed_bytes(loop)
    assert "filesystem-trims-later" in sum_reasons(result)
    assert result.unexplained_bytes == 0
