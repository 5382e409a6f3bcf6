"""The answers of FS_IOC_GETFSMAP: who owns each piece of a file system's devices. Pure."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

HEAD_BYTES = 192
RECORD_BYTES = 64
_HEAD = struct.Struct("=4I48x")
_RECORD = struct.Struct("=2I4Q24x")
_OF_DEV_T = 1  # in the head's answer: devices are numbers, not cookies
_SPECIAL_OWNER, _LAST = 0x10, 0x20
_OWNER_FREE = 1
# The highest key of all; XFS refuses one with a length.
_HIGHEST = _RECORD.pack(0xFFFFFFFF, 0xFFFFFFFF, *[0xFFFFFFFFFFFFFFFF] * 3, 0)


class Piece(NamedTuple):
    """A free piece of one device of the file system."""

    dev: tuple[int, int]
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Answer:
    """One call's worth. `resume` is what the next call begins with, None when this was the last."""

    free: tuple[Piece, ...]
    resume: bytes | None


def question(records: int, resume: bytes | None = None, highest: bytes | None = None) -> bytearray:
    """What to ask: up to this many records between two keys, of which the lower one may be the end of the
    last answer."""
    low, high = resume or bytes(RECORD_BYTES), highest or _HIGHEST
    return bytearray(_HEAD.pack(0, 0, records, 0) + low + high + bytes(records * RECORD_BYTES))


def key(dev: tuple[int, int], offset: int) -> bytes:
    """A place on a device, as a bound of a question."""
    number = dev[1] & 0xFF | dev[0] << 8 | (dev[1] & ~0xFF) << 12
    return _RECORD.pack(number, 0, offset, 0, 0, 0)


def _number(dev: int) -> tuple[int, int]:
    """The kernel packs the minor number around the major one."""
    return dev >> 8 & 0xFFF, dev & 0xFF | dev >> 12 & 0xFFF00


def decode(answer: bytes | bytearray) -> Answer:
    """The free pieces of an answer. ValueError for what cannot be one."""
    if len(answer) < HEAD_BYTES:
        raise ValueError(f"{len(answer)} bytes are no file system map")
    _, flags, count, entries = _HEAD.unpack_from(answer)
    body = memoryview(answer)[HEAD_BYTES : HEAD_BYTES + entries * RECORD_BYTES]
    if entries > count or len(body) < entries * RECORD_BYTES:
        raise ValueError(f"a file system map of {entries} records in a buffer for {count}")
    if entries and not flags & _OF_DEV_T:
        raise ValueError("the file system does not say which block devices its map is about")
    free = tuple(_free_pieces(body))
    if not entries:
        return Answer(free, None)
    last = bytes(body[-RECORD_BYTES:])
    ended = _RECORD.unpack(last)[1] & _LAST
    return Answer(free, None if ended else last)


def _free_pieces(body: memoryview) -> Iterator[Piece]:
    for device, flags, physical, owner, _, length in _RECORD.iter_unpack(body):
        if owner == _OWNER_FREE and flags & _SPECIAL_OWNER:
            if physical + length > 1 << 62:
                raise ValueError(f"a free extent of {length} bytes at {physical}: no disk is so large")
            yield Piece(_number(device), physical, physical + length)
