"""Encode device-mapper ioctls for a device's table or status, and parse the answers. Pure.

The layout is struct dm_ioctl and struct dm_target_spec of linux/dm-ioctl.h, unchanged since Linux 2.6. The
kernel includes encryption keys in an answer to root: the parser removes the keys before any other code sees
the answer.
"""

from __future__ import annotations

import re
import struct

from opwatch.errors import BadInput
from opwatch.foreign import decode_text
from opwatch.trim.stack.dmtable import DmTarget

# _IOWR(0xfd, 12, struct dm_ioctl)
TABLE_STATUS = 0xC138FD0C
_HEADER = struct.Struct("=3I3Ii3IQ128s129s7s")
_SIZES_AT, _FLAGS_AT, _DEV_AT = 12, 28, 40
# All later versions accept requests of this version.
_VERSION = (4, 0, 0)
_SPEC = struct.Struct("=QQiI16s")
_TABLE, _FULL, _NO_FLUSH = 1 << 4, 1 << 8, 1 << 11
# In dm-integrity's hash arguments the key follows the algorithm and a colon.
_KEY_ARGUMENT = r"((?:internal_hash|journal_crypt|journal_mac):[^:]*):.*"


def encode_request(dev: tuple[int, int], *, table: bool, room: int) -> bytearray:
    """Return a request for a device's table or status, with `room` bytes for the answer. Without the no-flush
    flag, a status request makes a thin pool commit its metadata."""
    major, minor = dev
    number = minor & 0xFF | major << 8 | (minor & ~0xFF) << 12
    flags = _TABLE if table else _NO_FLUSH
    buffer = bytearray(max(room, _HEADER.size))
    struct.pack_into("=3I", buffer, 0, *_VERSION)
    struct.pack_into("=2I", buffer, _SIZES_AT, len(buffer), _HEADER.size)
    struct.pack_into("=I", buffer, _FLAGS_AT, flags)
    struct.pack_into("=Q", buffer, _DEV_AT, number)
    return buffer


def decode_targets(answer: bytes) -> list[DmTarget] | None:
    """Return the targets in table order; None if the answer did not fit. Raise BadInput if the answer is
    malformed."""
    if len(answer) < _HEADER.size:
        raise BadInput(f"device mapper returned {len(answer)} bytes; expected at least {_HEADER.size}")
    *_, size, start, count, _, flags, _, _, _, _, _, _ = _HEADER.unpack_from(answer)
    if flags & _FULL:
        return None
    end = min(size, len(answer))
    parts, at = [], start
    for _ in range(count):
        if at < _HEADER.size or at + _SPEC.size > end:
            raise BadInput("device mapper returned a target outside of its buffer")
        first, sectors, _, following, raw = _SPEC.unpack_from(answer, at)
        kind = decode_text(raw.split(b"\0", 1)[0])
        close = answer.find(b"\0", at + _SPEC.size, end)
        if close < 0 or not re.fullmatch(r"[!-~]+", kind):
            raise BadInput("device mapper returned a target without an end or a name")
        words = decode_text(bytes(answer[at + _SPEC.size : close])).split()
        parts.append(DmTarget(first, sectors, kind, _remove_keys(kind, words)))
        if start + following <= at:
            raise BadInput("device mapper returned targets in the wrong order")
        at = start + following
    return parts


def _remove_keys(kind: str, words: list[str]) -> tuple[str, ...]:
    if "crypt" in kind and len(words) > 1:
        words[1] = "-"
    return tuple(re.sub(_KEY_ARGUMENT, r"\1", word) for word in words)
