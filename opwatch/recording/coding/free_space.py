"""Free space of a disk in its history: the bytes in too small pieces, then starts and ends, deflated."""

from __future__ import annotations

import struct
import zlib
from array import array

from opwatch.errors import BadInput
from opwatch.trim.history.requests import from_little_endian, to_little_endian
from opwatch.trim.history.saved import MAX_SECTOR, DiskFreeSpace
from opwatch.trim.space.extents import Extents

# The number of the row in `contents`. Rows of requests have higher ones.
FREE_ROW = 0
_HEADER = struct.Struct("<Q")
_NUMBER_BYTES = 8
# Pieces that are kept, the longest first.
MAX_PIECES = 1 << 20
_MAX_BYTES = _HEADER.size + 2 * _NUMBER_BYTES * MAX_PIECES


def encode_free_space(free: DiskFreeSpace) -> tuple[int, bytes]:
    """Return (size, deflated bytes), with at most MAX_PIECES pieces."""
    pieces = list(free.extents)
    if len(pieces) > MAX_PIECES:
        pieces = sorted(sorted(pieces, key=lambda pair: pair[0] - pair[1])[:MAX_PIECES])
    left_out = free.left_out_bytes + free.extents.total_bytes - sum(end - start for start, end in pieces)
    raw = b"".join(
        (
            _HEADER.pack(left_out),
            to_little_endian(array("Q", [start for start, _ in pieces])),
            to_little_endian(array("Q", [end for _, end in pieces])),
        )
    )
    return len(raw), zlib.compress(raw)


def decode_free_space(wall_ns: int, size: int, body: bytes, where: str) -> DiskFreeSpace:
    """Return the free space. Raise BadInput for bytes that encode_free_space() never writes."""
    unpacker = zlib.decompressobj()
    try:
        raw = unpacker.decompress(body, min(size, _MAX_BYTES) + 1)
    except zlib.error as error:
        raise BadInput(f"{where}: {error}") from error
    count, rest = divmod(len(raw) - _HEADER.size, 2 * _NUMBER_BYTES)
    if len(raw) != size or size > _MAX_BYTES or rest or count < 0:
        raise BadInput(f"{where}: not {size} bytes of free space")
    (left_out,) = _HEADER.unpack_from(raw)
    starts = from_little_endian("Q", raw[_HEADER.size : _HEADER.size + count * _NUMBER_BYTES])
    ends = from_little_endian("Q", raw[_HEADER.size + count * _NUMBER_BYTES :])
    pairs, last = list(zip(starts, ends, strict=True)), -1
    for start, end in pairs:
        if not last < start < end <= MAX_SECTOR * 512:
            raise BadInput(f"{where}: invalid free space {start}..{end}")
        last = end
    return DiskFreeSpace(wall_ns, Extents.from_sorted(pairs), left_out)
