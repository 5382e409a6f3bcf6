"""Classes of writes of each file system, compared with the kernel and with the file systems' own counters."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from opwatch.writes.waterfall import MAX_OTHER, WriteStep
from tests.vm.guest.support.nullblk import NullBlk, create_null_blk
from tests.vm.guest.support.shell import run_command, write_attribute
from tests.vm.guest.support.trims import MIB, mount_with_files
from tests.vm.guest.writes.measuring import find_bytes, measure_mount

# Manual runs only.
TIERS = ()
DISK = NullBlk(size=512, memory_backed=1)
KINDS = ("ext4", "xfs", "btrfs", "f2fs")
BLOCK = 64 << 10
COUNT = 64


def write_with_fsync(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        for _ in range(COUNT):
            file.write(os.urandom(BLOCK))
            os.fsync(file.fileno())


def write_directly(path: Path) -> None:
    buffer = mmap.mmap(-1, BLOCK)
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_DIRECT, 0o600)
    try:
        for at in range(COUNT):
            assert os.pwritev(descriptor, [buffer], at * BLOCK) == BLOCK
    finally:
        os.close(descriptor)


def write_to_mapping(path: Path) -> None:
    with path.open("w+b") as file:
        file.truncate(COUNT * BLOCK)
        with mmap.mmap(file.fileno(), COUNT * BLOCK) as mapping:
            for at in range(0, COUNT * BLOCK, 4096):
                mapping[at] = 1


WAYS = (write_with_fsync, write_directly, write_to_mapping)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", KINDS)
def test_classes_close_and_witnesses_agree(kind: str, way: Callable[[Path], None]) -> None:
    with create_null_blk(DISK) as disk, mount_with_files(kind, disk) as point:
        if kind == "f2fs":
            write_attribute(Path(f"/sys/fs/f2fs/{disk}/iostat_enable"), 1)
        with measure_mount(point) as results:
            way(point / "file")
        (waterfall,) = results
        assert find_bytes(waterfall, WriteStep.OTHER) == 0, waterfall.rows
        assert not waterfall.findings
        # Directories of f2fs are data.
        directories = 4096 if kind == "f2fs" else 0
        assert find_bytes(waterfall, WriteStep.DATA) == COUNT * BLOCK + directories, waterfall.rows
        # Without types of modules, the program of jbd2's event does not know its structure.
        if kind in ("xfs", "f2fs") or (kind == "ext4" and Path("/sys/kernel/btf/jbd2").exists()):
            assert any(row.witness for row in waterfall.rows)


@pytest.mark.parametrize("kind", ["xfs", "f2fs"])
def test_application_bytes_are_those_of_the_program(kind: str) -> None:
    with create_null_blk(DISK) as disk, mount_with_files(kind, disk) as point:
        if kind == "f2fs":
            write_attribute(Path(f"/sys/fs/f2fs/{disk}/iostat_enable"), 1)
        with measure_mount(point) as results:
            write_with_fsync(point / "buffered")
            write_directly(point / "direct")
        assert find_bytes(results[0], WriteStep.APPLICATION) == 2 * COUNT * BLOCK


def test_revoke_records_belong_to_the_journal() -> None:
    with create_null_blk(DISK) as disk, mount_with_files("ext4", disk) as point:
        folder = point / "folder"
        folder.mkdir()
        for number in range(2000):
            (folder / f"a-long-name-of-a-file-{number}").touch()
        run_command("sync")
        with measure_mount(point) as results:
            for path in folder.iterdir():
                path.unlink()
            folder.rmdir()
        assert not results[0].findings


def test_data_journal_writes_data_twice_and_agrees_with_jbd2() -> None:
    with (
        create_null_blk(DISK) as disk,
        mount_with_files("ext4", disk, options="data=journal") as point,
        measure_mount(point) as results,
    ):
        write_with_fsync(point / "file")
    assert not results[0].findings
    assert find_bytes(results[0], WriteStep.JOURNAL) > COUNT * BLOCK


def test_raw_writes_beside_a_file_system_are_those_of_other_programs() -> None:
    with create_null_blk(DISK) as disk, mount_with_files("ext4", disk) as point:
        with measure_mount(point) as results:
            # Past the end of what the file system has allocated, with the contents that are there.
            place = (DISK.size - 8) * MIB // BLOCK
            node = f"/dev/{disk}"
            command = ("dd", f"if={node}", f"of={node}", f"bs={BLOCK}", "count=16", "oflag=direct")
            run_command(*command, f"skip={place}", f"seek={place}", "conv=notrunc")
        (waterfall,) = results
        assert find_bytes(waterfall, WriteStep.RAW) == 16 * BLOCK
        assert abs(find_bytes(waterfall, WriteStep.OTHER)) <= MAX_OTHER * 16 * BLOCK
