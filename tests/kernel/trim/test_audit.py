"""`opwatch trim audit` on devices that free blocks, lie, fail, or turn discards into other requests."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from opwatch.collectors.space.lowest import read_file_extents
from opwatch.host.scratch import MEMORY, ScratchDisk
from opwatch.host.usage import read_usage
from opwatch.trim.audit.audit import Verdict
from tests.kernel.support import trims
from tests.kernel.support.drives import Drive, create_drive
from tests.kernel.support.filesystems import (
    count_held_bytes,
    find_free_extents,
    wait_until_settled,
    write_and_delete,
)
from tests.kernel.support.trims import (
    MIB,
    assert_clean,
    audit_until_complete,
    count_allocated,
    create_file,
    create_loop,
    fill_holes,
    find_row,
    mount_filesystem,
    sum_reasons,
)
from tests.requirements import require_drive

SIZE = 512 * MIB


@contextlib.contextmanager
def create_on_file(filesystem: str, where: Path) -> Iterator[Path]:
    """Yield a filesystem on a loop device whose file has all its blocks allocated."""
    with (
        create_file(SIZE, where) as image,
        create_loop(image) as node,
        mount_filesystem(node, filesystem) as point,
    ):
        os.sync()
        fill_holes(image)
        (image.parent / "point").write_text(str(point))
        yield point


def find_image(point: Path) -> Path:
    source = trims.find_mount_at(point).source
    backing = Path(f"/sys/block/{Path(source).name}/loop/backing_file").read_text().strip()
    return Path(backing)


@pytest.mark.parametrize("filesystem", ["ext4", "xfs", "btrfs"])
def test_reached_bytes_equal_the_holes_in_the_file(filesystem: str) -> None:
    """Loop on tmpfs: the holes in the file are the oracle, to the byte."""
    for point, result in audit_until_complete(lambda: create_on_file(filesystem, MEMORY)):
        assert_clean(result)
        assert SIZE - count_allocated(find_image(point)) == result.reached_bytes > SIZE // 4
        if filesystem == "xfs":
            assert result.claimed_bytes == SIZE or result.claimed_bytes == result.reached_bytes
        else:
            assert result.claimed_bytes == result.reached_bytes


@pytest.mark.parametrize("outer", ["ext4", "xfs", "btrfs"])
def test_loop_on_a_file_frees_the_files_blocks(outer: str) -> None:
    with ScratchDisk(2 * SIZE) as disk, mount_filesystem(disk.node, outer) as home:
        for point, result in audit_until_complete(lambda: create_on_file("ext4", home)):
            assert_clean(result)
            with find_image(point).open("rb") as image:
                kept = read_file_extents(image.fileno())
            # Allocations in the file take blocks of the outer filesystem, and so do the extent maps.
            assert len(kept) < 500
            assert result.reached_bytes == SIZE - sum(extent.length for extent in kept)
            assert sum_reasons(result) == {"loop-frees-file": None}


@contextlib.contextmanager
def create_on_overlay() -> Iterator[Path]:
    """Yield a loop device whose file cannot have holes, which only a discard reveals."""
    with trims.create_folder(Path("/tmp")) as home:
        run, base, top = trims.run, home / "ramfs", home / "top"
        base.mkdir()
        top.mkdir()
        run("mount", "-t", "ramfs", "ramfs", str(base))
        try:
            for name in ("lower", "upper", "work"):
                (base / name).mkdir()
            options = f"lowerdir={base}/lower,upperdir={base}/upper,workdir={base}/work"
            run("mount", "-t", "overlay", "overlay", "-o", options, str(top))
            try:
                image = top / "image"
                with image.open("wb") as file:
                    file.truncate(256 * MIB)
                with create_loop(image) as node, mount_filesystem(node, "ext4") as point:
                    yield point
            finally:
                run("umount", str(top))
        finally:
            run("umount", str(base))


def test_claimed_bytes_are_rejected_when_the_device_stops_accepting_discards() -> None:
    """One request fails; then every discard ends before the block layer's first event."""
    for _, result in audit_until_complete(create_on_overlay):
        assert result.verdict is Verdict.REJECTED
        assert result.reached_bytes == 0
        claimed = result.claimed_bytes
        assert claimed is not None
        assert claimed > 200 * MIB
        assert sum_reasons(result) == {"loop-no-punch": claimed}
        device = find_row(result, "loop")
        assert device.bytes_in == claimed
        assert device.requests == 1
        assert list(device.errors) == ["not supported"]
        assert result.unexplained_bytes == 0
        changed = {change.fact: change.after for change in result.changes}
        assert changed["max_bytes"] == 0


