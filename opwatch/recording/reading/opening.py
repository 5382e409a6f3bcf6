"""Open a recording from any source: check the tables before using any of their values."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from opwatch.errors import BadInput
from opwatch.foreign import parse_json
from opwatch.recording.reading.clocks import RecordedClocks
from opwatch.recording.reading.salvage import collect_rows
from opwatch.recording.reading.write_ahead_log import (
    CommittedPages,
    copy_with_log,
    find_log,
    is_being_written,
    iterate_data_ranges,
    open_regular,
    read_committed_pages,
)
from opwatch.recording.schema import (
    APPLICATION_ID,
    INDEXES,
    TABLES,
    VERSION,
    build_create_index,
    build_create_table,
    compute_row_check,
    has_check,
    list_columns,
    list_declarations,
)

# Range of SQLite's integers.
_MIN_INTEGER, _MAX_INTEGER = -(1 << 63), (1 << 63) - 1
# SQLite's message on a damaged file may quote bytes that are not text. MemoryError: a page claims more than
# SQLite may allocate.
_ERRORS = (sqlite3.Error, UnicodeDecodeError, MemoryError)
MAGIC = b"SQLite format 3\0"
_MAX_VALUE = 8 << 20
_MAX_DOCUMENT = 1 << 20
_MAX_SCHEMA = 64
# Minimum size of a row in the file, in bytes.
_MIN_ROW = 4
# Minimum bytes of a minute in the file: a row of `blocks`, and rows of other tables.
_MIN_MINUTE_BYTES = 64
# Tables that other rows refer to.
_SMALL = ("header", "shapes", "facts", "clocks")
_MAX_SHAPES, _MAX_SHAPE_BYTES, _MAX_NAMES = 256, 1 << 20, 1024
# Clock readings beyond this number are not read.
_MAX_CLOCKS = 1 << 20
_TYPES = {"INTEGER": int, "TEXT": str, "BLOB": bytes}
_LIMITS = {
    sqlite3.SQLITE_LIMIT_LENGTH: _MAX_VALUE,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 1 << 16,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH: 1,
    sqlite3.SQLITE_LIMIT_WORKER_THREADS: 0,
}


class DamagedError(BadInput):
    """A row was changed after writing: the checksum differs, or SQLite cannot read the page.

    Rows fabricated by a program have valid checksums, and are refused with BadInput only.
    """


class CheckedFile:
    """Reads rows of a recording, and checks the type of each value; BadInput names the table and row of a
    wrong type.

    A file that a recorder is writing is refused, unless `may_be_written`: then the rows are those of the last
    commit. Nothing is created beside the file: with a log or a recorder, a copy of both is read.
    """

    def __init__(self, path: Path, *, may_be_written: bool = False) -> None:
        self.name = str(path)
        with open_regular(path) as descriptor:
            self.is_being_written = is_being_written(descriptor)
        if self.is_being_written and not may_be_written:
            raise BadInput(f"{path} is being written: read it after its recorder has ended")
        # Why the rows were collected from the pages, if SQLite cannot find all of them.
        self.damage: str | None = None
        self._clocks: RecordedClocks | None = None
        with contextlib.ExitStack() as stack:
            # A recorder may begin to use an empty log at any moment.
            if self.is_being_written or find_log(path):
                path = stack.enter_context(copy_with_log(path))
            # `missing`: bytes lost at the end of the file. `size`: bytes of file and log, without holes.
            self.size, self.missing = _measure_file(path)
            self._most_rows, self._most_bytes = self.size // _MIN_ROW, self.size + _MAX_VALUE // 8
            try:
                self._open(path)
            except DamagedError as error:
                self._salvage(path, error)

    def _open(self, path: Path) -> None:
        """Open the file itself. Damaged if SQLite cannot find all of its rows."""
        try:
            # Without a log, SQLite needs no files beside this one.
            way = "mode=ro" if find_log(path) else "mode=ro&immutable=1"
            self._connection = _open_connection(path, way, is_cut=self.missing > 0)
        except _ERRORS as error:
            raise self._make_read_error(error) from error
        try:
            self._check_tables()
            self._check_pages()
        except _ERRORS as error:
            self.close()
            raise self._make_read_error(error) from error
        except BaseException:
            self.close()
            raise

    def _check_pages(self) -> None:
        """Raise an error for a page that SQLite cannot use, and for a damaged row that others depend on."""
        if self.missing:
            raise sqlite3.DatabaseError(f"its last {self.missing} bytes are missing")
        (words,) = self._connection.execute("PRAGMA quick_check(1)").fetchone()
        if words != "ok":
            raise sqlite3.DatabaseError(words.splitlines()[-1])
        self._check_minutes()
        for table in ("header", "shapes", "facts", "blocks"):
            for _ in self.iter_rows(table):
                pass
        self.read_clocks()

    def _check_minutes(self) -> None:
        (minutes,) = self._connection.execute("SELECT count(*) FROM blocks").fetchone()
        if minutes > self.size // _MIN_MINUTE_BYTES:
            raise BadInput(f"{self.name}: table blocks has more minutes than fit into the file")

    def read_clocks(self) -> RecordedClocks:
        """Return the clock readings. They are read once, because a file may have a million."""
        if self._clocks is None:
            order = "ORDER BY mono_ns, wall_ns, slack_ns"
            self._clocks = RecordedClocks(self.iter_rows("clocks", f"{order} LIMIT {_MAX_CLOCKS}"))
        return self._clocks

    def _salvage(self, path: Path, error: DamagedError) -> None:
        """Read the rows that the pages still hold in place of the file. Raises `error` without a header."""
        self._clocks = None
        try:
            if find_log(path):
                _apply_log(path)
            self._connection = _restrict_connection(collect_rows(path, self.size), is_cut=False)
            self._check_minutes()
            empty = [table for table in _SMALL if not self._has_rows(table)]
        except BadInput as bound:
            raise DamagedError(f"{error}; {bound}") from error
        except _ERRORS as problem:
            raise DamagedError(f"{error}; its rows cannot be collected: {problem}") from problem
        if "header" in empty:
            self.close()
            if len(empty) < len(_SMALL):
                raise DamagedError(f"{error}: no header rows are left")
            reason = _describe_error(error.__cause__ or error)
            raise DamagedError(
                f"{self.name} is not an opwatch recording, or none of it can be read: {reason}"
            )
        rest = f"; its pages have no rows of {' and '.join(empty)}" if empty else ""
        cause = error.__cause__
        self.damage = f"{self.name} is damaged: {_describe_error(cause)}{rest}" if cause else f"{error}{rest}"

    def count_samples(self) -> int:
        """Return the number of samples in all minutes, or 0 if unreadable. Their contents are not read."""
        try:
            (samples,) = self._connection.execute("SELECT total(samples) FROM frames").fetchone()
        except sqlite3.Error:
            return 0
        return max(int(samples), 0)

    def list_places(self) -> list[tuple[int, int]]:
        """Return the place and the fact of each watched disk, or nothing if they are unreadable."""
        try:
            rows = self._connection.execute("SELECT DISTINCT place, fact FROM frames").fetchall()
        except sqlite3.Error:
            return []
        return [(place, fact) for place, fact in rows if type(place) is int and type(fact) is int]

    def _has_rows(self, table: str) -> bool:
        return bool(self._connection.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchone())

    def iter_rows(
        self,
        table: str,
        behind: str = "",
        values: tuple[int, ...] = (),
        most_bytes: int | None = None,
    ) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a table, or only rows selected by `behind` (the rest of the statement).

        Raises Damaged for a changed row, and BadInput if the rows exceed `most_bytes`, for callers that keep
        all rows.
        """
        if not all(_MIN_INTEGER <= value <= _MAX_INTEGER for value in values):
            # Damaged data may ask for a number that no row can have.
            return
        names, checks = _parse_table(table)
        is_checked, has_sizes, taken = has_check(table), any(kind is not int for kind, _ in checks), 0
        statement = f"SELECT {', '.join(names)} FROM {table} {behind}"

        def name_row(count: int) -> str:
            return f"{self.name}: table {table}, row {count + 1}"

        try:
            for count, row in enumerate(self._connection.execute(statement, values)):
                if count > self._most_rows:
                    raise BadInput(f"{self.name}: table {table} has more rows than fit into the file")
                if has_sizes:
                    taken += sum(len(value) for value in row if isinstance(value, bytes | str))
                if taken > self._most_bytes:
                    raise BadInput(f"{name_row(count)}: the rows have more bytes than the file")
                if most_bytes is not None and taken > most_bytes:
                    raise BadInput(f"{name_row(count)}: the table has more than {most_bytes} bytes")
                if is_checked and row[-1] != compute_row_check(table, row[:-1]):
                    raise DamagedError(f"{name_row(count)} is damaged: its checksum is wrong")
                for name, (kind, may_be_none), value in zip(names, checks, row, strict=True):
                    if not isinstance(value, kind) and not (value is None and may_be_none):
                        raise BadInput(f"{name_row(count)}: {name} is not a {_name_type(kind)}")
                yield row[:-1] if is_checked else row
        except _ERRORS as error:
            raise self._make_read_error(error, f" in table {table}") from error

    def close(self) -> None:
        self._connection.close()

    def _make_read_error(self, error: Exception, where: str = "") -> DamagedError:
        if isinstance(error, UnicodeDecodeError):
            return DamagedError(f"{self.name} is damaged{where}, in the text of its tables")
        return DamagedError(
            f"{self.name} cannot be read{where}: {_describe_error(error)}; part of it is missing or damaged"
        )

    def _check_tables(self) -> None:
        (application,) = self._connection.execute("PRAGMA application_id").fetchone()
        (version,) = self._connection.execute("PRAGMA user_version").fetchone()
        if application != APPLICATION_ID:
            raise BadInput(f"{self.name} is not an opwatch recording")
        if version != VERSION:
            raise BadInput(
                f"{self.name} is a recording of format version {version}, but this opwatch reads version "
                f"{VERSION} only. Use a later opwatch; if the file is from before release 0.1.0, record again"
            )
        statement = f"SELECT type, name, sql FROM sqlite_schema LIMIT {_MAX_SCHEMA}"
        there = self._connection.execute(statement).fetchall()
        wanted = [("table", name, build_create_table(name)) for name in TABLES]
        wanted += [("index", name, build_create_index(name)) for name in INDEXES]
        for row in there:
            if row not in wanted:
                # What others added is refused; text that differs may be damage.
                kind = BadInput if len(there) > len(wanted) else DamagedError
                raise kind(f"{self.name}: {row[0]} {row[1]!r} is not part of a recording")
        for row in wanted:
            if there.count(row) != 1:
                raise BadInput(f"{self.name}: {row[0]} {row[1]} is missing or duplicate")


