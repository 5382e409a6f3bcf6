"""Entries one after the other in a file: each compressed, with its length before it.

A stream that ends in the middle of an entry is one whose writer was stopped: what came before is whole.
"""

from __future__ import annotations

import itertools
import json
import struct
import zlib
from collections.abc import Iterable, Iterator

from opwatch.errors import BadInput
from opwatch.fields import Fields
from opwatch.foreign import MOST_BYTES, Reader, inflated, parse_json, table_of
from opwatch.samples.entries import RunEntry
from opwatch.samples.pack.entries import PackedEntry, pack, unpack
from opwatch.samples.pack.growth import growing

MAGIC = b"opwatch entries 1\n"
_LENGTH = struct.Struct("<I")


def entry_to_bytes(entry: RunEntry) -> bytes:
    """One entry: a line with the lengths of all that follows, its document, its parts."""
    packed = pack(entry)
    lengths = json.dumps({"head": len(packed.head), "parts": [len(part) for part in packed.parts]})
    return zlib.compress(b"".join((lengths.encode(), b"\n", packed.head, *packed.parts)), level=1)


def entry_from_bytes(raw: bytes, where: str) -> RunEntry:
    """The entry that was written. BadInput, with the place, for whatever is none."""
    line, _, rest = inflated(raw, MOST_BYTES, where).partition(b"\n")
    fields = Fields(table_of(parse_json(line, where), where), where)
    ends = [fields.count("head")]
    for length in fields.rows("parts"):
        ends.append(ends[-1] + fields.count_of(length, "parts"))
    if ends[-1] != len(rest):
        raise fields.bad(f"{len(rest)} bytes, and not the {ends[-1]} that it says")
    parts = tuple(rest[begin:end] for begin, end in itertools.pairwise(ends))
    return unpack(PackedEntry(rest[: ends[0]], parts), where)


def stream_of(entries: Iterable[RunEntry]) -> Iterator[bytes]:
    """What is to be written, piece by piece."""
    yield MAGIC
    for entry in entries:
        raw = entry_to_bytes(entry)
        yield _LENGTH.pack(len(raw)) + raw


def entries_of(file: Reader, where: str) -> Iterator[RunEntry]:
    """The entries of a stream, in the order in which they were written; BadInput at what is none."""
    if _read(file, len(MAGIC)) != MAGIC:
        raise BadInput(f"{where} holds no entries of a run")
    number = 0
    while prefix := _read(file, _LENGTH.size):
        number += 1
        place = f"{where}: entry {number}"
        length = _LENGTH.unpack(prefix)[0] if len(prefix) == _LENGTH.size else 0
        if length > MOST_BYTES:
            raise BadInput(f"{place} has more than {MOST_BYTES} bytes: it is not what it should be")
        raw = _read(file, length)
        if not length or len(raw) != length:
            raise BadInput(f"{place} is cut: whoever wrote it was stopped there")
        yield entry_from_bytes(raw, place)


def _read(file: Reader, size: int) -> bytes:
    """So many bytes, or all there are. Memory is taken for what is there, not for what is said."""
    parts: list[bytes] = []
    while size > 0 and (part := file.read(min(size, 1 << 16))):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


class StreamSource:
    """A run that lies in a file. BadInput where it is none, or is one that no machine has lived through."""

    def __init__(self, file: Reader, where: str) -> None:
        self._file, self._where = file, where

    def entries(self) -> Iterator[RunEntry]:
        return growing(entries_of(self._file, self._where), self._where)
