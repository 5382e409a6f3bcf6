"""A device node is opened by its device number, not by its name."""

from __future__ import annotations

import dataclasses
import errno
import os
from pathlib import Path

import pytest

from opwatch.collectors.space.device_handle import open_device
from opwatch.collectors.space.f2fs import read_free
from opwatch.collectors.space.raw_disk import RawDisk
from opwatch.errors import OpwatchError, RefusedError
from opwatch.host.device import BlockDevice
from tests.unit.support.sysfs import Tree


def test_node_of_another_device_type_is_refused(tmp_path: Path) -> None:
    """/dev/null is node 1:3 and not a disk, so it is refused under its own number and under any other."""
    tree = Tree(tmp_path)
    for number in ("8:1", "1:3"):
        device = dataclasses.replace(_add_disk(tree, number), name="null")
        before = len(os.listdir("/proc/self/fd"))
        with pytest.raises(RefusedError, match=r"^/dev/null .*\bnull\b"):
            open_device(device)
        with pytest.raises(RefusedError, match=r"^/dev/null .*\bnull\b"):
            read_free(device)
        assert len(os.listdir("/proc/self/fd")) == before


def test_no_node_is_an_error_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(OpwatchError, match=f"/dev/opwatch-none: {os.strerror(errno.ENOENT)}"):
        open_device(_add_disk(Tree(tmp_path), "8:1", "opwatch-none"))


def _add_disk(tree: Tree, number: str, name: str = "") -> BlockDevice:
    name = name or f"disk-{number.replace(':', '-')}"
    tree.add_disk(name, number)
    return tree[name]


class _Platter(RawDisk):
    """Bytes in place of a disk, with an unreadable byte; `asked` lists the reads."""

    def __init__(self, data: bytes, bad: int, longest: int) -> None:
        self.data, self.bad, self._longest = data, bad, longest
        self.asked: list[tuple[int, int]] = []

    def close(self) -> None:
        """Do nothing, because no file is open."""

    def read(self, offset: int, length: int) -> bytes | None:
        self.asked.append((offset, length))
        return None if offset <= self.bad < offset + length else self.data[offset : offset + length]


def test_adjacent_blocks_are_read_together() -> None:
    data = os.urandom(20 * 512)
    disk = _Platter(data, bad=-1, longest=4 * 512)
    offsets = [512 * number for number in (9, 2, 3, 4, 5, 6, 12, 13)]
    read = dict(disk.read_blocks(offsets, 512))
    assert read == {offset: data[offset : offset + 512] for offset in offsets}
    assert list(read) == sorted(offsets)
    assert disk.asked == [(1024, 2048), (3072, 512), (4608, 512), (6144, 1024)]


def test_unreadable_run_is_read_block_by_block() -> None:
    data = os.urandom(8 * 512)
    disk = _Platter(data, bad=2 * 512, longest=8 * 512)
    read = dict(disk.read_blocks(range(0, 8 * 512, 512), 512))
    assert [offset for offset, block in read.items() if block is None] == [1024]
    assert b"".join(block or data[1024:1536] for block in read.values()) == data
    assert disk.asked == [(0, 4096), *((offset, 512) for offset in range(0, 4096, 512))]


def test_overlapping_blocks_are_read_separately() -> None:
    data = os.urandom(4 * 512)
    disk = _Platter(data, bad=-1, longest=4 * 512)
    assert dict(disk.read_blocks([0, 256, 768], 512)) == {
        offset: data[offset : offset + 512] for offset in (0, 256, 768)
    }
