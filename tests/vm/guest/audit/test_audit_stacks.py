"""`opwatch trim audit` through device mapper and md, on loop devices whose files are the oracle."""

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
from tests.vm.requirements import need_module

DEVICES = ("virtio-blk-nodiscard",)


SIZE = 256 * MIB
KERNEL = tuple(map(int, os.uname().release.split(".")[:2]))


@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_linear(kind: str) -> None:
    with full_loop() as loop, stacked.linear(loop) as top:
        found = audited(top.name, kind, loop)
        sent = whole(found)
        assert sent == found.reached_bytes == freed(loop)
    # XFS counted until 6.11; since then it says how much it looked through.
    assert found.claimed_bytes == (SIZE if kind == "xfs" and KERNEL >= (6, 11) else sent)
    assert [each.layer for each in found.rows] == ["filesystem", "linear", "loop", "granules"]


def test_crypt_with_discards() -> None:
    with full_loop() as loop, stacked.crypt(loop, discards=True) as top:
        found = audited(top.name, "ext4", loop)
        assert whole(found) == found.reached_bytes == freed(loop)
    assert row(found, "crypt").bytes_ok == found.claimed_bytes


def test_crypt_without_discards() -> None:
    with full_loop() as loop, stacked.crypt(loop, discards=False) as top:
        found = audited(top.name, "ext4", loop)
        assert freed(loop) == 0
    assert found.verdict is Verdict.NOT_SENT
    assert list(codes(found)) == ["crypt-no-discards"]
    assert found.claimed_bytes is None


@pytest.mark.parametrize("feature", ["", "no_discard_passdown"])
def test_cache(feature: str) -> None:
    need_module("dm_cache_smq")
    with full_loop() as origin, full_loop(64 * MIB) as fast, full_loop(64 * MIB) as metadata:
        stacked.blank(metadata)
        features = f"2 writethrough {feature}" if feature else "1 writethrough"
        nodes = f"/dev/{metadata} /dev/{fast} /dev/{origin}"
        table = f"0 {stacked.sectors(origin)} cache {nodes} 512 {features} smq 0"
        with stacked.mapped("cache", table) as top:
            found = audited(top.name, "ext4", origin)
            assert found.reached_bytes == freed(origin) == (0 if feature else found.claimed_bytes)
    assert found.unexplained_bytes == 0
    assert codes(found) == ({"cache-no-passdown": found.claimed_bytes} if feature else {})
    assert found.verdict is (Verdict.NOT_SENT if feature else Verdict.ACCEPTED)


def test_what_fails_for_no_reason_that_we_know_is_unexplained() -> None:
    """A device that fails everything for a while, and tells nobody why."""
    with (
        full_loop() as loop,
        stacked.flakey(loop, up_s=3600, down_s=0) as top,
        filesystem(top.name, "ext4") as point,
    ):
        os.sync()
        look_through(point)
        good = call("dmsetup", "table", top.label).strip()
        stacked.reload(top.label, f"0 {stacked.sectors(loop)} flakey /dev/{loop} 0 0 3600")
        found = audit(point)
        stacked.reload(top.label, good)
    sent = leaf(found, top.name).bytes_in
    assert sent
    assert leaf(found, top.name).errors == {"I/O": sent}
    assert (found.verdict, found.reached_bytes, found.claimed_bytes) == (Verdict.REJECTED, 0, 0)
    assert (codes(found), found.unexplained_bytes) == ({}, sent)


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
    """An audit, held against every discard that the loop devices were sent and the holes these left."""
    os.sync()
    for loop in loops:
        trims.fill_holes(image(loop))
    with block_events("block_bio_queue") as events:
        found = audit(point)
        sent = {loop: events.discards(loop) for loop in loops}
    for loop, ranges in sent.items():
        assert Extents.of(ranges).total == freed(loop)
        assert sum(end - start for start, end in ranges) == leaf(found, loop).bytes_ok
        # For a superblock that it passed over, btrfs trims as much of the end again, and claims it.
        twice = sum(end - start for start, end in ranges) - freed(loop)
        assert twice in (0, 4096)
        assert freed(loop) > 64 * MIB
    assert found.unexplained_bytes == 0
    assert (
        found.claimed_bytes == found.reached_bytes == sum(leaf(found, loop).bytes_ok or 0 for loop in loops)
    )
    return found


def test_btrfs_on_two_devices() -> None:
    with full_loop() as one, full_loop() as two, btrfs_on(one, two) as point:
        found = btrfs_audit(point, one, two)
        # What it has not allocated is trimmed once in the life of a mount; the rest again.
        again = audit(point)
    assert found.verdict is again.verdict is Verdict.ACCEPTED
    assert again.claimed_bytes == again.reached_bytes
    assert 0 < again.reached_bytes < found.reached_bytes


def test_btrfs_passes_over_a_device_without_discards() -> None:
    other = sysfs.disk("opw-virtio-nodisc")
    with full_loop() as one, btrfs_on(one, other) as point:
        found = btrfs_audit(point, one)
    assert found.verdict is Verdict.PARTIAL
    assert codes(found) == {"btrfs-device-no-discards": None}


def test_f2fs_that_trims_when_it_is_told() -> None:
    with full_loop() as loop, filesystem(loop, "f2fs", "nodiscard") as point:
        os.sync()
        trims.fill_holes(image(loop))
        found = audit(point)
        assert found.verdict is Verdict.ACCEPTED
        assert found.reached_bytes == freed(loop) == found.claimed_bytes
        assert found.unexplained_bytes == 0
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
        found = audit(point)
        assert found.claimed_bytes == 0
        assert found.reached_bytes == freed(loop)
    assert "filesystem-trims-later" in codes(found)
    assert found.unexplained_bytes == 0