@contextlib.contextmanager
def create_sealed(filesystem: str) -> Iterator[Path]:
    with trims.create_sealable(SIZE) as (node, seal):
        trims.run(*trims.MKFS[filesystem], node)
        with trims.create_folder(Path("/tmp")) as point:
            trims.run("mount", node, str(point))
            try:
                os.sync()
                seal()
                yield point
            finally:
                # The final writes fail as well. stat() fails on a filesystem after a shutdown, so the mount
                # table shows whether the filesystem is gone.
                subprocess.run(["umount", str(point)], capture_output=True, check=False)
                assert str(point) not in {mount.point for mount in read_usage().mounts}


@pytest.mark.parametrize("filesystem", ["ext4", "xfs", "btrfs"])
def test_audit_is_rejected_when_every_discard_fails(filesystem: str) -> None:
    for _, result in audit_until_complete(lambda: create_sealed(filesystem)):
        assert result.verdict is Verdict.REJECTED
        assert result.reached_bytes == 0
        device = find_row(result, "loop")
        assert device.bytes_in is not None
        assert device.errors == {"I/O": device.bytes_in}
        assert sum_reasons(result) == {"loop-file-sealed": device.bytes_in}
        assert result.unexplained_bytes == 0
        answer = result.evidence.answer
        assert answer
        # Three filesystems report the same failure in three ways.
        if filesystem == "btrfs":
            assert answer.error == 5
        else:
            assert result.claimed_bytes == (0 if filesystem == "ext4" else SIZE)


@contextlib.contextmanager
def mount_on_loop(below: Path) -> Iterator[Path]:
    with (
        create_file(SIZE, below) as image,
        create_loop(image) as lower,
        create_loop(lower) as node,
        mount_filesystem(node, "ext4") as m,
    ):
        yield m


def test_loop_on_a_device_turns_discards_into_zeroes() -> None:
    """ext4 zeroes a range in place, and a drive's reaction to such a write is unknown."""
    with ScratchDisk(3 * SIZE) as disk, mount_filesystem(disk.node, "ext4") as home:
        for _, result in audit_until_complete(lambda: mount_on_loop(home)):
            upper, lower = [line for line in result.rows if line.layer == "loop"]
            assert result.verdict is Verdict.UNKNOWN
            assert sum_reasons(result) == {"loop-on-device": result.claimed_bytes}
            assert (result.reached_bytes, result.unexplained_bytes) == (0, 0)
            assert upper.bytes_in == upper.bytes_out == upper.bytes_ok == result.claimed_bytes
            assert lower.bytes_in == 0


def test_loop_on_a_device_without_write_zeroes_is_rejected() -> None:
    """tmpfs cannot zero a range in place, so the lower device refuses, and therefore the upper one too."""
    for _, result in audit_until_complete(lambda: mount_on_loop(MEMORY)):
        assert result.verdict is Verdict.REJECTED
        assert sum_reasons(result) == {"loop-no-punch": result.claimed_bytes}
        assert result.unexplained_bytes == 0


def test_zram_frees_the_trimmed_bytes() -> None:
    control = Path("/sys/class/zram-control/hot_add")
    if not control.exists():
        pytest.skip("this kernel has no zram")
    name = f"zram{control.read_text().strip()}"
    try:
        Path(f"/sys/block/{name}/disksize").write_text("256M")
        # Every block is stored, except blocks that the filesystem then zeroes.
        with Path(f"/dev/{name}").open("wb", buffering=0) as device:
            device.write(b"U" * (256 * MIB))
        with mount_filesystem(f"/dev/{name}", "ext4") as point:
            os.sync()
            stored = read_zram_bytes(name)
            result = trims.audit_point(point)
            assert_clean(result)
            assert find_row(result, "disk").device == name
            # mke2fs had freed the last 64 KiB, where RAIDs have their superblocks.
            assert stored - read_zram_bytes(name) == result.reached_bytes - (64 << 10) > 200 * MIB
    finally:
        Path("/sys/class/zram-control/hot_remove").write_text(name.removeprefix("zram"))


def read_zram_bytes(name: str) -> int:
    return int(Path(f"/sys/block/{name}/mm_stat").read_text().split()[0])