def _describe_error(error: BaseException) -> str:
    return str(error) or "a page claims more data than can exist"


@cache
def _parse_table(table: str) -> tuple[tuple[str, ...], tuple[tuple[Any, bool], ...]]:
    """Return the names of the columns, and their types with whether a value may be missing."""
    return list_columns(table), tuple(_parse_column(column) for column in list_declarations(table))


def _parse_column(column: str) -> tuple[Any, bool]:
    words = column.split()
    kind = next((_TYPES[word] for word in words if word in _TYPES), (int, str))
    return kind, "NOT" not in words and "PRIMARY" not in words


def _name_type(kind: Any) -> str:  # noqa: ANN401
    return {int: "whole number", str: "text", bytes: "blob"}.get(kind, "number or text")


def _measure_file(path: Path) -> tuple[int, int]:
    """Return (data bytes of the file and its log without holes, bytes lost at the end).

    Lost bytes belong to pages that the header or the log counts and neither file contains.
    """
    with open_regular(path) as descriptor:
        size, head = os.fstat(descriptor).st_size, os.pread(descriptor, 32, 0)
        room = _count_data_bytes(descriptor)
    pages, log = CommittedPages(), find_log(path)
    if log:
        with open_regular(log) as descriptor:
            pages, room = read_committed_pages(descriptor), room + _count_data_bytes(descriptor)
    page = int.from_bytes(head[16:18]) if len(head) == 32 and head.startswith(MAGIC) else 0
    if not page:
        return room, 0
    page = page if page > 1 else 1 << 16
    total, there = pages.total or int.from_bytes(head[28:32]), size // page
    missing = total - there - sum(there < number <= total for number in pages.numbers)
    return room, max(missing * page - size % page, 0)


