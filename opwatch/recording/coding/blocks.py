"""A minute of samples, as it lies in a file: the four streams of each disk, compressed one by one."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

from opwatch.errors import BadInput
from opwatch.recording.coding import contents
from opwatch.recording.coding.contents import deflated
from opwatch.recording.coding.frames import STREAMS, Streams
from opwatch.recording.coding.varints import Varints

_LENGTHS = struct.Struct(f"<{STREAMS}I")
# Of one stream of one disk within a block: a whole sample has 17,000 words of ten bytes at most.
MOST_STREAM = 4 << 20


def one_after_another(differences: Iterable[Streams]) -> Streams:
    """The streams of several samples, each stream for itself."""
    times, counters, slots, counts = (b"".join(parts) for parts in zip(*differences, strict=True))
    return times, counters, slots, counts


def joined(streams: Streams) -> bytes:
    """As one blob, not compressed."""
    return _LENGTHS.pack(*map(len, streams)) + b"".join(streams)


def compressed(streams: Streams) -> bytes:
    """As one blob. Each stream has its own statistics, and compresses best alone."""
    parts = [deflated(stream) if stream else b"" for stream in streams]
    return _LENGTHS.pack(*map(len, parts)) + b"".join(parts)


def split(raw: bytes, where: str) -> Streams:
    """What joined() joined."""
    if len(raw) < _LENGTHS.size:
        raise BadInput(f"{where}: {len(raw)} bytes are too few for four streams")
    lengths = _LENGTHS.unpack_from(raw)
    if sum(lengths) != len(raw) - _LENGTHS.size:
        raise BadInput(f"{where}: streams of {sum(lengths)} bytes in {len(raw) - _LENGTHS.size}")
    begin, parts = _LENGTHS.size, []
    for length in lengths:
        parts.append(raw[begin : begin + length])
        begin += length
    times, counters, slots, counts = parts
    return times, counters, slots, counts


def expanded(raw: bytes, where: str) -> Streams:
    """What compressed() compressed."""
    times, counters, slots, counts = (
        contents.expanded(part, MOST_STREAM, where) if part else b"" for part in split(raw, where)
    )
    return times, counters, slots, counts


def readers(parts: Sequence[Streams], where: str) -> list[Varints]:
    """The numbers of streams that follow each other."""
    return [Varints(stream, where) for stream in (one_after_another(parts) if parts else (b"",) * STREAMS)]
