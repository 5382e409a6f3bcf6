"""Members of arrays, volume groups and pools, each on the test's own loop device, and refused.

Some kernels lack md and ZFS, so the tests write the on-disk signatures directly, at every possible offset.
LVM writes the label itself if installed.
"""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from opwatch.host.scratch import ScratchDisk
from tests.kernel.guard.test_refusals import list_reasons
from tests.kernel.support.drives import run

_SECTOR, _LABEL = 512, 256 << 10
_MD_MAGIC, _UBERBLOCK_MAGIC = 0xA92B4EFC, 0x00BAB10C


def read_size(node: str) -> int:
    return int(run("blockdev", "--getsize64", node))


def write_at(node: str, offset: int, data: bytes | bytearray) -> None:
    with Path(node).open("r+b") as disk:
        disk.seek(offset)
        disk.write(data)


def write_md1(node: str, offset: int) -> None:
    """Write a version 1 superblock: at the start, 4 KiB after the start, or 8 KiB before the end."""
    block = bytearray(256)
    geometry = (1700000000, 1, 0, (read_size(node) - (1 << 20)) // _SECTOR, 0, 2)
    struct.pack_into("<4I16s32sQ2iQ2I", block, 0, _MD_MAGIC, 1, 0, 0, b"u" * 16, b"host:0", *geometry)
    struct.pack_into("<3Q", block, 128, 2048, geometry[3], offset // _SECTOR)
    total = sum(struct.unpack("<64I", block))
    struct.pack_into("<I", block, 216, ((total & 0xFFFFFFFF) + (total >> 32)) & 0xFFFFFFFF)
    write_at(node, offset, block)


def write_md1_at_end(node: str) -> None:
    write_md1(node, ((read_size(node) // _SECTOR - 16) & ~7) * _SECTOR)


def write_md0(node: str) -> None:
    """Write a version 0.90 superblock into the last whole 64 KiB."""
    block = struct.pack("<8I", _MD_MAGIC, 0, 90, 0, 0, 0x11, 0, 1).ljust(4096, b"\0")
    write_at(node, (read_size(node) & ~0xFFFF) - 0x10000, block)


def write_zfs(node: str, *labels: int) -> None:
    """Write uberblocks into some of the four labels: two at the start, two at the end."""
    for label in labels:
        begin = label * _LABEL if label < 2 else read_size(node) - (4 - label) * _LABEL
        for slot in range(8):
            block = struct.pack("<5Q", _UBERBLOCK_MAGIC, 5000, 10 + slot, 77, 1700000000)
            write_at(node, begin + (128 << 10) + slot * 1024, block)


def write_lvm(node: str) -> None:
    if not shutil.which("pvcreate"):
        pytest.skip("lvm2 is not installed")
    only = f'devices {{ use_devicesfile=0 filter=["a|^{node}$|","r|.*|"] }}'
    run("pvcreate", "--yes", "--config", only, node)


@pytest.mark.parametrize(
    ("write", "name"),
    [
        (lambda node: write_md1(node, 0), "linux_raid_member"),
        (lambda node: write_md1(node, 4096), "linux_raid_member"),
        (write_md1_at_end, "linux_raid_member"),
        (write_md0, "linux_raid_member"),
        (lambda node: write_zfs(node, 0, 1, 2, 3), "zfs_member"),
        (lambda node: write_zfs(node, 0), "zfs_member"),
        (lambda node: write_zfs(node, 2, 3), "zfs_member"),
        (write_lvm, "LVM2_member"),
    ],
    ids=["md 1.1", "md 1.2", "md 1.0", "md 0.90", "zfs", "zfs, first label", "zfs, last labels", "lvm"],
)
def test_member_of_an_array_or_pool_is_refused(
    write: Callable[[str], object], name: str, disk: ScratchDisk
) -> None:
    assert list_reasons(disk) == []
    write(disk.node)
    assert any(f": {name}" in reason and "wipefs --all" in reason for reason in list_reasons(disk))
    run("wipefs", "--all", disk.node)
    assert list_reasons(disk) == []
