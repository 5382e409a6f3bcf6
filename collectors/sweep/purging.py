"""Discards all of a disk by its descriptor, piece by piece, so that it can be ended in between."""

from __future__ import annotations

import fcntl
import struct
from collections.abc import Callable

from opwatch.errors import OpwatchError, Unsupported
from opwatch.host.device import BlockDevice

# linux/fs.h: begin and length in bytes.
_BLKDISCARD = 0x1277
_RANGE = struct.Struct("=2Q")
_PIECE_BYTES = 4 << 30


def require_discards(disk: BlockDevice) -> None:
    """Raise Unsupported where a purge by discards would do nothing."""
    if not disk.number("queue/discard_max_bytes"):
        raise Unsupported(
            f"{disk.name} takes no discards, so that it cannot be made empty: opwatch trim check says why"
        )


def discard_all(descriptor: int, disk: BlockDevice, go_on: Callable[[], None]) -> int:
    """Discard everything; returns the bytes. `go_on` is asked before each piece, and ends it by raising."""
    require_discards(disk)
    size = disk.size_bytes
    for begin in range(0, size, _PIECE_BYTES):
        go_on()
        length = min(_PIECE_BYTES, size - begin)
        try:
            fcntl.ioctl(descriptor, _BLKDISCARD, _RANGE.pack(begin, length))
        except OSError as error:
            raise OpwatchError(
                f"{disk.name}: the discard of {length} bytes at {begin} failed: {error.strerror}"
            ) from error
    return size
