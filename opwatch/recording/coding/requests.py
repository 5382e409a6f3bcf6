"""Requests of a disk's history, deflated: a header, then first sectors, numbers of sectors, kinds, and owners
if they were recorded."""

from __future__ import annotations

import struct
import zlib

from opwatch.errors import BadInput
from opwatch.trim.history.changes import ChangeKind
from opwatch.trim.history.requests import RequestRow, from_little_endian, to_little_endian
from opwatch.trim.history.saved import MAX_SECTOR

# Begin and end in nanoseconds, number of requests, flags.
_HEADER = struct.Struct("<QQIB")
# Flags: the requests follow the previous row; they have owners.
_FOLLOWS, _HAS_OWNERS = 1, 2
_SECTOR_BYTES, _LENGTH_BYTES, _REQUEST_BYTES, _OWNER_BYTES = 8, 4, 13, 2
MAX_ROW_REQUESTS = 1 << 20
MAX_ROW_BYTES = _HEADER.size + MAX_ROW_REQUESTS * (_REQUEST_BYTES + _OWNER_BYTES)
_RAW_DEFLATE = -15
# The fastest level: addresses of random writes hardly compress further.
_LEVEL = 1
_LAST_KIND = ChangeKind.ERASE


def encode_requests(row: RequestRow) -> tuple[int, bytes]:
    """Return (size, deflated bytes) of a row of at most MAX_ROW_REQUESTS."""
    flags = (_FOLLOWS if row.follows else 0) | (_HAS_OWNERS if row.owners else 0)
    raw = b"".join(
        (
            _HEADER.pack(row.begin_ns, row.end_ns, len(row.kinds), flags),
            to_little_endian(row.sectors),
            to_little_endian(row.lengths),
            row.kinds,
            to_little_endian(row.owners),
        )
    )
    packer = zlib.compressobj(_LEVEL, wbits=_RAW_DEFLATE)
    return len(raw), packer.compress(raw) + packer.flush()


def decode_requests(size: int, body: bytes, where: str) -> RequestRow:
    """Return a row. Raise BadInput for rows that encode_requests() never writes."""
    if not _HEADER.size <= size <= MAX_ROW_BYTES:
        raise BadInput(f"{where}: {size} bytes of requests")
    unpacker = zlib.decompressobj(wbits=_RAW_DEFLATE)
    try:
        raw = unpacker.decompress(body, size)
    except zlib.error as error:
        raise BadInput(f"{where}: {error}") from error
    if len(raw) != size or (not unpacker.eof and unpacker.decompress(unpacker.unconsumed_tail, 1)):
        raise BadInput(f"{where}: not {size} bytes of requests")
    begin_ns, end_ns, count, flags = _HEADER.unpack_from(raw)
    request_bytes = _REQUEST_BYTES + (_OWNER_BYTES if flags & _HAS_OWNERS else 0)
    is_known = flags <= _FOLLOWS | _HAS_OWNERS
    if size != _HEADER.size + count * request_bytes or not count or begin_ns > end_ns or not is_known:
        raise BadInput(f"{where}: invalid header of requests")
    at = _HEADER.size
    sectors = from_little_endian("Q", raw[at : at + count * _SECTOR_BYTES])
    at += count * _SECTOR_BYTES
    lengths = from_little_endian("I", raw[at : at + count * _LENGTH_BYTES])
    at += count * _LENGTH_BYTES
    kinds = raw[at : at + count]
    owners = from_little_endian("H", raw[at + count :])
    if max(sectors) > MAX_SECTOR or not min(lengths) or max(kinds) > _LAST_KIND:
        raise BadInput(f"{where}: invalid request")
    return RequestRow(begin_ns, end_ns, bool(flags & _FOLLOWS), sectors, lengths, kinds, owners=owners)
