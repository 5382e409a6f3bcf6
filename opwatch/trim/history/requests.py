"""Writes and discards of a disk in the order of their completion, as a history keeps them. Pure."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from opwatch.trim.history.changes import RECORD, ChangeKind
from opwatch.trim.history.saved import HistoryDrive

# Where the fields of a record begin: end, number of sectors, kind, status, owner.
_END_AT, _SECTORS_AT, _KIND_AT, _STATUS_AT, _OWNER_AT = 16, 24, 28, 29, 30
_KEPT = bytes((ChangeKind.WRITE, ChangeKind.ZEROES, ChangeKind.DISCARD, ChangeKind.ERASE))
_FREEING = (ChangeKind.DISCARD, ChangeKind.ERASE)
# Of requests without known owners. Never changed.
NO_OWNERS = array("H")


class RequestRow(NamedTuple):
    """Requests that completed between two saves.

    `follows` is False if requests before the first one may be missing: at the start of a recording, and
    after a loss. Times are of CLOCK_MONOTONIC. `owners` has the place of each request's owner in
    Checkpoint.owners, from 1, or 0 if unknown; it is empty if owners were not recorded.
    """

    begin_ns: int
    end_ns: int
    follows: bool
    sectors: array[int]
    lengths: array[int]
    kinds: bytes
    owners: array[int] = NO_OWNERS


@dataclass(frozen=True, slots=True)
class RecordedRequests:
    """All requests of a history: first sector, number of sectors and kind of each.

    `seconds` is the time in which they were recorded. `gaps` counts the times at which requests may be
    missing between two others. `owners` are those of the rows, and unknown where a row has none; it is empty
    if no row has owners.
    """

    drive: HistoryDrive
    sectors: array[int]
    lengths: array[int]
    kinds: bytes
    seconds: float
    gaps: int
    owners: array[int] = field(default_factory=lambda: NO_OWNERS)

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


def select_requests(
    raw: bytes, *, follows: bool, places: Mapping[int, int] | None = None
) -> RequestRow | None:
    """Return the writes and discards that succeeded, from records of changes; None without any.

    `places` has the place in Checkpoint.owners of each owner in the records. Owners without one are unknown.
    """
    kinds, statuses = raw[_KIND_AT :: RECORD.size], raw[_STATUS_AT :: RECORD.size]
    if statuses.strip(b"\0") or kinds.strip(_KEPT):
        raw = b"".join(_iter_kept(raw))
    sectors, ends, lengths, kinds = _split_columns(raw)
    if not sectors:
        return None
    row = RequestRow(min(ends), max(ends), follows, sectors, lengths, kinds)
    if places is None:
        return row
    return row._replace(owners=array("H", [places.get(owner, 0) for owner in read_owners(raw)]))


def read_owners(raw: bytes) -> list[int]:
    """Return the owner of each record of a change."""
    return memoryview(raw).cast("H")[_OWNER_AT // 2 :: RECORD.size // 2].tolist()


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
        owners=join_owners(rows),
    )


def join_owners(rows: Sequence[RequestRow]) -> array[int]:
    """Return the owners of all rows' requests, unknown for a row without owners; none if no row has any."""
    owners = array("H")
    if any(row.owners for row in rows):
        for row in rows:
            owners.extend(row.owners or array("H", bytes(2 * len(row.kinds))))
    return owners


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
