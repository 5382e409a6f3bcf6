"""Read the trees of a mounted btrfs by ioctl."""

from __future__ import annotations

import fcntl
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from opwatch.errors import OpwatchError
from opwatch.trim.space import btrfs

_TREE_SEARCH_V2, _DEV_INFO, _FS_INFO = 0xC0709411, 0xD000941E, 0x8400941F
_KEY = struct.Struct("=7Q4I4Q")
_FS = struct.Struct("=2Q16s3I")
_DEVICE = struct.Struct("=Q16s2Q")
_PATH_AT = 3072
_BUFFER_BYTES = 1 << 18
_ALL = 0xFFFFFFFFFFFFFFFF


@dataclass(frozen=True, slots=True)
class BtrfsDevice:
    """Device of the file system. `path` is its name in btrfs, or empty if the device is missing."""

    number: int
    size_bytes: int
    path: str


@dataclass(frozen=True, slots=True)
class BtrfsGeometry:
    node_bytes: int
    sector_bytes: int
    members: tuple[BtrfsDevice, ...]


def read_geometry(descriptor: int) -> BtrfsGeometry:
    """Return the devices and block sizes of a btrfs. Raise OSError if the ioctl fails."""
    buffer = bytearray(1024)
    fcntl.ioctl(descriptor, _FS_INFO, buffer)
    highest, _, _, node, sector, _ = _FS.unpack_from(buffer)
    members = [_read_member(descriptor, number) for number in range(1, highest + 1)]
    return BtrfsGeometry(node, sector, tuple(member for member in members if member))


def _read_member(descriptor: int, number: int) -> BtrfsDevice | None:
    buffer = bytearray(struct.pack("=Q", number)) + bytearray(4088)
    try:
        fcntl.ioctl(descriptor, _DEV_INFO, buffer)
    except OSError:
        return None  # Number of a removed device
    device_number, _, _, size = _DEVICE.unpack_from(buffer)
    path = bytes(buffer[_PATH_AT:]).partition(b"\0")[0]
    return BtrfsDevice(device_number, size, path.decode(errors="replace"))


def read_tree(descriptor: int, number: int) -> Iterator[btrfs.TreeItem]:
    """Yield all items of a tree in order. Needs CAP_SYS_ADMIN; raises FileNotFoundError without
    such a tree."""
    low = (0, 0, 0)
    while True:
        count, buffer = _search_tree(descriptor, number, low)
        item = None
        try:
            for item in btrfs.parse_items(memoryview(buffer)[_KEY.size + 8 :], count):
                yield item
        except ValueError as error:
            raise OpwatchError(f"btrfs tree {number}: {error}") from error
        if item is None:
            return
        low = (item.objectid, item.type, item.offset + 1)
        if low[2] > _ALL:
            low = (item.objectid, item.type + 1, 0)
        if low[1] > 255:
            low = (item.objectid + 1, 0, 0)
        if low[0] > _ALL:
            return


def _search_tree(descriptor: int, number: int, low: tuple[int, int, int]) -> tuple[int, bytearray]:
    key = _KEY.pack(
        number, low[0], _ALL, low[2], _ALL, 0, _ALL, low[1], 255, 0xFFFFFFFF, 0, *([0] * 4)
    ) + struct.pack("=Q", _BUFFER_BYTES)
    buffer = bytearray(key) + bytearray(_BUFFER_BYTES)
    fcntl.ioctl(descriptor, _TREE_SEARCH_V2, buffer)
    count: int = _KEY.unpack_from(buffer)[9]
    return count, buffer
