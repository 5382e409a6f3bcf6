"""`opwatch trim audit` through thin pools in every mode, and through dm-snapshot."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.kernel.support import trims
from tests.vm.guest.support import stacked
from tests.vm.guest.support.audits import (
    MIB,
    Audit,
    Verdict,
    audit,
    codes,
    filesystem,
    freed,
    full_loop,
    image,
    look_through,
    row,
)
from tests.vm.guest.support.events import block_events
from tests.vm.guest.support.shell import call
from tests.vm.guest.support.stacked import Mapped
from tests.vm.guest.support.sysfs import SYS_BLOCK

# Manual runs only: these tests would exceed CI's time limit.
TIERS = ()
SIZE = 256 * MIB
CHUNK = 64 << 10


@dataclass(frozen=True)
class Thin:
    """A filesystem on a thin volume: mount point, volume, and the pool's data and metadata devices."""

    point: Path
    volume: Mapped
    data: str
    metadata: str

    @property
    def pool(self) -> str:
        """The pool's dmsetup name."""
        [below] = (SYS_BLOCK / self.volume.name / "slaves").iterdir()
        return (SYS_BLOCK / below.name / "dm/name").read_text().strip()

    def message(self, text: str) -> None:
        call("dmsetup", "message", self.pool, "0", text)


@contextlib.contextmanager
def thin(options: str = "", write: int = 60 * MIB, data_bytes: int = SIZE) -> Iterator[Thin]:
    """Yield ext4 on a thin volume, part of which was written and deleted again."""
    with (
        full_loop(32 * MIB) as metadata,
        full_loop(data_bytes) as data,
        stacked.thin(data, metadata, SIZE // 512, options) as volume,
        filesystem(volume.name, "ext4") as point,
    ):
        victim = point / "victim"
        victim.write_bytes(os.urandom(write))
        os.sync()
        victim.unlink()
        os.sync()
        trims.fill_holes(image(data))
        yield Thin(point, volume, data, metadata)


def lost(result: Audit) -> int:
    return sum(lost_bytes or 0 for lost_bytes in codes(result).values())


def test_what_is_mapped_is_passed_on() -> None:
    """Whole mapped chunks reach the disk; the ends of extents and chunks that were never written do not."""
    with thin() as one:
        result = audit(one.point)
        assert result.reached_bytes == freed(one.data)
    # Device mapper splits the discards in two ways, and each byte completes once.
    assert row(result, "thin").bytes_ok == result.claimed_bytes
    assert result.reached_bytes >= 55 * MIB
    assert result.unexplained_bytes == 0
    assert {"thin-not-mapped"} <= set(codes(result)) <= {"thin-not-mapped", "thin-partial-chunk"}
    assert result.claimed_bytes == result.reached_bytes + lost(result)


def test_what_was_mapped_backwards_is_joined_at_the_front() -> None:
    """The pool's thread sends pieces in descending order: each ends where the previous piece starts."""
    with thin(write=MIB) as one:
        path = one.point / "backwards"
        with path.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, 64 * CHUNK)
        descriptor = os.open(path, os.O_WRONLY | os.O_DSYNC)
        for at in range(63, -1, -1):
            os.pwrite(descriptor, os.urandom(CHUNK), at * CHUNK)
        os.close(descriptor)
        path.unlink()
        os.sync()
        trims.fill_holes(image(one.data))
        with block_events("block_bio_frontmerge") as events:
            result = audit(one.point)
            assert events.counts()["block_bio_frontmerge"] > 16
        assert result.reached_bytes == freed(one.data)
    assert result.unexplained_bytes == 0
    assert result.notes == ()


