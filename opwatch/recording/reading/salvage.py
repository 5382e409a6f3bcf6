"""Collects the rows of a damaged recording from its pages.

SQLite finds a row through the interior pages of its table: one bad page there hides all rows below it. The
leaf pages themselves are recognizable, and the checksum of each row includes the name of its table, so that
rows can be collected without any interior page, and without the schema.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from opwatch.errors import BadInput
from opwatch.recording.reading.write_ahead_log import iterate_data_ranges, open_regular
from opwatch.recording.schema import (
    INDEXES,
    PAGE_BYTES,
    TABLES,
    build_create_index,
    build_create_table,
    compute_row_check,
    has_check,
    list_columns,
    list_declarations,
)

# A table, a rowid, and the values.
_Row = tuple[str, int, tuple[Any, ...]]

# SQLite file format: first byte of a leaf page of a table, and the size of its header.
_LEAF, _LEAF_HEAD = 13, 8
# An overflow page begins with the number of the next overflow page.
_OVERFLOW_BYTES = PAGE_BYTES - 4
# Largest payload that fits the leaf page, and the minimum that stays there otherwise.
_MAX_LOCAL, _MIN_LOCAL = PAGE_BYTES - 35, (PAGE_BYTES - 12) * 32 // 255 - 23
# A pointer map page has a kind (1 byte) and a parent number (4 bytes) for each following page.
_MAPPED = PAGE_BYTES // 5
# Kinds of free and overflow pages, which hold no current rows.
_NO_LEAVES = (2, 3, 4)
_MAX_KIND = 5
# Kinds of values in a record: integers by size, constants, and from 12 on blobs and texts.
_INTEGERS, _CONSTANTS, _MIN_BYTES = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}, {0: None, 8: 0, 9: 1}, 12
# Minimum size of a cell with its pointer.
_MIN_CELL = 6
# If the row number is a column of the table, the record does not contain it.
_HAS_NUMBER = {table: "PRIMARY KEY" in list_declarations(table)[0] for table in TABLES if has_check(table)}
_CANDIDATES = {
    count: [table for table in _HAS_NUMBER if len(list_declarations(table)) == count]
    for count in {len(list_declarations(table)) for table in _HAS_NUMBER}
}
# Positions of the columns with integers, which may be NULL. SQLite would store any other value there, too.
_INTEGER_PLACES = {
    table: [place for place, column in enumerate(list_declarations(table)) if column.split()[1] == "INTEGER"]
    for table in _HAS_NUMBER
}
_MAX_PAYLOAD = 8 << 20
_PART = 1 << 20
# Maximum number of contradictions in memory. A recorder leaves none, damage a few.
_MAX_CONFLICTS = 100_000


class _NotARow(Exception):
    """The bytes are not a row of a recording."""


def collect_rows(path: Path, size: int) -> sqlite3.Connection:
    """Return a temporary database with the tables of a recording, and the rows that the pages of the file
    still hold. `size`: bytes of data in the file, which limit the bytes read."""
    # Without a name, SQLite creates an unnamed file that disappears when closed.
    database = sqlite3.connect("", isolation_level=None, check_same_thread=False)
    try:
        for setting in ("journal_mode=OFF", "synchronous=OFF", "cache_size=-4096", "locking_mode=EXCLUSIVE"):
            database.execute(f"PRAGMA {setting}").fetchall()
        database.execute("BEGIN")
        for table in TABLES:
            database.execute(build_create_table(table))
        with open_regular(path) as descriptor:
            _insert_rows(database, _PageReader(descriptor, 2 * size + _PART))
        _trim_tail(database)
        for index in INDEXES:
            database.execute(build_create_index(index))
        database.execute("COMMIT")
    except BaseException:
        database.close()
        raise
    return database


def _insert_rows(database: sqlite3.Connection, pages: _PageReader) -> None:
    """Insert each row once. Two rows under one number contradict each other: neither is kept, except in
    `tail`, where numbers are reused and the row of the later entry is the current one."""
    conflicts: set[tuple[str, int]] = set()
    for table, rowid, row in pages.iter_rows():
        names = ", ".join(list_columns(table))
        into = f"INTO {table} (rowid, {names}) VALUES (?{', ?' * len(row)})"
        if database.execute(f"INSERT OR IGNORE {into}", (rowid, *row)).rowcount:
            continue
        [there] = database.execute(f"SELECT {names} FROM {table} WHERE rowid = ?", (rowid,))
        if there == row:
            continue
        if table == "tail" and there[0] != row[0]:
            if row[0] > there[0]:
                database.execute(f"REPLACE {into}", (rowid, *row))
        else:
            conflicts.add((table, rowid))
            if len(conflicts) > _MAX_CONFLICTS:
                raise BadInput("too many of its rows contradict each other")
    for table, rowid in conflicts:
        database.execute(f"DELETE FROM {table} WHERE rowid = ?", (rowid,))


def _trim_tail(database: sqlite3.Connection) -> None:
    """Keep the rows of `tail` up to the first that is missing, without the entry there.

    Each row is a difference to the previous row, so a gap would change all later values. Rows are numbered
    from 1 in each minute, and pages may still hold rows of an earlier minute. Each entry has rows there or in
    `entries`, so entry numbers without a gap show that the rows belong together."""
    last = database.execute("SELECT coalesce(max(last), 0) FROM blocks").fetchone()[0]
    newest, count = last, 0

    def is_rare(number: int) -> bool:
        return bool(database.execute("SELECT 1 FROM entries WHERE number = ?", (number,)).fetchone())

    for rowid, number in database.execute("SELECT rowid, number FROM tail ORDER BY rowid"):
        while newest + 1 < number and is_rare(newest + 1):
            newest += 1
        if rowid != count + 1 or number not in (newest, newest + 1) or number <= last:
            break
        newest, count = number, count + 1
    if count:
        # Rows of its last entry may be missing.
        newest -= 1
    while not count and is_rare(newest + 1):
        newest += 1
    database.execute("DELETE FROM tail WHERE rowid > ? OR number > ?", (count, newest))
    database.execute("DELETE FROM entries WHERE number > ?", (newest,))


class _PageReader:
    """The pages of a file. `most_bytes`: limit of the bytes in overflow pages, against hostile files."""

    def __init__(self, descriptor: int, most_bytes: int) -> None:
        self._descriptor, self._left = descriptor, most_bytes
        self._map, self._mapped = b"", 0

    def iter_rows(self) -> Iterator[_Row]:
        """Yield the rows of all leaf pages that have the checksum of exactly one table."""
        for page in self._iter_leaves():
            room = PAGE_BYTES - _LEAF_HEAD
            for at in range(int.from_bytes(page[3:5])):
                pointer = _LEAF_HEAD + 2 * at
                try:
                    size, row = self._parse_row(page, int.from_bytes(page[pointer : pointer + 2]))
                except _NotARow:
                    size, row = _MIN_CELL, None
                room -= size
                # Cells do not overlap, so a page with more cells than fit is not ours.
                if room < 0:
                    break
                if row:
                    yield row

    def _iter_leaves(self) -> Iterator[bytes]:
        for begin, end in iterate_data_ranges(self._descriptor):
            at = begin - begin % PAGE_BYTES
            while at < end:
                part = os.pread(self._descriptor, min(_PART, end - at), at)
                for offset in range(0, len(part) - PAGE_BYTES + 1, PAGE_BYTES):
                    number = 1 + (at + offset) // PAGE_BYTES
                    if part[offset] == _LEAF and self._find_page_kind(number) not in _NO_LEAVES:
                        yield part[offset : offset + PAGE_BYTES]
                if len(part) < PAGE_BYTES:
                    break
                at += len(part) - len(part) % PAGE_BYTES

    def _find_page_kind(self, number: int) -> int:
        """Return the kind of a page by the pointer map; 0 if the map is damaged or has no such entry."""
        page = max(number - 2, 0) // (_MAPPED + 1) * (_MAPPED + 1) + 2
        if page != self._mapped:
            self._map, self._mapped = os.pread(self._descriptor, PAGE_BYTES, (page - 1) * PAGE_BYTES), page
            if any(kind > _MAX_KIND for kind in self._map[: 5 * _MAPPED : 5]):
                self._map = b""
        at = 5 * (number - page - 1)
        return self._map[at] if 0 <= at < len(self._map) else 0

    def _parse_row(self, page: bytes, at: int) -> tuple[int, _Row | None]:
        """Return the size of a cell in its page, and its row, if any. Raises _NotARow."""
        payload, at_rowid = _decode_varint(page, at)
        rowid, begin = _decode_varint(page, at_rowid)
        local, is_local = _count_local_bytes(payload)
        raw, end = page[begin : begin + local], begin + local
        if payload > _MAX_PAYLOAD or len(raw) < local:
            raise _NotARow
        kinds, values_at = _decode_kinds(raw)
        candidates = _CANDIDATES.get(len(kinds))
        if not candidates or values_at + sum(map(_count_value_bytes, kinds)) != payload:
            raise _NotARow
        if not is_local:
            raw += self._read_overflow(int.from_bytes(page[end : end + 4]), payload - local)
            end += 4
        values = _decode_values(raw, kinds, values_at)
        fitting = []
        for table in candidates:
            if _HAS_NUMBER[table]:
                row = (_to_signed(rowid), *values[1:]) if values[0] is None else ()
            else:
                row = values
            has_integers = row and all(
                row[place] is None or isinstance(row[place], int) for place in _INTEGER_PLACES[table]
            )
            if has_integers and row[-1] == compute_row_check(table, row[:-1]):
                fitting.append((table, _to_signed(rowid), row))
        return end - at, fitting[0] if len(fitting) == 1 else None

    def _read_overflow(self, number: int, size: int) -> bytes:
        """Return the first `size` bytes of a chain of overflow pages. Raises _NotARow if it is too short."""
        parts = []
        while size > 0:
            self._left -= PAGE_BYTES
            if self._left < 0:
                raise BadInput("its rows need more bytes than the file has")
            page = os.pread(self._descriptor, PAGE_BYTES, (number - 1) * PAGE_BYTES) if number else b""
            if len(page) < PAGE_BYTES:
                raise _NotARow
            number = int.from_bytes(page[:4])
            parts.append(page[4 : 4 + min(size, _OVERFLOW_BYTES)])
            size -= _OVERFLOW_BYTES
        return b"".join(parts)


def _decode_varint(raw: bytes, at: int) -> tuple[int, int]:
    """Return a variable-length integer of SQLite (7 bits per byte, 8 in the ninth byte), and its end."""
    value = 0
    for count in range(9):
        if at >= len(raw):
            raise _NotARow
        byte, at = raw[at], at + 1
        if count == 8:
            return value << 8 | byte, at
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            break
    return value, at


def _to_signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def _count_local_bytes(payload: int) -> tuple[int, bool]:
    """Return the number of payload bytes in the leaf page, and whether the whole payload is there."""
    if payload <= _MAX_LOCAL:
        return payload, True
    local = _MIN_LOCAL + (payload - _MIN_LOCAL) % _OVERFLOW_BYTES
    return (local if local <= _MAX_LOCAL else _MIN_LOCAL), False


def _decode_kinds(raw: bytes) -> tuple[list[int], int]:
    """Return the kinds of a record's values, and the offset of the values."""
    end, at = _decode_varint(raw, 0)
    kinds = []
    while at < end:
        kind, at = _decode_varint(raw, at)
        kinds.append(kind)
    if at != end:
        raise _NotARow
    return kinds, end


def _count_value_bytes(kind: int) -> int:
    return _INTEGERS.get(kind, 0) if kind < _MIN_BYTES else (kind - _MIN_BYTES) // 2


def _decode_values(raw: bytes, kinds: list[int], at: int) -> tuple[Any, ...]:
    values: list[int | str | bytes | None] = []
    for kind in kinds:
        part = raw[at : at + _count_value_bytes(kind)]
        at += len(part)
        if kind >= _MIN_BYTES:
            try:
                values.append(part.decode() if kind % 2 else part)
            except UnicodeDecodeError as error:
                raise _NotARow from error
        elif kind in _INTEGERS:
            values.append(int.from_bytes(part, signed=True))
        elif kind in _CONSTANTS:
            values.append(_CONSTANTS[kind])
        else:
            raise _NotARow
    return tuple(values)
