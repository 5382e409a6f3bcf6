"""PROVEN covers every layer: stacks whose lower layers keep data that an upper layer reports as gone.

The oracle is never a map of ours, but marked blocks read raw from each disk, the blocks of a file, or the
kernel's count of free blocks in a filesystem.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from opwatch.collectors.space.raw_disk import RawDisk
from opwatch.tools.commands.trim.audit import audit_mount
from opwatch.trim.audit.audit import Asked
from tests.kernel.support import trims
from tests.kernel.support.trims import find_mount_at
from tests.vm.guest.support import stacked, sysfs
from tests.vm.guest.support.audits import (
    MIB,
    Audit,
    Verdict,
    audit_point,
    full_loop,
    mount_filesystem,
    sum_reasons,
)
from tests.vm.guest.support.shell import run_command

DEVICES = ("nvme", "virtio-blk", "virtio-blk-ignored")
# Manual runs only: these tests would exceed CI's time limit.
TIERS = ()
TIMEOUT_S = 1800
MARKED_BYTES = 32 * MIB
# Proof overwrites at most this much of the marked blocks.
SENTINEL_BYTES = 10 * MIB


def audit_with_proof(point: Path) -> Audit:
    return audit_mount(find_mount_at(point), Asked(), prove=True)


def count_marked_bytes(disk: str, mark: bytes) -> int:
    """Return the bytes of deleted data that a raw read of the disk still finds."""
    with RawDisk(disk, MIB) as raw:
        size = stacked.count_sectors(disk) * 512 // MIB * MIB
        return sum(4096 * (raw.read(at, MIB) or b"").count(mark) for at in range(0, size, MIB))


def leave_marks(point: Path, size: int = MARKED_BYTES) -> bytes:
    """Write and delete a file that repeats a random block, and return the block. A disk that drops discards
    still holds the blocks of earlier tests, so each call uses a new block."""
    mark = os.urandom(16).hex().encode().ljust(4096, b"\n")
    victim = point / "victim"
    with victim.open("wb") as file:
        for _ in range(size // MIB):
            file.write(mark * (MIB // 4096))
        os.fsync(file.fileno())
    os.sync()
    victim.unlink()
    os.sync()
    return mark


@contextlib.contextmanager
def attach_loop(image: Path, offset: int = 0) -> Iterator[str]:
    """Yield the name of a loop device on a file, starting at an offset."""
    node = run_command("losetup", "--find", "--show", "--offset", str(offset), str(image)).strip()
    try:
        yield node.removeprefix("/dev/")
    finally:
        run_command("losetup", "--detach", node)


@pytest.mark.parametrize("dropping", [(), (0,), (1,), (0, 1)], ids=["none", "first", "second", "both"])
def test_mirror_with_a_leg_that_drops_discards(dropping: tuple[int, ...]) -> None:
    with contextlib.ExitStack() as opened:
        frees, drops = sysfs.disk("opw-virtio-blk"), sysfs.disk("opw-virtio-ignored")
        # Two legs of the same kind are two parts of one disk.
        halves = [
            opened.enter_context(
                stacked.create_mapped("linear", f"0 114688 linear /dev/{disk} {at * 114688}", "dm_mod")
            )
            for at, disk in enumerate(drops if leg in dropping else frees for leg in range(2))
        ]
        top = opened.enter_context(stacked.create_md(1, [half.name for half in halves]))
        with mount_filesystem(top, "ext4") as point:
            mark = leave_marks(point, 16 * MIB)
            before = [count_marked_bytes(half.name, mark) for half in halves]
            result = audit_with_proof(point)
            after = [count_marked_bytes(half.name, mark) for half in halves]
    assert before == [16 * MIB] * 2
    for leg, left in enumerate(after):
        assert left >= 16 * MIB - SENTINEL_BYTES if leg in dropping else left == 0
    expected = (Verdict.PROVEN_PARTWAY, Verdict.PARTIAL, Verdict.UNKNOWN)[len(dropping)]
    assert result.verdict is expected, result
    assert "host-may-drop" in sum_reasons(result)


def test_a_thin_pool_of_whole_chunks_on_a_disk_that_drops() -> None:
    drops = sysfs.disk("opw-virtio-ignored")
    with full_loop(32 * MIB) as metadata, stacked.create_thin(drops, metadata, 192 * MIB // 512) as volume:
        # Clusters as large as a pool chunk: no part of a chunk is ever free alone.
        run_command(*trims.MKFS["ext4"], "-O", "bigalloc,^resize_inode", "-C", "65536", f"/dev/{volume.name}")
        with mount_filesystem(volume.name, "ext4", make=False) as point:
            mark = leave_marks(point)
            before = count_marked_bytes(drops, mark)
            result = audit_with_proof(point)
            after = count_marked_bytes(drops, mark)
    assert before == MARKED_BYTES
    assert after >= MARKED_BYTES - SENTINEL_BYTES
    assert result.verdict is Verdict.PROVEN_PARTWAY, result
    assert "host-may-drop" in sum_reasons(result)


def test_a_loop_device_on_a_file_that_shares_its_blocks() -> None:
    disk = sysfs.disk("opw-nvme")
    run_command("mkfs.xfs", "-q", "-f", "-K", "-m", "reflink=1", f"/dev/{disk}")
    with mount_filesystem(disk, "xfs", make=False) as outer:
        image = outer / "image"
        with image.open("wb") as file:
            for _ in range(96):
                file.write(os.urandom(MIB))
        run_command("cp", "--reflink=always", str(image), str(outer / "copy"))
        with attach_loop(image) as loop, mount_filesystem(loop, "ext4") as point:
            leave_marks(point, 16 * MIB)
            free, blocks = os.statvfs(outer).f_bfree * 4096, trims.count_allocated(image)
            result = audit_with_proof(point)
            os.sync()
            freed = os.statvfs(outer).f_bfree * 4096 - free
            lost = blocks - trims.count_allocated(image)
    # The file lost nearly all blocks; the filesystem only gained blocks not shared with the copy.
    assert lost > 64 * MIB
    assert 0 < freed < 40 * MIB
    assert result.verdict is Verdict.PARTIAL, result
    assert abs(result.reached_bytes - freed) <= 256 << 10, sum_reasons(result)
    assert {"loop-file-shared", "loop-frees-file"} <= sum_reasons(result).keys()


def test_a_loop_device_on_a_filesystem_that_holds_its_blocks() -> None:
    disk = sysfs.disk("opw-nvme")
    with mount_filesystem(disk, "ext4") as outer:
        image = outer / "image"
        with image.open("wb") as file:
            file.truncate(192 * MIB)
        with attach_loop(image) as loop, mount_filesystem(loop, "ext4") as point:
            mark = leave_marks(point)
            blocks, before = trims.count_allocated(image), count_marked_bytes(disk, mark)
            result = audit_with_proof(point)
            os.sync()
            lost, after = blocks - trims.count_allocated(image), count_marked_bytes(disk, mark)
        assert lost >= MARKED_BYTES
        assert before == MARKED_BYTES
        assert after >= MARKED_BYTES - SENTINEL_BYTES
        assert result.verdict is Verdict.PROVEN_PARTWAY, result
        assert "loop-frees-file" in sum_reasons(result)
        # Follow the verdict's advice: trim the outer filesystem.
        assert audit_with_proof(outer).verdict is Verdict.PROVEN_PARTWAY
        assert count_marked_bytes(disk, mark) == 0


@pytest.mark.parametrize(("offset", "block"), [(0, 4096), (2048, 4096), (1536, 1024)])
def test_a_loop_device_at_an_offset(offset: int, block: int) -> None:
    with trims.create_file(96 * MIB, Path("/dev/shm")) as image, attach_loop(image, offset) as loop:
        run_command(*trims.MKFS["ext4"], "-b", str(block), f"/dev/{loop}")
        with mount_filesystem(loop, "ext4", make=False) as point:
            for number in range(300):
                (point / f"f{number}").write_bytes(bytes([number % 255 + 1]) * block)
            os.sync()
            for number in range(0, 300, 3):
                (point / f"f{number}").unlink()
            os.sync()
            blocks = trims.fill_holes(image)
            result = audit_point(point)
            freed = blocks - trims.count_allocated(image)
    assert result.reached_bytes == freed, sum_reasons(result)
    lost = sum_reasons(result).get("loop-partial-block", 0) or 0
    assert result.claimed_bytes == freed + lost
    assert result.verdict is (Verdict.PARTIAL if lost else Verdict.ACCEPTED)
    assert (lost > 0) == (offset % 4096 != 0 or block < 4096)
