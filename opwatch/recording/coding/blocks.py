"""A minute of samples, as it lies in a file: of each disk its clocks in columns, and the rest compressed."""

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
# One stream of one disk may be so long within a block: a whole sample has 17,000 words of ten bytes at most.
MOST_STREAM = 4 << 20
# In version 1 clocks are among the facts, and each stream is compressed for itself.
_FIRST_STREAMS = 4
_FIRST_LENGTHS = struct.Struct(f"<{_FIRST_STREAMS}I")
# Small numbers follow small ones: a byte is told from the one before it.
_FILTERS = [{"id": lzma.FILTER_LZMA1, "dict_size": 1 << 16, "lc": 4, "lp": 0, "pb": 0}]
# This takes a third of the time, for a tenth more bytes; whoever reads them does not see a difference.
_QUICKLY = [_FILTERS[0] | {"mode": lzma.MODE_FAST, "mf": lzma.MF_HC4}]


def one_after_another(differences: Iterable[Streams]) -> Streams:
    """The streams of several samples, each stream for itself."""
    return tuple(b"".join(parts) for parts in zip(*differences, strict=True))


def joined(streams: Streams) -> bytes:
    """The streams as one blob, which is not compressed."""
    return _lengths(streams) + b"".join(streams)


def compressed(streams: Streams, *, quickly: bool = False) -> bytes:
    """The streams as one blob: the lengths of the columns and of all other streams, the columns, then the
    others together. `quickly`: it is not kept for long."""
    return closed((packed(streams[0], CLOCKS), *streams[1:]), quickly=quickly)


def closed(streams: Streams, *, quickly: bool = False) -> bytes:
    """The streams as one blob. The first is in columns already; the others are compressed together."""
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
    """The streams that joined() made one blob of."""
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
    """The streams that compressed() made one blob of, to be read."""
    columns, *others = opened(raw, where)
    clocks = rows_of(unpacked(columns, CLOCKS, samples, where))
    return FrameStreams(Changes(clocks, where), *(Varints(stream, where) for stream in others))


def expanded_size(raw: bytes, where: str) -> int:
    """Return how many bytes the streams are that compressed() made one blob of."""
    numbers = Varints(raw, where)
    return sum(numbers.up_to(MOST_STREAM, "the length of a stream") for _ in range(STREAMS))


def opened(raw: bytes, where: str) -> Streams:
    """The streams that closed() made one blob of."""
    numbers = Varints(raw, where)
    columns, *lengths = (numbers.up_to(MOST_STREAM, "the length of a stream") for _ in range(STREAMS))
    begin, end = numbers.at, numbers.at + columns
    return raw[begin:end], *_cut(_inflated(raw[end:], sum(lengths), where), lengths, where)


def _inflated(raw: bytes, most: int, where: str) -> bytes:
    expander = lzma.LZMADecompressor(format=lzma.FORMAT_RAW, filters=_FILTERS)
    try:
        # A byte more than there may be: the end is known from what follows the last one.
        inside = expander.decompress(raw, most + 1)
    except (lzma.LZMAError, EOFError) as error:
        raise BadInput(f"{where} is damaged: {error}") from error
    if not expander.eof or expander.unused_data:
        raise BadInput(f"{where} is cut, or has more than {most} bytes")
    return inside


def readers(parts: Sequence[Streams], where: str) -> FrameStreams:
    """Readers of the numbers of streams that follow each other, as they are in `tail`."""
    numbers = [Varints(stream, where) for stream in (one_after_another(parts) if parts else (b"",) * STREAMS)]
    if len(numbers) == _FIRST_STREAMS:
        return FrameStreams(None, *numbers)
    return FrameStreams(*numbers)


def split_first(raw: bytes, where: str) -> Streams:
    """The streams of a blob of version 1, as split() gives those of later ones."""
    if len(raw) < _FIRST_LENGTHS.size:
        raise BadInput(f"{where}: {len(raw)} bytes are too few for four streams")
    return _cut(raw[_FIRST_LENGTHS.size :], _FIRST_LENGTHS.unpack_from(raw), where)


def opened_first(blobs: Iterable[bytes], where: str) -> list[Streams]:
    """The streams of version 1, of which the key frame is one blob and the rest another."""
    return [
        tuple(
            contents.expanded(part, MOST_STREAM, where) if part else b"" for part in split_first(blob, where)
        )
        for blob in blobs
        if blob
    ]
