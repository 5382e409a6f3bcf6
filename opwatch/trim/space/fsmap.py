"""Encode and decode FS_IOC_GETFSMAP: the owner of each extent on a file system's devices. Pure."""

from __future__ import annotations

import struct
from array import array
from dataclasses import dataclass
from itertools import compress
from operator import add

from opwatch.errors import BadInput
from opwatch.trim.space.extents import Extents

HEAD_BYTES = 192
RECORD_BYTES = 64
_HEAD = struct.Struct("=4I48x")
_RECORD = struct.Struct("=2I4Q24x")
_OF_DEV_T = 1  # flag in the answer's header: devices are numbers, not cookies
_SPECIAL_OWNER, _LAST = 0x10, 0x20
_OWNER_FREE = 1
# The highest possible key. Its length is 0 because XFS refuses a key with a length.
_HIGHEST = _RECORD.pack(0xFFFFFFFF, 0xFFFFFFFF, *[0xFFFFFFFFFFFFFFFF] * 3, 0)


@dataclass(frozen=True, slots=True)
class FsmapAnswer:
    """Free extents by device, from one call. `resume` is the low key of the next call; None after the
    last call."""

    free: dict[tuple[int, int], Extents]
    resume: bytes | None


def encode_request(records: int, resume: bytes | None = None, highest: bytes | None = None) -> bytearray:
    """Return the ioctl buffer for up to `records` records between two keys. `resume`, the low key, may be
    the last record of the previous answer."""
    low, high = resume or bytes(RECORD_BYTES), highest or _HIGHEST
    return bytearray(_HEAD.pack(0, 0, records, 0) + low + high + bytes(records * RECORD_BYTES))


def encode_key(dev: tuple[int, int], offset: int) -> bytes:
    """Return an offset on a device as a key for `question`."""
    number = dev[1] & 0xFF | dev[0] << 8 | (dev[1] & ~0xFF) << 12
    return _RECORD.pack(number, 0, offset, 0, 0, 0)


def _decode_dev(dev: int) -> tuple[int, int]:
    """Return (major, minor). The kernel packs the minor number around the major number."""
    return dev >> 8 & 0xFFF, dev & 0xFF | dev >> 12 & 0xFFF00


def decode_answer(answer: bytes | bytearray) -> FsmapAnswer:
    """Return the free extents in an answer. Raise BadInput if it is malformed."""
    if len(answer) < HEAD_BYTES:
        raise BadInput(f"{len(answer)} bytes are too short for a filesystem map")
    _, flags, count, entries = _HEAD.unpack_from(answer)
    body = memoryview(answer)[HEAD_BYTES : HEAD_BYTES + entries * RECORD_BYTES]
    if entries > count or len(body) < entries * RECORD_BYTES:
        raise BadInput(f"a filesystem map of {entries} records in a buffer for {count}")
    if entries and not flags & _OF_DEV_T:
        raise BadInput("the filesystem does not report the block devices in its map")
    free = _decode_free(body)
    if not entries:
        return FsmapAnswer(free, None)
    last = bytes(body[-RECORD_BYTES:])
    ended = _RECORD.unpack(last)[1] & _LAST
    return FsmapAnswer(free, None if ended else last)


def _decode_free(body: memoryview) -> dict[tuple[int, int], Extents]:
    """Return the free extents by device. Works by column because a million records are common."""
    words = body.cast("Q")
    devices, physical, owners, lengths = (
        words[first :: RECORD_BYTES // 8].tolist() for first in (0, 1, 2, 4)
    )
    # A device and its flags share one word, and few values are distinct.
    special = {word for word in set(devices) if word >> 32 & _SPECIAL_OWNER}
    free: dict[tuple[int, int], Extents] = {}
    for device in {word & 0xFFFFFFFF for word in special}:
        mine = {word for word in special if word & 0xFFFFFFFF == device}
        keep = [owner == _OWNER_FREE and word in mine for owner, word in zip(owners, devices, strict=True)]
        starts = list(compress(physical, keep))
        ends = list(map(add, starts, compress(lengths, keep)))
        if starts and max(ends) > 1 << 62:
            raise BadInput("a filesystem map with an invalid free extent")
        if starts:
            free[_decode_dev(device)] = Extents.from_bounds(array("q", starts), array("q", ends))
    return free
