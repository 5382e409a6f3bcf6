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
    audit_point,
    count_freed_bytes,
    find_image,
    find_row,
    full_loop,
    load_free_space,
    mount_filesystem,
    sum_reasons,
)
from tests.vm.guest.support.events import trace_block_events
from tests.vm.guest.support.shell import run_command
from tests.vm.guest.support.stacked import Mapped
from tests.vm.guest.support.sysfs import SYS_BLOCK

# Manual runs only: these tests would exceed CI's time limit.
TIERS = ()
SIZE = 256 * MIB
CHUNK = 64 << 10


@dataclass(frozen=True)
class ThinFilesystem:
    """A filesystem on a thin volume: mount point, volume, and the pool's data and metadata devices."""

    point: Path
    volume: Mapped
    data: str
    metadata: str

    @property
    def pool_label(self) -> str:
        """The pool's dmsetup name."""
        [below] = (SYS_BLOCK / self.volume.name / "slaves").iterdir()
        return (SYS_BLOCK / below.name / "dm/name").read_text().strip()

    def send_message(self, text: str) -> None:
        run_command("dmsetup", "message", self.pool_label, "0", text)


@contextlib.contextmanager
def mount_thin_volume(
    options: str = "", write: int = 60 * MIB, data_bytes: int = SIZE
) -> Iterator[ThinFilesystem]:
    """Yield ext4 on a thin volume, part of which was written and deleted again."""
    with (
        full_loop(32 * MIB) as metadata,
        full_loop(data_bytes) as data,
        stacked.create_thin(data, metadata, SIZE // 512, options) as volume,
        mount_filesystem(volume.name, "ext4") as point,
    ):
        victim = point / "victim"
        victim.write_bytes(os.urandom(write))
        os.sync()
        victim.unlink()
        os.sync()
        trims.fill_holes(find_image(data))
        yield ThinFilesystem(point, volume, data, metadata)


def sum_lost_bytes(result: Audit) -> int:
    return sum(lost_bytes or 0 for lost_bytes in sum_reasons(result).values())


def test_thin_pool_passes_on_mapped_chunks_only() -> None:
    """Whole mapped chunks reach the disk; the ends of extents and chunks that were never written do not."""
    with mount_thin_volume() as one:
        result = audit_point(one.point)
        assert result.reached_bytes == count_freed_bytes(one.data)
    # Device mapper splits the discards in two ways, and each byte completes once.
    assert find_row(result, "thin").bytes_ok == result.claimed_bytes
    assert result.reached_bytes >= 55 * MIB
    assert result.unexplained_bytes == 0
    assert {"thin-not-mapped"} <= set(sum_reasons(result)) <= {"thin-not-mapped", "thin-partial-chunk"}
    assert result.claimed_bytes == result.reached_bytes + sum_lost_bytes(result)


def test_discards_of_chunks_mapped_in_reverse_are_front_merged() -> None:
    """The pool's thread sends pieces in descending order: each ends where the previous piece starts."""
    with mount_thin_volume(write=MIB) as one:
        path = one.point / "backwards"
        with path.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, 64 * CHUNK)
        descriptor = os.open(path, os.O_WRONLY | os.O_DSYNC)
        for at in range(63, -1, -1):
            os.pwrite(descriptor, os.urandom(CHUNK), at * CHUNK)
        os.close(descriptor)
        path.unlink()
        os.sync()
        trims.fill_holes(find_image(one.data))
        with trace_block_events("block_bio_frontmerge") as events:
            result = audit_point(one.point)
            assert events.count_events()["block_bio_frontmerge"] > 16
        assert result.reached_bytes == count_freed_bytes(one.data)
    assert result.unexplained_bytes == 0
    assert result.notes == ()


