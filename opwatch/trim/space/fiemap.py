"""Encode and decode FS_IOC_FIEMAP: a file's extents on its file system. Pure."""

from __future__ import annotations

import struct
from typing import NamedTuple

from opwatch.errors import BadInput

_HEAD = struct.Struct("=2Q4I")
_EXTENT = struct.Struct("=3Q16xI12x")
_SYNC, LAST = 1, 1
SHARED = 0x2000
_UNUSABLE = {
    0x2: "no location yet",
    0x4: "not allocated yet",
    0x8: "compressed or encrypted",
    0x80: "encrypted",
    0x100: "not aligned to blocks",
    0x200: "stored in the inode",
    0x400: "packed with other files",
    0x800: "preallocated",
    SHARED: "shared",
}


class FileExtent(NamedTuple):
    """One extent of a file. `physical` is an address within the file system."""

    logical: int
    physical: int
    length: int
    flags: int

    @property
    def unusable_reason(self) -> str | None:
        """Why the disk blocks are not a plain copy of the file's data; None if they are."""
        return next((words for flag, words in _UNUSABLE.items() if self.flags & flag), None)


def encode_request(extents: int, start: int = 0) -> bytearray:
    """Return the ioctl buffer for up to `extents` extents from `start` on; FIEMAP syncs the file first."""
    return bytearray(_HEAD.pack(start, (1 << 64) - 1 - start, _SYNC, 0, extents, 0)) + bytearray(
        extents * _EXTENT.size
    )


def decode_extents(answer: bytes | bytearray) -> list[FileExtent]:
    """Return the extents in an answer. Raise BadInput if it is malformed."""
    if len(answer) < _HEAD.size:
        raise BadInput(f"{len(answer)} bytes are too short for a file map")
    _, _, _, mapped, count, _ = _HEAD.unpack_from(answer)
    if mapped > count or len(answer) < _HEAD.size + mapped * _EXTENT.size:
        raise BadInput(f"a file map of {mapped} extents in a buffer for {count}")
    body = memoryview(answer)[_HEAD.size : _HEAD.size + mapped * _EXTENT.size]
    extents = [FileExtent(*values) for values in _EXTENT.iter_unpack(body)]
    if any(extent.length == 0 or extent.physical + extent.length > 1 << 62 for extent in extents):
        raise BadInput("a file map with an invalid extent")
    return extents
