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
    audit,
    audited,
    codes,
    filesystem,
    freed,
    full_loop,
    image,
    leaf,
    look_through,
    row,
    whole,
)
from tests.vm.guest.support.events import block_events
from tests.vm.guest.support.shell import call
from tests.vm.guest.support.trims import check
from tests.vm.requirements import need_module

DEVICES = ("virtio-blk-nodiscard",)


SIZE = 256 * MIB
KERNEL = tuple(map(int, os.uname().release.split(".")[:2]))


@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_linear(kind: str) -> None:
    with full_loop() as loop, stacked.linear(loop) as top:
        result = audited(top.name, kind, loop)
        sent = whole(result)
        assert sent == result.reached_bytes == freed(loop)
    # Before 6.11 XFS claimed the discarded bytes, since 6.11 the examined range.
    assert result.claimed_bytes == (SIZE if kind == "xfs" and KERNEL >= (6, 11) else sent)
    assert [line.layer for line in result.rows] == ["filesystem", "linear", "loop", "granules"]


def test_crypt_with_discards() -> None:
    with full_loop() as loop, stacked.crypt(loop, discards=True) as top:
        result = audited(top.name, "ext4", loop)
        assert whole(result) == result.reached_bytes == freed(loop)
    assert row(result, "crypt").bytes_ok == result.claimed_bytes


def test_crypt_without_discards() -> None:
    with full_loop() as loop, stacked.crypt(loop, discards=False) as top:
        result = audited(top.name, "ext4", loop)
        assert freed(loop) == 0
    assert result.verdict is Verdict.NOT_SENT
    assert list(codes(result)) == ["crypt-no-discards"]
    assert result.claimed_bytes is None


@pytest.mark.parametrize("feature", ["", "no_discard_passdown"])
def test_cache(feature: str) -> None:
    need_module("dm_cache_smq")
    with full_loop() as origin, full_loop(64 * MIB) as fast, full_loop(64 * MIB) as metadata:
        stacked.blank(metadata)
        features = f"2 writethrough {feature}" if feature else "1 writethrough"
        nodes = f"/dev/{metadata} /dev/{fast} /dev/{origin}"
        table = f"0 {stacked.sectors(origin)} cache {nodes} 512 {features} smq 0"
        with stacked.mapped("cache", table) as top:
            result = audited(top.name, "ext4", origin)
            assert result.reached_bytes == freed(origin) == (0 if feature else result.claimed_bytes)
    assert result.unexplained_bytes == 0
    assert codes(result) == ({"cache-no-passdown": result.claimed_bytes} if feature else {})
    assert result.verdict is (Verdict.NOT_SENT if feature else Verdict.ACCEPTED)


def test_what_fails_because_its_table_says_so() -> None:
    """A flakey target in its down interval fails every discard."""
    with (
        full_loop() as loop,
        stacked.flakey(loop, up_s=3600, down_s=0) as top,
        filesystem(top.name, "ext4") as point,
    ):
        os.sync()
        look_through(point)
        good = call("dmsetup", "table", top.label).strip()
        stacked.reload(top.label, f"0 {stacked.sectors(loop)} flakey /dev/{loop} 0 0 3600")
        result = audit(point)
        stacked.reload(top.label, good)
    sent = leaf(result, top.name).bytes_in
    assert sent
    assert leaf(result, top.name).errors == {"I/O": sent}
    assert (result.verdict, result.reached_bytes, result.claimed_bytes) == (Verdict.REJECTED, 0, 0)
    assert (codes(result), result.unexplained_bytes) == ({"target-fails": sent}, 0)


@contextlib.contextmanager
def btrfs_on(*names: str) -> Iterator[Path]:
    need_module("btrfs")
    nodes = [f"/dev/{name}" for name in names]
    trims.run("mkfs.btrfs", "-q", "-f", "-K", "-d", "single", "-m", "single", *nodes)
    trims.run("btrfs", "device", "scan", *nodes)
    with trims.folder(Path("/tmp")) as point:
        trims.run("mount", "-t", "btrfs", "-o", "nodiscard", nodes[0], str(point))
        try:
            yield point
        finally:
            trims.run("umount", str(point))