def test_partial_chunks_at_extent_ends_are_lost() -> None:
    """The whole volume is mapped, so partial chunks are the only loss."""
    with (
        full_loop(32 * MIB) as metadata,
        full_loop() as data,
        stacked.create_thin(data, metadata, (SIZE - 16 * MIB) // 512) as volume,
    ):
        run_command("dd", "if=/dev/zero", f"of=/dev/{volume.name}", "bs=1M", "count=240", "oflag=direct")
        with mount_filesystem(volume.name, "ext4") as point:
            # Leave single blocks free between others.
            for number in range(64):
                (point / f"f{number}").write_bytes(bytes(4096))
            os.sync()
            for number in range(0, 64, 2):
                (point / f"f{number}").unlink()
            os.sync()
            trims.fill_holes(find_image(data))
            result = audit_point(point)
            assert result.reached_bytes == count_freed_bytes(data) > 128 * MIB
    assert result.claimed_bytes
    assert sum_reasons(result) == {"thin-partial-chunk": result.claimed_bytes - result.reached_bytes}
    assert sum_lost_bytes(result) > 0
    assert (result.verdict, result.unexplained_bytes) == (Verdict.PARTIAL, 0)
    assert result.reached_bytes % CHUNK == 0


def test_chunks_shared_with_a_snapshot_stay_allocated() -> None:
    with mount_thin_volume() as one:
        run_command("dmsetup", "suspend", "--noudevsync", one.volume.label)
        one.send_message("create_snap 1 0")
        run_command("dmsetup", "resume", "--noudevsync", one.volume.label)
        result = audit_point(one.point)
        assert result.reached_bytes == count_freed_bytes(one.data)
    assert result.reached_bytes < MIB
    assert result.claimed_bytes
    assert (sum_reasons(result)["thin-shared"] or 0) >= 55 * MIB
    assert result.claimed_bytes == result.reached_bytes + sum_lost_bytes(result)
    assert result.verdict in (Verdict.PARTIAL, Verdict.NOT_SENT)
    assert result.unexplained_bytes == 0


def test_pool_without_passdown_sends_no_discards() -> None:
    with mount_thin_volume("1 no_discard_passdown") as one:
        result = audit_point(one.point)
        assert count_freed_bytes(one.data) == 0
    assert result.verdict is Verdict.NOT_SENT
    assert result.claimed_bytes
    assert sum_reasons(result) == {"thin-no-passdown": result.claimed_bytes}
    assert result.unexplained_bytes == 0


def test_pool_that_ignores_discards_is_reported() -> None:
    with mount_thin_volume("1 ignore_discard") as one:
        result = audit_point(one.point)
        assert count_freed_bytes(one.data) == 0
    assert (result.verdict, result.claimed_bytes) == (Verdict.NOT_SENT, None)
    assert list(sum_reasons(result)) == ["thin-ignores-discard"]


def test_read_only_pool_drops_discards_until_the_next_mount() -> None:
    """ext4 considers the trim done, so the swallowed ranges stay allocated until the next mount."""
    with mount_thin_volume() as one:
        pool = one.pool_label
        table = run_command("dmsetup", "table", pool).strip().split()[:7]
        stacked.reload_table(pool, " ".join([*table, "1", "read_only"]))
        result = audit_point(one.point)
        assert count_freed_bytes(one.data) == 0
        assert result.verdict is Verdict.NOT_SENT
        assert result.claimed_bytes
        assert sum_reasons(result) == {"thin-pool-read-only": result.claimed_bytes}
        assert result.unexplained_bytes == 0
        stacked.reload_table(pool, " ".join([*table, "0"]))
        again = audit_point(one.point)
        assert (again.verdict, again.claimed_bytes) == (Verdict.NOTHING_LEFT, 0)
        assert list(sum_reasons(again)) == ["ext4-already-trimmed"]
        # Unmount first: a second mount point would show the same mounted filesystem.
        run_command("umount", str(one.point))
        run_command("mount", "-t", "ext4", f"/dev/{one.volume.name}", str(one.point))
        third = audit_point(one.point)
        assert third.reached_bytes == count_freed_bytes(one.data) >= 55 * MIB
        assert third.claimed_bytes == third.reached_bytes + sum_lost_bytes(third)


def test_pool_with_failed_metadata_rejects_discards() -> None:
    with (
        full_loop(32 * MIB) as disk,
        full_loop() as data,
        stacked.create_linear(disk) as metadata,
        stacked.create_thin(data, metadata.name, SIZE // 512) as volume,
        mount_filesystem(volume.name, "ext4") as point,
    ):
        os.sync()
        trims.fill_holes(find_image(data))
        one = ThinFilesystem(point, volume, data, metadata.name)
        load_free_space(point)
        good = run_command("dmsetup", "table", metadata.label).strip()
        stacked.reload_table(metadata.label, f"0 {stacked.count_sectors(disk)} error")
        with contextlib.suppress(RuntimeError):
            one.send_message("create_thin 1")
        assert "Fail" in run_command("dmsetup", "status", one.pool_label)
        result = audit_point(point)
        assert count_freed_bytes(data) == 0
        stacked.reload_table(metadata.label, good)
    top = find_row(result, "thin")
    assert top.bytes_in
    assert top.errors == {"I/O": top.bytes_in}
    assert sum_reasons(result) == {"thin-pool-read-only": top.bytes_in}
    assert (result.verdict, result.claimed_bytes) == (Verdict.REJECTED, 0)
    assert (result.reached_bytes, result.unexplained_bytes) == (0, 0)


def test_full_pool_accepts_discards() -> None:
    """A trim gives a full pool its space back. Another volume has taken the rest of the pool."""
    with mount_thin_volume("1 error_if_no_space", data_bytes=128 * MIB) as one:
        one.send_message("create_thin 1")
        table = f"0 {SIZE // 512} thin /dev/mapper/{one.pool_label} 1"
        with stacked.create_mapped("thin", table, "dm_thin_pool") as other:
            with contextlib.suppress(OSError), Path(f"/dev/{other.name}").open("wb", buffering=0) as file:
                while file.write(bytes(MIB)):
                    os.fsync(file.fileno())
            assert "out_of_data_space" in run_command("dmsetup", "status", one.pool_label)
            trims.fill_holes(find_image(one.data))
            result = audit_point(one.point)
            assert result.reached_bytes == count_freed_bytes(one.data) >= 55 * MIB
    assert result.unexplained_bytes == 0
    assert result.claimed_bytes == result.reached_bytes + sum_lost_bytes(result)


@pytest.mark.parametrize("kind", ["snapshot", "snapshot-origin"])
def test_dm_snapshot_drops_discards(kind: str) -> None:
    with full_loop(48 * MIB) as origin, full_loop(64 * MIB) as cow:
        table = f"0 {stacked.count_sectors(origin)} {kind} /dev/{origin}"
        table += f" /dev/{cow} N 8" if kind == "snapshot" else ""
        with (
            stacked.create_mapped(kind, table, "dm_snapshot") as top,
            mount_filesystem(top.name, "ext4") as point,
        ):
            trims.fill_holes(find_image(origin))
            result = audit_point(point)
            assert count_freed_bytes(origin) == 0
    assert (result.verdict, result.claimed_bytes) == (Verdict.NOT_SENT, None)
    assert list(sum_reasons(result)) == ["snapshot-swallows"]
    assert find_row(result, "filesystem").bytes_out == 0


def test_dm_snapshot_with_passdown_frees_bytes_on_its_origin() -> None:
    """With both features, the exception store is zeroed and the origin gets the discard."""
    with full_loop(48 * MIB) as origin, full_loop(64 * MIB) as cow:
        features = "2 discard_zeroes_cow discard_passdown_origin"
        table = f"0 {stacked.count_sectors(origin)} snapshot /dev/{origin} /dev/{cow} N 8 {features}"
        with (
            stacked.create_mapped("snapshot", table, "dm_snapshot") as top,
            mount_filesystem(top.name, "ext4") as point,
        ):
            trims.fill_holes(find_image(origin))
            result = audit_point(point)
            gone = count_freed_bytes(origin)
    assert result.reached_bytes == gone
    assert result.unexplained_bytes == 0
