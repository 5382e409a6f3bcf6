"""Writes and discards of a disk in the order of their completion, as a history keeps them. Pure."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from opwatch.trim.history.changes import RECORD, ChangeKind
from opwatch.trim.history.saved import HistoryDrive

# Where the fields of a record begin: sector, end, number of sectors, kind, status.
_END_AT, _SECTORS_AT, _KIND_AT, _STATUS_AT = 16, 24, 28, 29
_KEPT = bytes((ChangeKind.WRITE, ChangeKind.ZEROES, ChangeKind.DISCARD, ChangeKind.ERASE))
_FREEING = (ChangeKind.DISCARD, ChangeKind.ERASE)


class RequestRow(NamedTuple):
    """Requests that completed between two saves.

    `follows` is False if requests before the first one may be missing: at the start of a recording, and
    after a loss. Times are of CLOCK_MONOTONIC.
    """

    begin_ns: int
    end_ns: int
    follows: bool
    sectors: array[int]
    lengths: array[int]
    kinds: bytes


@dataclass(frozen=True, slots=True)
class RecordedRequests:
    """All requests of a history: first sector, number of sectors and kind of each.

    `seconds` is the time in which they were recorded. `gaps` counts the times at which requests may be
    missing between two others.
    """

    drive: HistoryDrive
    sectors: array[int]
    lengths: array[int]
    kinds: bytes
    seconds: float
    gaps: int

    @property
    def written_sectors(self) -> int:
        pairs = zip(self.lengths, self.kinds, strict=True)
        return sum(length for length, kind in pairs if kind not in _FREEING)

    @property
    def discarded_sectors(self) -> int:
        return sum(self.lengths) - self.written_sectors


def is_freeing(kind: int) -> bool:
    """Return whether requests of this kind free their sectors."""
    return kind in _FREEING


def select_requests(raw: bytes, *, follows: bool) -> RequestRow | None:
    """Return the writes and discards that succeeded, from records of changes; None without any."""
    columns = _split_columns(raw)
    kinds, statuses = raw[_KIND_AT :: RECORD.size], raw[_STATUS_AT :: RECORD.size]
    if statuses.strip(b"\0") or kinds.strip(_KEPT):
        columns = _split_columns(b"".join(_iter_kept(raw)))
        kinds = bytes(columns[3])
    sectors, ends, lengths, _ = columns
    if not sectors:
        return None
    return RequestRow(min(ends), max(ends), follows, sectors, lengths, kinds)


def _split_columns(raw: bytes) -> tuple[array[int], array[int], array[int], bytes]:
    """Return first sectors, ends in time, numbers of sectors, and kinds."""
    words, halves = memoryview(raw).cast("Q"), memoryview(raw).cast("I")
    step = RECORD.size // 8
    sectors, ends, lengths = array("Q"), array("Q"), array("I")
    sectors.frombytes(words[::step].tobytes())
    ends.frombytes(words[_END_AT // 8 :: step].tobytes())
    lengths.frombytes(halves[_SECTORS_AT // 4 :: 2 * step].tobytes())
    return sectors, ends, lengths, raw[_KIND_AT :: RECORD.size]


def _iter_kept(raw: bytes) -> Iterable[bytes]:
    for at in range(0, len(raw), RECORD.size):
        if raw[at + _KIND_AT] in _KEPT and not raw[at + _STATUS_AT]:
            yield raw[at : at + RECORD.size]


def join_rows(rows: Sequence[RequestRow]) -> RequestRow:
    """Return consecutive rows as one."""
    sectors, lengths = array("Q"), array("I")
    for row in rows:
        sectors.extend(row.sectors)
        lengths.extend(row.lengths)
    return RequestRow(
        rows[0].begin_ns,
        max(row.end_ns for row in rows),
        rows[0].follows,
        sectors,
        lengths,
        b"".join(row.kinds for row in rows),
    )


def to_little_endian(numbers: array[int]) -> bytes:
    """Return the bytes of an array with the lowest byte first."""
    if sys.byteorder == "big":
        numbers = numbers[:]
        numbers.byteswap()
    return numbers.tobytes()


def from_little_endian(code: str, raw: bytes) -> array[int]:
    """Return an array from bytes with the lowest byte first."""
    numbers = array(code, raw)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers
