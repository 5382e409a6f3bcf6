"""Encode a minute of samples: each disk's clocks in columns, other streams compressed."""

from __future__ import annotations

import lzma
import struct
from collections.abc import Iterable, Sequence

from opwatch.errors import BadInput
from opwatch.recording.coding import contents
from opwatch.recording.coding.columns import Changes, packed, rows_of, unpacked
from opwatch.recording.coding.frames import FrameStreams, Streams
from opwatch.recording.coding.times import CLOCKS
from opwatch.recording.coding.varints import Varints, put

STREAMS = 5
# Maximum length of one disk's stream in a block: a complete sample has 17,000 words of up to ten bytes.
MOST_STREAM = 4 << 20
# In version 1 clocks are part of the facts, and each stream is compressed separately.
_FIRST_STREAMS = 4
_FIRST_LENGTHS = struct.Struct(f"<{_FIRST_STREAMS}I")
# Numbers are similar to their predecessors, so predict each byte from the previous byte.
_FILTERS = [{"id": lzma.FILTER_LZMA1, "dict_size": 1 << 16, "lc": 4, "lp": 0, "pb": 0}]
# Takes a third of the time, at the cost of 10 % more bytes; reading is the same.
_QUICKLY = [_FILTERS[0] | {"mode": lzma.MODE_FAST, "mf": lzma.MF_HC4}]


def one_after_another(differences: Iterable[Streams]) -> Streams:
    """Concatenate the streams of several samples."""
    return tuple(b"".join(parts) for parts in zip(*differences, strict=True))


def joined(streams: Streams) -> bytes:
    """Return the streams as one uncompressed blob."""
    return _lengths(streams) + b"".join(streams)


def compressed(streams: Streams, *, quickly: bool = False) -> bytes:
    """Return the streams as a single blob.

    The blob has the lengths of the columns and of all other streams, the columns, then the other streams
    compressed together. `quickly` is for blobs with a short life.
    """
    return closed((packed(streams[0], CLOCKS), *streams[1:]), quickly=quickly)


def closed(streams: Streams, *, quickly: bool = False) -> bytes:
    """Return the streams as a single blob. The first stream is in columns already; the others are compressed
    together."""
    columns, *others = streams
    filters = _QUICKLY if quickly else _FILTERS
    rest = lzma.compress(b"".join(others), format=lzma.FORMAT_RAW, filters=filters)
    return _lengths(streams) + columns + rest


def _lengths(streams: Streams) -> bytes:
    out = bytearray()
    for stream in streams:
        put(out, len(stream))
    return bytes(out)


def split(raw: bytes, where: str) -> Streams:
    """Decode the output of joined()."""
    numbers = Varints(raw, where)
    lengths = [numbers.number() for _ in range(STREAMS)]
    return _cut(raw[numbers.at :], lengths, where)


def _cut(raw: bytes, lengths: Sequence[int], where: str) -> Streams:
    if sum(lengths) != len(raw):
        raise BadInput(f"{where}: streams of {sum(lengths)} bytes in {len(raw)}")
    begin, parts = 0, []
    for length in lengths:
        parts.append(raw[begin : begin + length])
        begin += length
    return tuple(parts)


def expanded(raw: bytes, samples: int, where: str) -> FrameStreams:
    """Decode the output of compressed() for reading."""
    columns, *others = opened(raw, where)
    clocks = rows_of(unpacked(columns, CLOCKS, samples, where))
    return FrameStreams(Changes(clocks, where), *(Varints(stream, where) for stream in others))


def expanded_size(raw: bytes, where: str) -> int:
    """Return the uncompressed size of the output of compressed()."""
    numbers = Varints(raw, where)
    return sum(numbers.up_to(MOST_STREAM, "the length of a stream") for _ in range(STREAMS))


def opened(raw: bytes, where: str) -> Streams:
    """Decode the output of closed()."""
    numbers = Varints(raw, where)
    columns, *lengths = (numbers.up_to(MOST_STREAM, "the length of a stream") for _ in range(STREAMS))
    begin, end = numbers.at, numbers.at + columns
    return raw[begin:end], *_cut(_inflated(raw[end:], sum(lengths), where), lengths, where)


def _inflated(raw: bytes, most: int, where: str) -> bytes:
    expander = lzma.LZMADecompressor(format=lzma.FORMAT_RAW, filters=_FILTERS)
    try:
        # Allow one more byte, because the end marker is only recognised after the last byte.
        inside = expander.decompress(raw, most + 1)
    except (lzma.LZMAError, EOFError) as error:
        raise BadInput(f"{where} is damaged: {error}") from error
    if not expander.eof or expander.unused_data:
        raise BadInput(f"{where} is cut, or has more than {most} bytes")
    return inside


def readers(parts: Sequence[Streams], where: str) -> FrameStreams:
    """Return readers of consecutive streams, as in `tail`."""
    numbers = [Varints(stream, where) for stream in (one_after_another(parts) if parts else (b"",) * STREAMS)]
    if len(numbers) == _FIRST_STREAMS:
        return FrameStreams(None, *numbers)
    return FrameStreams(*numbers)


def split_first(raw: bytes, where: str) -> Streams:
    """Split a blob of version 1 into its streams, as split() does for later versions."""
    if len(raw) < _FIRST_LENGTHS.size:
        raise BadInput(f"{where}: {len(raw)} bytes are too few for four streams")
    return _cut(raw[_FIRST_LENGTHS.size :], _FIRST_LENGTHS.unpack_from(raw), where)


def opened_first(blobs: Iterable[bytes], where: str) -> list[Streams]:
    """Decode the streams of version 1, in which the key frame and the rest are separate blobs."""
    return [
        tuple(
            contents.expanded(part, MOST_STREAM, where) if part else b"" for part in split_first(blob, where)
        )
        for blob in blobs
        if blob
    ]