def btrfs_audit(point: Path, *loops: str) -> Audit:
    """Return the audit, checked against all discards to the loop devices and the holes in their files."""
    os.sync()
    for loop in loops:
        trims.fill_holes(image(loop))
    with block_events("block_bio_queue") as events:
        result = audit(point)
        sent = {loop: events.discards(loop) for loop in loops}
    for loop, ranges in sent.items():
        assert Extents.of(ranges).total == freed(loop)
        assert sum(end - start for start, end in ranges) == leaf(result, loop).bytes_ok
        # After skipping a superblock copy, btrfs trims the end of the device again, and claims the bytes too.
        twice = sum(end - start for start, end in ranges) - freed(loop)
        assert twice in (0, 4096)
        assert freed(loop) > 64 * MIB
    assert result.unexplained_bytes == 0
    assert (
        result.claimed_bytes
        == result.reached_bytes
        == sum(leaf(result, loop).bytes_ok or 0 for loop in loops)
    )
    return result


def test_btrfs_on_two_devices() -> None:
    with full_loop() as one, full_loop() as two, btrfs_on(one, two) as point:
        result = btrfs_audit(point, one, two)
        # btrfs trims unallocated space once per mount, and free space in its block groups each time.
        again = audit(point)
    assert result.verdict is again.verdict is Verdict.ACCEPTED
    assert again.claimed_bytes == again.reached_bytes
    assert 0 < again.reached_bytes < result.reached_bytes


def test_btrfs_passes_over_a_device_without_discards() -> None:
    other = sysfs.disk("opw-virtio-nodisc")
    with full_loop() as one, btrfs_on(one, other) as point:
        result = btrfs_audit(point, one)
    assert result.verdict is Verdict.PARTIAL
    assert codes(result).keys() - {"btrfs-discards-again"} == {"btrfs-device-no-discards"}


def test_a_seed_of_btrfs_is_only_read() -> None:
    """Free space on the seed stays allocated: the seed is not a device of the mounted filesystem."""
    with full_loop() as seed, full_loop() as sprout:
        trims.run("mkfs.btrfs", "-q", "-f", "-K", "-d", "single", "-m", "single", f"/dev/{seed}")
        trims.run("btrfstune", "-S", "1", f"/dev/{seed}")
        with filesystem(seed, "btrfs", "nodiscard", make=False) as point:
            trims.run("btrfs", "device", "add", "-K", f"/dev/{sprout}", str(point))
            trims.run("mount", "-o", "remount,rw", str(point))
            trims.fill_holes(image(seed))
            foretold, result = check(point), btrfs_audit(point, sprout)
            assert freed(seed) == 0
    assert (foretold.outlook, result.verdict) == ("reaches", Verdict.ACCEPTED)
    assert [run["device"] for run in foretold.document["dry_run"]] == [sprout]
    assert "btrfs-seed" in foretold.codes & codes(result).keys()


def test_f2fs_that_trims_when_it_is_told() -> None:
    with full_loop() as loop, filesystem(loop, "f2fs", "nodiscard") as point:
        os.sync()
        trims.fill_holes(image(loop))
        result = audit(point)
        assert result.verdict is Verdict.ACCEPTED
        assert result.reached_bytes == freed(loop) == result.claimed_bytes
        assert result.unexplained_bytes == 0
        again = audit(point)
    assert again.verdict is Verdict.NOTHING_LEFT
    assert again.claimed_bytes == 0


def test_f2fs_that_trims_when_it_likes() -> None:
    with full_loop() as loop, filesystem(loop, "f2fs", "discard") as point:
        victim = point / "victim"
        victim.write_bytes(os.urandom(32 * MIB))
        os.sync()
        victim.unlink()
        os.sync()
        trims.fill_holes(image(loop))
        result = audit(point)
        assert result.claimed_bytes == 0
        assert result.reached_bytes == freed(loop)
    assert "filesystem-trims-later" in codes(result)
    assert result.unexplained_bytes == 0