def _count_data_bytes(descriptor: int) -> int:
    return sum(end - begin for begin, end in iterate_data_ranges(descriptor))


def _apply_log(copy: Path) -> None:
    """Move the log's pages into our copy. SQLite checks none of them except the first."""
    with contextlib.suppress(*_ERRORS), contextlib.closing(sqlite3.connect(copy)) as connection:
        connection.execute("PRAGMA writable_schema=ON").fetchall()
        connection.execute("PRAGMA application_id").fetchall()
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def _open_connection(path: Path, way: str, *, is_cut: bool) -> sqlite3.Connection:
    """Return a connection with all files already open, so their names are no longer needed."""
    address = f"file:{quote(os.fsencode(path.absolute()))}?{way}"
    connection = sqlite3.connect(address, uri=True, isolation_level=None, check_same_thread=False)
    return _restrict_connection(connection, is_cut=is_cut)


def _restrict_connection(connection: sqlite3.Connection, *, is_cut: bool) -> sqlite3.Connection:
    """The connection, with all limits that hold for files of others."""
    connection.text_factory = _decode_text
    try:
        for limit, most in _LIMITS.items():
            connection.setlimit(limit, most)
        for setting in (
            # SQLite opens a file shorter than its header says only with this setting, which is meant for
            # repair.
            f"writable_schema={'ON' if is_cut else 'OFF'}",
            "trusted_schema=OFF",
            "query_only=ON",
            "cell_size_check=ON",
            "mmap_size=0",
            "cache_size=-4096",
            "temp_store=MEMORY",
        ):
            connection.execute(f"PRAGMA {setting}").fetchall()
        # The first statement opens the file.
        connection.execute("PRAGMA application_id").fetchall()
    except BaseException:
        connection.close()
        raise
    return connection


def parse_small_document(text: bytes | str, where: str) -> Any:  # noqa: ANN401
    """Parse a JSON document of limited size, because three bytes of text may take 70 bytes of memory."""
    if len(text) > _MAX_DOCUMENT:
        raise BadInput(f"{where}: a document has {len(text)} bytes, but at most {_MAX_DOCUMENT} are valid")
    return parse_json(text, where)


def parse_names(text: str, where: str, most: int = _MAX_NAMES) -> tuple[str, ...]:
    """Parse a document that is a list of different names."""
    names = parse_small_document(text, where)
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise BadInput(f"{where} is not a list of names")
    if len(names) > most or len(set(names)) != len(names):
        raise BadInput(f"{where} has too many names, or a duplicate")
    return tuple(names)


def read_shapes(file: CheckedFile) -> dict[str, tuple[str, ...]]:
    """Return the field names of each class in the file's documents."""
    rows = file.iter_rows("shapes", f"LIMIT {_MAX_SHAPES}", most_bytes=_MAX_SHAPE_BYTES)
    return {name: parse_names(fields, f"{file.name}: table shapes, {name}") for name, fields in rows}


def _decode_text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")
