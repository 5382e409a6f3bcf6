"""Where a file lies on its file system, by FS_IOC_FIEMAP. Pure."""

from __future__ import annotations

import struct

from opwatch.errors import BadInput
from opwatch.named import NamedTuple

_HEAD = struct.Struct("=2Q4I")
_EXTENT = struct.Struct("=3Q16xI12x")
_SYNC, LAST = 1, 1
SHARED = 0x2000
_UNUSABLE = {
    0x2: "not placed yet",
    0x4: "to be allocated",
    0x8: "compressed or encrypted",
    0x80: "encrypted",
    0x100: "not aligned to blocks",
    0x200: "inside its inode",
    0x400: "packed with others",
    0x800: "preallocated",
    SHARED: "shared",
}


class FileExtent(NamedTuple):
    """A piece of a file. `physical` is in the addresses of the file system."""

    logical: int
    physical: int
    length: int
    flags: int

    @property
    def unusable(self) -> str | None:
        """Why its place on the disk is no plain copy of the file, None when it is one."""
        return next((words for flag, words in _UNUSABLE.items() if self.flags & flag), None)


def question(extents: int, start: int = 0) -> bytearray:
    """What to ask: up to this many extents of a file from `start` on, written down first."""
    return bytearray(_HEAD.pack(start, (1 << 64) - 1 - start, _SYNC, 0, extents, 0)) + bytearray(
        extents * _EXTENT.size
    )


def decode(answer: bytes | bytearray) -> list[FileExtent]:
    """The extents of an answer. BadInput for what cannot be one."""
    if len(answer) < _HEAD.size:
        raise BadInput(f"{len(answer)} bytes are no file map")
    _, _, _, mapped, count, _ = _HEAD.unpack_from(answer)
    if mapped > count or len(answer) < _HEAD.size + mapped * _EXTENT.size:
        raise BadInput(f"a file map of {mapped} extents in a buffer for {count}")
    body = memoryview(answer)[_HEAD.size : _HEAD.size + mapped * _EXTENT.size]
    extents = [FileExtent(*values) for values in _EXTENT.iter_unpack(body)]
    if any(extent.length == 0 or extent.physical + extent.length > 1 << 62 for extent in extents):
        raise BadInput("a file map with an extent that no disk can hold")
    return extents
