"""What the kernel answers when device mapper is asked for the table or the status of a device. Pure.

struct dm_ioctl and struct dm_target_spec of linux/dm-ioctl.h, the same since Linux 2.6. To root the kernel
gives the keys of encryption with the rest: they are left out here, before anything else sees them.
"""

from __future__ import annotations

import re
import struct

from opwatch.errors import BadInput
from opwatch.foreign import text_of
from opwatch.trim.stack.dmtable import DmTarget

# _IOWR(0xfd, 12, struct dm_ioctl)
TABLE_STATUS = 0xC138FD0C
_HEADER = struct.Struct("=3I3Ii3IQ128s129s7s")
_SIZES_AT, _FLAGS_AT, _DEV_AT = 12, 28, 40
# Every later one answers this.
_VERSION = (4, 0, 0)
_SPEC = struct.Struct("=QQiI16s")
_TABLE, _FULL, _NO_FLUSH = 1 << 4, 1 << 8, 1 << 11
# A key stands behind a colon and an algorithm in what dm-integrity is told of its hashes.
_KEYED = r"((?:internal_hash|journal_crypt|journal_mac):[^:]*):.*"


def question(dev: tuple[int, int], *, table: bool, room: int) -> bytearray:
    """The question for the table of a device, or its status, with room for an answer of so many bytes.
    Without its flag the status of a thin pool writes its metadata out."""
    major, minor = dev
    number = minor & 0xFF | major << 8 | (minor & ~0xFF) << 12
    flags = _TABLE if table else _NO_FLUSH
    buffer = bytearray(max(room, _HEADER.size))
    struct.pack_into("=3I", buffer, 0, *_VERSION)
    struct.pack_into("=2I", buffer, _SIZES_AT, len(buffer), _HEADER.size)
    struct.pack_into("=I", buffer, _FLAGS_AT, flags)
    struct.pack_into("=Q", buffer, _DEV_AT, number)
    return buffer


def targets(answer: bytes) -> list[DmTarget] | None:
    """The targets by their order; None when the room did not suffice, and BadInput for what is no answer."""
    if len(answer) < _HEADER.size:
        raise BadInput(
            f"an answer of device mapper has {_HEADER.size} bytes at least, this one {len(answer)}"
        )
    *_, size, start, count, _, flags, _, _, _, _, _, _ = _HEADER.unpack_from(answer)
    if flags & _FULL:
        return None
    end = min(size, len(answer))
    parts, at = [], start
    for _ in range(count):
        if at < _HEADER.size or at + _SPEC.size > end:
            raise BadInput("a target of device mapper lies outside of the answer")
        first, sectors, _, following, raw = _SPEC.unpack_from(answer, at)
        kind = text_of(raw.split(b"\0", 1)[0])
        close = answer.find(b"\0", at + _SPEC.size, end)
        if close < 0 or not re.fullmatch(r"[!-~]+", kind):
            raise BadInput("a target of device mapper has no end, or no name")
        words = text_of(bytes(answer[at + _SPEC.size : close])).split()
        parts.append(DmTarget(first, sectors, kind, _without_keys(kind, words)))
        if start + following <= at:
            raise BadInput("the targets of device mapper go backwards")
        at = start + following
    return parts


def _without_keys(kind: str, words: list[str]) -> tuple[str, ...]:
    if "crypt" in kind and len(words) > 1:
        words[1] = "-"
    return tuple(re.sub(_KEYED, r"\1", word) for word in words)
