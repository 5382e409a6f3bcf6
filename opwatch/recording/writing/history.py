"""Write the history of a disk (`trim record`) as rows of a recording.

Each save is one transaction, so that a kill at any moment leaves the last complete save.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from opwatch.errors import BadInput, OpwatchError, RefusedError
from opwatch.recording.coding.free_space import FREE_ROW, encode_free_space
from opwatch.recording.coding.plain import PlainEncoder
from opwatch.recording.coding.requests import MAX_ROW_REQUESTS, encode_requests
from opwatch.recording.coding.runs import encode_runs
from opwatch.recording.reading.history import UnusableHistoryError, explain_error, read_history_file
from opwatch.recording.reading.write_ahead_log import is_being_written
from opwatch.recording.schema import (
    FORMAT_ROW,
    HISTORY,
    add_row_check,
    build_insert,
    format_json,
)
from opwatch.recording.writing.newfile import NewDatabase
from opwatch.safefile import open_own_file
from opwatch.trim.history.requests import RequestRow
from opwatch.trim.history.saved import Checkpoint, DiskFreeSpace, HistoryDrive, SavedHistory
from opwatch.trim.history.sectormap import Run, SectorMap, SectorState

# Rows of `changes` have about a megabyte at most.
_CHUNK_RUNS = 1 << 16
# Growth in bytes and as a multiple of the map's size after which the whole map is written again.
_GROWTH_BYTES, _GROWTH, _MOST_GROWTH_BYTES = 1 << 20, 2, 64 << 20
# Deflated bytes of the requests that are kept. The oldest rows make room for new ones.
_REQUEST_BYTES = 64 << 20
_TABLES = ("header", "shapes", "checkpoints", "changes")


class HistoryFile:
    """A history file, locked from the first replace_map() to close().

    `saved` is its previous content, or None; `damage` is the reason if unusable.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.saved: SavedHistory | None = None
        self.damage: str | None = None
        self._database: NewDatabase | None = None
        self._sizes = (0, 0)
        self._has_content = False
        self._encoder = PlainEncoder(_refuse_bytes, lambda *_: None)
        try:
            descriptor, self._is_new = open_own_file(self.path)
            with os.fdopen(descriptor):
                is_written = is_being_written(descriptor)
                # The file before the first save. Its inode may be reused after that.
                self._status: os.stat_result | None = os.fstat(descriptor)
            if is_written:
                raise RefusedError(f"{path}: another opwatch process is recording to it")
            if self._status.st_size:
                self._read_saved()
        except OSError as error:
            raise explain_error(error, path) from error
        # Changes are numbered on when a history is continued, so that no earlier row can be taken for one.
        self._number = self.saved.number if self.saved else 0
        self._first, self._map_bytes, self._grown = 1, 0, 0
        # Sizes of the rows of requests, the last of which has this number.
        self._request_sizes: deque[int] = deque()
        self._free: DiskFreeSpace | None = None
        self._last_requests = self.saved.look.last_requests if self.saved else 0

    def _read_saved(self) -> None:
        try:
            self.saved, _ = read_history_file(self.path)
        except UnusableHistoryError as error:
            self.damage = str(error)
        except BadInput as error:
            raise RefusedError(
                f"{self.path} exists and is not a history: use another file with -o ({error})"
            ) from error

    def replace_map(self, drive: HistoryDrive, look: Checkpoint, map_: SectorMap) -> None:
        """Write the whole map. Readers see the old or the new content."""
        with self._explain_errors():
            if self._database and not self.is_unchanged:
                self._database.remove_files()
                self._database = None
            elif not self._database and self.saved and not self.saved.is_salvaged:
                self._database = NewDatabase(self.path, continues=True)
                self._read_request_sizes()
            if self._database:
                self._write_map(drive, look, map_)
            else:
                self._create_file(drive, look, map_)
            # The file alone is a history too, if another program copies it without its log.
            self._execute("PRAGMA wal_checkpoint")
            self._sizes = self._database.read_sizes() if self._database else (0, 0)
        self._has_content, self._status = True, None

    def _create_file(self, drive: HistoryDrive, look: Checkpoint, map_: SectorMap) -> None:
        """Write the map under another name, so that a kill leaves no incomplete history."""
        new = self.path.with_name(f".opwatch-{os.urandom(8).hex()}.new")
        self._database = NewDatabase(new)
        self._request_sizes.clear()
        try:
            self._write_map(drive, look, map_)
            self._database.close()
            self.path.with_name(self.path.name + "-wal").unlink(missing_ok=True)
            new.replace(self.path)
        except BaseException:
            self._database.remove_files()
            new.unlink(missing_ok=True)
            self._database = None
            raise
        self._database = NewDatabase(self.path, continues=True)

    def _write_map(self, drive: HistoryDrive, look: Checkpoint, map_: SectorMap) -> None:
        self._first = self._number + 1
        with self._make_transaction():
            for table in _TABLES:
                self._execute(f"DELETE FROM {table}")
            for row in (FORMAT_ROW, (HISTORY, format_json(self._encoder.encode_fields(drive)))):
                self._insert_row("header", row)
            known = (run for run in map_.iter_runs() if run[2] != SectorState.UNKNOWN)
            self._map_bytes, self._grown = self._put_runs(known), 0
            self._put_free_space()
            self._put_checkpoint(look)
            for name, fields in self._encoder.shapes.items():
                self._insert_row("shapes", (name, format_json(fields)))

    def add_changes(self, look: Checkpoint, runs: Iterable[Run], requests: RequestRow | None = None) -> None:
        """Write the runs that changed since the last save, the requests since then, and a new checkpoint."""
        with self._explain_errors(), self._make_transaction():
            self._grown += self._put_runs(runs)
            if requests:
                self._put_requests(requests)
            self._put_checkpoint(look)

    def _put_requests(self, row: RequestRow) -> None:
        for at in range(0, len(row.kinds), MAX_ROW_REQUESTS):
            part = slice(at, at + MAX_ROW_REQUESTS)
            size, body = encode_requests(
                row._replace(
                    follows=row.follows or at > 0,
                    sectors=row.sectors[part],
                    lengths=row.lengths[part],
                    kinds=row.kinds[part],
                    owners=row.owners[part],
                )
            )
            self._last_requests += 1
            self._insert_row("contents", (self._last_requests, None, size, body))
            self._request_sizes.append(len(body))
        while sum(self._request_sizes) > _REQUEST_BYTES and len(self._request_sizes) > 1:
            self._execute("DELETE FROM contents WHERE content = ?", (self._first_requests,))
            self._request_sizes.popleft()

    @property
    def _first_requests(self) -> int:
        return self._last_requests - len(self._request_sizes) + 1

    def _read_request_sizes(self) -> None:
        assert self._database
        rows = self._database.connection.execute(
            f"SELECT length(body) FROM contents WHERE content > {FREE_ROW} ORDER BY content"
        )
        self._request_sizes = deque(size for (size,) in rows)

    @property
    def has_grown(self) -> bool:
        """Return whether the file has grown enough to write the whole map again."""
        return self._grown > max(_GROWTH_BYTES, min(_GROWTH * self._map_bytes, _MOST_GROWTH_BYTES))

    def _put_runs(self, runs: Iterable[Run]) -> int:
        """Write runs, and return their size."""
        rest, size = iter(runs), 0
        while chunk := list(islice(rest, _CHUNK_RUNS)):
            raw = encode_runs(chunk)
            self._number += 1
            self._insert_row("changes", (self._number, raw))
            size += len(raw)
        return size

    def keep_free_space(self, free: DiskFreeSpace) -> None:
        """Write this free space with the next map."""
        self._free = free

    def _put_free_space(self) -> None:
        self._execute("DELETE FROM contents WHERE content = ?", (FREE_ROW,))
        if self._free:
            self._insert_row("contents", (FREE_ROW, None, *encode_free_space(self._free)))

    def _put_checkpoint(self, look: Checkpoint) -> None:
        look = replace(
            look,
            first_requests=self._first_requests,
            last_requests=self._last_requests,
            free_wall_ns=self._free.wall_ns if self._free else None,
        )
        self._execute("DELETE FROM checkpoints")
        body = format_json(self._encoder.encode_fields(look))
        self._insert_row("checkpoints", (self._number, self._first, body))

    def _insert_row(self, table: str, row: tuple[Any, ...]) -> None:
        self._execute(build_insert(table), add_row_check(table, row))

    def _execute(self, statement: str, values: tuple[Any, ...] = ()) -> None:
        assert self._database
        self._database.connection.execute(statement, values)

    @contextlib.contextmanager
    def _make_transaction(self) -> Iterator[None]:
        self._execute("BEGIN")
        try:
            yield
            self._execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                self._execute("ROLLBACK")
            raise
        if self._database:
            self._sizes = self._database.read_sizes()

    @contextlib.contextmanager
    def _explain_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise explain_error(error, self.path) from error
        except (sqlite3.Error, OpwatchError) as error:
            cause = error.__cause__ if isinstance(error, OpwatchError) else error
            if not isinstance(cause, sqlite3.Error):
                raise
            raise OpwatchError(f"{self.path} cannot be written: {cause}") from error

    @property
    def is_in_place(self) -> bool:
        """Return whether the path still names the file, which has our log beside it once we write."""
        if self._database:
            return self._database.is_in_place
        with contextlib.suppress(OSError):
            return self._status is not None and os.path.samestat(self._status, self.path.lstat())
        return False

    @property
    def is_unchanged(self) -> bool:
        """Return whether the path still names our file, and the sizes are unchanged."""
        if self._database:
            return self.is_in_place and self._database.read_sizes() == self._sizes
        status = self._status
        return status is not None and self.is_in_place and self.path.stat().st_size == status.st_size

    def abandon(self) -> None:
        """Close the file, and remove a new file without content."""
        if self._is_new and not self._has_content and self.is_unchanged:
            self.path.unlink()
        self.close()

    def close(self) -> None:
        """Close the file. If its disk is full, what was committed stays readable."""
        if self._database:
            with contextlib.suppress(sqlite3.Error):
                if self.is_in_place:
                    self._database.close()
            self._database.abandon()
        self._database = self._status = None


def _refuse_bytes(raw: bytes) -> int:
    raise TypeError(f"a history has no contents ({len(raw)} bytes)")
