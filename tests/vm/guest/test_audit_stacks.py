"""`opwatch trim audit` through device mapper and md, on loop devices whose files are the oracle."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from opwatch.trim.audit import Audit
from tests.kernel import trims
from tests.vm.guest import stacked, sysfs
from tests.vm.guest.audits import Verdict, audit, codes, filesystem, row, whole
from tests.vm.guest.shell import call
from tests.vm.requirements import need_module

# By hand: they would take CI beyond its time.
TIERS = ()
DEVICES = ("virtio-blk-nodiscard",)
MIB = 1 << 20
SIZE = 256 * MIB


def image(loop: str) -> Path:
    return Path((sysfs.SYS_BLOCK / loop / "loop/backing_file").read_text().strip())


def freed(loop: str) -> int:
    """What the file behind a loop device lacks of all its blocks."""
    path = image(loop)
    return path.stat().st_size - trims.allocated(path)


@contextlib.contextmanager
def full_loop(size: int = SIZE) -> Iterator[str]:
    with stacked.loop(size) as name:
        yield name


def audited(top: str, kind: str, *loops: str) -> Audit:
    """An audit of a new filesystem, with all blocks of the files below there before."""
    with filesystem(top, kind) as point:
        os.sync()
        for loop in loops:
            trims.fill_holes(image(loop))
        return audit(point)


@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_linear(kind: str) -> None:
    with full_loop() as loop, stacked.linear(loop) as top:
        found = audited(top.name, kind, loop)
        assert whole(found) == found.reached_bytes == freed(loop)
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


@contextlib.contextmanager
def thin_mount(options: str = "", write: int = 60 * MIB) -> Iterator[tuple[Path, str]]:
    """ext4 on a thin volume of which a part was written and deleted again; its point and the data loop."""
    with (
        stacked.loop(32 * MIB) as metadata,
        full_loop() as data,
        stacked.thin(data, metadata, SIZE // 512, options) as top,
        filesystem(top.name, "ext4") as point,
    ):
        victim = point / "victim"
        victim.write_bytes(os.urandom(write))
        os.sync()
        victim.unlink()
        os.sync()
        trims.fill_holes(image(data))
        yield point, data


def test_thin() -> None:
    """Whole chunks that are mapped are passed on; the ends and what was never written are not."""
    with thin_mount() as (point, data):
        found = audit(point)
        assert found.reached_bytes == freed(data)
    assert found.reached_bytes >= 55 * MIB
    assert found.unexplained_bytes == 0
    lost = codes(found)
    assert set(lost) <= {"thin-not-mapped", "thin-partial-chunk"}
    assert found.claimed_bytes == found.reached_bytes + sum(each or 0 for each in lost.values())
    assert found.verdict is (Verdict.PARTIAL if lost.get("thin-partial-chunk") else Verdict.ACCEPTED)


def test_thin_that_keeps_discards_to_itself() -> None:
    with thin_mount("1 no_discard_passdown") as (point, data):
        found = audit(point)
        assert freed(data) == 0
    assert found.verdict is Verdict.NOT_SENT
    assert found.claimed_bytes
    assert codes(found) == {"thin-no-passdown": found.claimed_bytes}
    assert found.unexplained_bytes == 0


def test_thin_that_ignores_discards() -> None:
    with thin_mount("1 ignore_discard") as (point, data):
        found = audit(point)
        assert freed(data) == 0
    assert found.verdict is Verdict.NOT_SENT
    assert "thin-ignores-discard" in codes(found)


def test_a_read_only_pool_swallows_discards() -> None:
    with thin_mount() as (point, data):
        [pool] = [
            line.split()[0] for line in call("dmsetup", "ls", "--target", "thin-pool").splitlines() if line
        ]
        table = call("dmsetup", "table", pool).strip().split()
        table = [*table[:7], "1", "read_only"]
        call("dmsetup", "suspend", "--noudevsync", pool)
        call("dmsetup", "load", pool, "--table", " ".join(table))
        call("dmsetup", "resume", "--noudevsync", pool)
        found = audit(point)
        assert freed(data) == 0
        assert found.verdict is Verdict.NOT_SENT
        assert found.claimed_bytes
        assert codes(found) == {"thin-pool-read-only": found.claimed_bytes}
        # ext4 believes that it is done; once it does, the loss lasts until it is mounted again.
        again = audit(point)
        assert again.claimed_bytes == 0
        assert list(codes(again)) == ["ext4-already-trimmed"]


def test_mirror() -> None:
    with full_loop() as one, full_loop() as two, stacked.md(1, [one, two]) as top:
        found = audited(top, "ext4", one, two)
        assert freed(one) == freed(two) == found.claimed_bytes
    assert found.verdict is Verdict.ACCEPTED
    assert found.unexplained_bytes == 0
    assert found.reached_bytes == 2 * (found.claimed_bytes or 0)


def test_mirror_with_a_leg_that_takes_no_discards() -> None:
    other = sysfs.disk("opw-virtio-nodisc")
    with full_loop() as one, stacked.md(1, [one, other]) as top:
        found = audited(top, "ext4", one)
        assert freed(one) == found.claimed_bytes == found.reached_bytes
    assert found.verdict is Verdict.PARTIAL
    assert codes(found) == {"member-no-discards": found.claimed_bytes}
    assert found.unexplained_bytes == 0


@pytest.mark.parametrize("level", [0, 10])
def test_striped(level: int) -> None:
    with contextlib.ExitStack() as held:
        loops = [held.enter_context(full_loop(128 * MIB)) for _ in range(4)]
        top = held.enter_context(stacked.md(level, loops))
        found = audited(top, "ext4", *loops)
        assert sum(freed(loop) for loop in loops) == found.reached_bytes
    assert found.verdict is Verdict.ACCEPTED
    assert found.unexplained_bytes == 0
    assert found.reached_bytes == (2 if level == 10 else 1) * (found.claimed_bytes or 0)


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


def test_btrfs_on_two_devices() -> None:
    with full_loop() as one, full_loop() as two, btrfs_on(one, two) as point:
        os.sync()
        for loop in (one, two):
            trims.fill_holes(image(loop))
        written = sum(sysfs.stat(loop).write_bytes for loop in (one, two))
        found = audit(point)
        written = sum(sysfs.stat(loop).write_bytes for loop in (one, two)) - written
        # What btrfs writes meanwhile takes blocks again.
        assert 0 <= found.reached_bytes - freed(one) - freed(two) <= written < MIB
        assert min(freed(one), freed(two)) > 64 * MIB
    assert found.reached_bytes == found.claimed_bytes
    assert found.verdict is Verdict.ACCEPTED
    assert found.unexplained_bytes == 0


def test_btrfs_passes_over_a_device_without_discards() -> None:
    other = sysfs.disk("opw-virtio-nodisc")
    with full_loop() as one, btrfs_on(one, other) as point:
        os.sync()
        trims.fill_holes(image(one))
        written = sysfs.stat(one).write_bytes
        found = audit(point)
        written = sysfs.stat(one).write_bytes - written
        assert 0 <= found.reached_bytes - freed(one) <= written < MIB
    assert found.verdict is Verdict.PARTIAL
    assert list(codes(found)) == ["btrfs-device-no-discards"]
    assert found.claimed_bytes is not None


def test_f2fs_that_trims_when_it_is_told() -> None:
    with full_loop() as loop, filesystem(loop, "f2fs", "nodiscard") as point:
        os.sync()
        trims.fill_holes(image(loop))
        found = audit(point)
        assert found.verdict is Verdict.ACCEPTED
        assert found.reached_bytes == freed(loop) == found.claimed_bytes
        assert found.unexplained_bytes == 0
        again = audit(point)
    assert again.verdict is Verdict.NOT_SENT
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