def test_ext4_trims_a_block_group_once() -> None:
    for point, first in audit_until_complete(lambda: create_on_file("ext4", MEMORY)):
        second = trims.audit_point(point)
        assert second.verdict is Verdict.NOTHING_LEFT
        assert second.claimed_bytes == 0
        assert list(sum_reasons(second)) == ["ext4-already-trimmed"]
        assert first.verdict is Verdict.ACCEPTED


def test_lowered_limit_splits_discards_without_loss() -> None:
    with ScratchDisk(SIZE) as disk, trims.lower_limit(disk.name, MIB):
        for _, result in audit_until_complete(lambda: mount_filesystem(disk.node, "ext4")):
            assert_clean(result)
            requests = find_row(result, "loop").requests
            assert requests is not None
            assert requests >= result.reached_bytes // MIB


def test_partition_is_a_ledger_row() -> None:
    with ScratchDisk(SIZE) as disk:
        table = "label: gpt\nstart=2048,size=256MiB\nsize=64MiB\n"
        subprocess.run(["sfdisk", "-q", disk.node], input=table, text=True, check=True)
        if not os.path.exists(f"/sys/class/block/{disk.name}p1"):
            trims.run("partx", "--add", disk.node)
        for _, result in audit_until_complete(lambda: mount_filesystem(f"{disk.node}p1", "ext4")):
            assert_clean(result)
            assert find_row(result, "partition").device == f"{disk.name}p1"
            assert find_row(result, "loop").device == disk.name


def test_extents_below_the_minimum_length_stay_untrimmed() -> None:
    """XFS reports only the first such extent of each group; the total is only in its free space map."""
    with ScratchDisk(SIZE) as disk:
        for point, result in audit_until_complete(lambda: mount_fragmented(disk)):
            again = trims.audit_point(point, minlen=MIB)
            small = sum(end - start for start, end in find_free_extents(point) if end - start < MIB)
            top = find_row(again, "filesystem")
            assert sum_reasons(again) == {"below-minimum": None}
            assert small > 16 * 65536
            assert top.bytes_in == top.bytes_out == again.reached_bytes == result.reached_bytes - small
            assert again.unexplained_bytes == 0


@contextlib.contextmanager
def mount_fragmented(disk: ScratchDisk) -> Iterator[Path]:
    with mount_filesystem(disk.node, "xfs") as point:
        files = [point / f"f{number}" for number in range(64)]
        for path in files:
            with path.open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, 65536)
        os.sync()
        for path in files[::2]:
            path.unlink()
        wait_until_settled(point)
        yield point


def test_discards_are_not_sent_when_no_device_accepts_them() -> None:
    with trims.create_loop_without_discards() as node, mount_filesystem(node, "ext4") as point:
        result = trims.audit_point(point)
    assert result.verdict is Verdict.NOT_SENT
    assert result.claimed_bytes is None
    assert list(sum_reasons(result)) == ["loop-no-punch"]


@contextlib.contextmanager
def mount_used_drive(one: Drive) -> Iterator[Path]:
    """Yield ext4 on a drive with deleted files; a file next to the mount point has the free space's held
    bytes."""
    with mount_filesystem(one.device, "ext4") as point:
        write_and_delete(point, 7)
        note = point.parent / f"{point.name}.held"
        note.write_text(str(count_held_bytes(one, find_free_extents(point))))
        try:
            yield point
        finally:
            note.unlink()


@pytest.mark.parametrize("faults", [(), ("trim=ignore",)], ids=["honour", "ignore"])
def test_trim_of_a_simulated_drive_is_proven_unless_the_drive_ignores_trims(faults: tuple[str, ...]) -> None:
    """Proof is the drive's trim counter. If the drive ignores trims, its count of held data shows that."""
    require_drive()
    with create_drive(SIZE, faults=faults) as one:
        for point, result in audit_until_complete(lambda: mount_used_drive(one)):
            free = find_free_extents(point)
            before = int((point.parent / f"{point.name}.held").read_text())
            assert_clean(result, Verdict.UNKNOWN if faults else Verdict.PROVEN)
            assert result.reached_bytes == result.claimed_bytes == free.total_bytes
            assert before > 16 * MIB
            assert count_held_bytes(one, free) == (before if faults else 0)
            assert list(sum_reasons(result)) == (["advisory"] if faults else [])