def test_the_ends_of_extents_are_no_whole_chunks() -> None:
    """The whole volume is mapped, so partial chunks are the only loss."""
    with (
        full_loop(32 * MIB) as metadata,
        full_loop() as data,
        stacked.thin(data, metadata, (SIZE - 16 * MIB) // 512) as volume,
    ):
        call("dd", "if=/dev/zero", f"of=/dev/{volume.name}", "bs=1M", "count=240", "oflag=direct")
        with filesystem(volume.name, "ext4") as point:
            # Leave single blocks free between others.
            for number in range(64):
                (point / f"f{number}").write_bytes(bytes(4096))
            os.sync()
            for number in range(0, 64, 2):
                (point / f"f{number}").unlink()
            os.sync()
            trims.fill_holes(image(data))
            result = audit(point)
            assert result.reached_bytes == freed(data) > 128 * MIB
    assert result.claimed_bytes
    assert codes(result) == {"thin-partial-chunk": result.claimed_bytes - result.reached_bytes}
    assert lost(result) > 0
    assert (result.verdict, result.unexplained_bytes) == (Verdict.PARTIAL, 0)
    assert result.reached_bytes % CHUNK == 0


def test_what_a_snapshot_shares_stays() -> None:
    with thin() as one:
        call("dmsetup", "suspend", "--noudevsync", one.volume.label)
        one.message("create_snap 1 0")
        call("dmsetup", "resume", "--noudevsync", one.volume.label)
        result = audit(one.point)
        assert result.reached_bytes == freed(one.data)
    assert result.reached_bytes < MIB
    assert result.claimed_bytes
    assert (codes(result)["thin-shared"] or 0) >= 55 * MIB
    assert result.claimed_bytes == result.reached_bytes + lost(result)
    assert result.verdict in (Verdict.PARTIAL, Verdict.NOT_SENT)
    assert result.unexplained_bytes == 0


def test_a_pool_that_keeps_discards_to_itself() -> None:
    with thin("1 no_discard_passdown") as one:
        result = audit(one.point)
        assert freed(one.data) == 0
    assert result.verdict is Verdict.NOT_SENT
    assert result.claimed_bytes
    assert codes(result) == {"thin-no-passdown": result.claimed_bytes}
    assert result.unexplained_bytes == 0


def test_a_pool_that_ignores_discards() -> None:
    with thin("1 ignore_discard") as one:
        result = audit(one.point)
        assert freed(one.data) == 0
    assert (result.verdict, result.claimed_bytes) == (Verdict.NOT_SENT, None)
    assert list(codes(result)) == ["thin-ignores-discard"]


def test_a_read_only_pool_swallows_discards() -> None:
    """ext4 considers the trim done, so the swallowed ranges stay allocated until the next mount."""
    with thin() as one:
        pool = one.pool
        table = call("dmsetup", "table", pool).strip().split()[:7]
        stacked.reload(pool, " ".join([*table, "1", "read_only"]))
        result = audit(one.point)
        assert freed(one.data) == 0
        assert result.verdict is Verdict.NOT_SENT
        assert result.claimed_bytes
        assert codes(result) == {"thin-pool-read-only": result.claimed_bytes}
        assert result.unexplained_bytes == 0
        stacked.reload(pool, " ".join([*table, "0"]))
        again = audit(one.point)
        assert (again.verdict, again.claimed_bytes) == (Verdict.NOTHING_LEFT, 0)
        assert list(codes(again)) == ["ext4-already-trimmed"]
        # Unmount first: a second mount point would show the same mounted filesystem.
        call("umount", str(one.point))
        call("mount", "-t", "ext4", f"/dev/{one.volume.name}", str(one.point))
        third = audit(one.point)
        assert third.reached_bytes == freed(one.data) >= 55 * MIB
        assert third.claimed_bytes == third.reached_bytes + lost(third)


def test_a_pool_whose_metadata_failed_fails_discards() -> None:
    with (
        full_loop(32 * MIB) as disk,
        full_loop() as data,
        stacked.linear(disk) as metadata,
        stacked.thin(data, metadata.name, SIZE // 512) as volume,
        filesystem(volume.name, "ext4") as point,
    ):
        os.sync()
        trims.fill_holes(image(data))
        one = Thin(point, volume, data, metadata.name)
        look_through(point)
        good = call("dmsetup", "table", metadata.label).strip()
        stacked.reload(metadata.label, f"0 {stacked.sectors(disk)} error")
        with contextlib.suppress(RuntimeError):
            one.message("create_thin 1")
        assert "Fail" in call("dmsetup", "status", one.pool)
        result = audit(point)
        assert freed(data) == 0
        stacked.reload(metadata.label, good)
    top = row(result, "thin")
    assert top.bytes_in
    assert top.errors == {"I/O": top.bytes_in}
    assert codes(result) == {"thin-pool-read-only": top.bytes_in}
    assert (result.verdict, result.claimed_bytes) == (Verdict.REJECTED, 0)
    assert (result.reached_bytes, result.unexplained_bytes) == (0, 0)


def test_a_pool_without_room_takes_discards() -> None:
    """A trim gives a full pool its space back. Another volume has taken the rest of the pool."""
    with thin("1 error_if_no_space", data_bytes=128 * MIB) as one:
        one.message("create_thin 1")
        table = f"0 {SIZE // 512} thin /dev/mapper/{one.pool} 1"
        with stacked.mapped("thin", table, "dm_thin_pool") as other:
            with contextlib.suppress(OSError), Path(f"/dev/{other.name}").open("wb", buffering=0) as file:
                while file.write(bytes(MIB)):
                    os.fsync(file.fileno())
            assert "out_of_data_space" in call("dmsetup", "status", one.pool)
            trims.fill_holes(image(one.data))
            result = audit(one.point)
            assert result.reached_bytes == freed(one.data) >= 55 * MIB
    assert result.unexplained_bytes == 0
    assert result.claimed_bytes == result.reached_bytes + lost(result)


@pytest.mark.parametrize("kind", ["snapshot", "snapshot-origin"])
def test_old_snapshots(kind: str) -> None:
    with full_loop(48 * MIB) as origin, full_loop(64 * MIB) as cow:
        table = f"0 {stacked.sectors(origin)} {kind} /dev/{origin}"
        table += f" /dev/{cow} N 8" if kind == "snapshot" else ""
        with stacked.mapped(kind, table, "dm_snapshot") as top, filesystem(top.name, "ext4") as point:
            trims.fill_holes(image(origin))
            result = audit(point)
            assert freed(origin) == 0
    assert (result.verdict, result.claimed_bytes) == (Verdict.NOT_SENT, None)
    assert list(codes(result)) == ["snapshot-swallows"]
    assert row(result, "filesystem").bytes_out == 0


def test_a_snapshot_that_passes_discards_to_its_origin() -> None:
    """With both features, the exception store is zeroed and the origin gets the discard."""
    with full_loop(48 * MIB) as origin, full_loop(64 * MIB) as cow:
        features = "2 discard_zeroes_cow discard_passdown_origin"
        table = f"0 {stacked.sectors(origin)} snapshot /dev/{origin} /dev/{cow} N 8 {features}"
        with stacked.mapped("snapshot", table, "dm_snapshot") as top, filesystem(top.name, "ext4") as point:
            trims.fill_holes(image(origin))
            result = audit(point)
            gone = freed(origin)
    assert result.reached_bytes == gone
    assert result.unexplained_bytes == 0
