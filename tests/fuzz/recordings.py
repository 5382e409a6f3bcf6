"""Recordings with modified bytes, or with modified rows in a valid SQLite file.

Each is refused with OpwatchError, or read as entries that can be shown.

    python -m tests.fuzz.recordings [INPUTS [SEED]]
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import random
import sqlite3
import struct
import sys
import tempfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

from opwatch.counters.catalogue.families import Catalogue
from opwatch.errors import OpwatchError
from opwatch.fio.beside import beside
from opwatch.recording.coding.audits import SeenAudit
from opwatch.recording.coding.blocks import closed, joined, opened, split, split_first
from opwatch.recording.coding.contents import deflated
from opwatch.recording.coding.frames import Streams
from opwatch.recording.reading.command import command_cpu
from opwatch.recording.reading.notes import kept_notes
from opwatch.recording.reading.reader import RecordedRun
from opwatch.recording.reading.window import ended
from opwatch.recording.schema import CPU_VERSION, FIRST_VERSION, OTHERS, PAGE_BYTES, columns, tables
from opwatch.samples.observation import Event, Sink
from opwatch.samples.story import Story
from opwatch.sinks.jsonl import JsonLines
from opwatch.sinks.lines import Lines
from opwatch.sinks.trim_audit import write_json
from opwatch.tools.kept_audits import recorded_audits
from opwatch.tools.waf_outcome import is_of_waf, recorded_waf
from opwatch.trim.audit import ledger
from tests.unit.support.recordings import sealed

from .recorded_anchors import other_anchors
from .rules import refused_or_sound, run_by_words

GOOD = Path(__file__).parents[1] / "fixtures" / "good" / "recordings"
_NUMBERS = (-1, 0, 1, 2, 255, 1 << 16, 1 << 31, 1 << 32, (1 << 63) - 1, -(1 << 63))
_VALUES: tuple[Any, ...] = (*_NUMBERS, None, "", "x", "[]", "[[[]]]", b"", b"\0" * 16, 1.5, "\0", "9" * 5000)
_PLAIN: tuple[Any, ...] = (
    *_NUMBERS,
    None,
    True,
    1e300,
    1 << 64,
    "",
    "x",
    [],
    {},
    [[]],
    [0, []],
    [None],
    "9" * 50,
)
# Share of modified files with correct checksums, which a forged file can have too.
_SEALED = 0.9
# Table, column, row, value.
Cell = tuple[str, str, int, Any]


class Fuzz:
    """Sequence of inputs from a seed, or from `chance`."""

    def __init__(self, seed: int, chance: random.Random | None = None) -> None:
        self._random = chance or random.Random(seed)
        self._good = [gzip.decompress(path.read_bytes()) for path in sorted(GOOD.glob("*.opw.gz"))]
        self.targets: dict[str, Callable[[], bytes]] = {
            "bytes": self._bytes,
            "values": self._values,
            "rows": self._rows,
            "blobs": self._blobs,
            "documents": self._documents,
            "tables": self._tables,
        }

    def run(self, inputs: int, only: str | None = None) -> None:
        """Run this many inputs. Raises at the first failure."""
        names = [only] if only else list(self.targets)
        with tempfile.TemporaryDirectory(dir=_fast_folder()) as folder:
            path = Path(folder) / "it.opw"
            sound_s = self._sound_s(path)
            for _ in range(inputs):
                name = self._random.choice(names)
                path.write_bytes(self.targets[name]())
                with refused_or_sound(f"recording, {name}", sound_s):
                    look_at(path, self._random.choice(_SINKS)(_Nowhere()))

    def _sound_s(self, path: Path) -> float:
        """Return the CPU seconds to show the most expensive valid file, after its imports."""
        costs = []
        for good in self._good:
            path.write_bytes(good)
            for make_sink in _SINKS:
                look_at(path, make_sink(_Nowhere()))
                begin = time.thread_time()
                look_at(path, make_sink(_Nowhere()))
                costs.append(time.thread_time() - begin)
        return max(costs)

    def _bytes(self) -> bytes:
        """Return a file with modified bytes or a truncated end."""
        chance, changed = self._random, bytearray(self._random.choice(self._good))
        for _ in range(chance.randrange(1, 9)):
            # A page starts with its layout information.
            at = (
                chance.randrange(len(changed))
                if chance.random() < 0.5
                else chance.randrange(len(changed)) & ~(PAGE_BYTES - 1)
            )
            at = min(at + chance.randrange(110), len(changed) - 1)
            changed[at] = chance.choice((0, 1, 2, 5, 10, 13, 127, 128, 255, chance.randrange(256)))
        return bytes(changed[: chance.randrange(len(changed))] if chance.random() < 0.2 else changed)

    def _changed(self, change: Callable[[sqlite3.Connection], None]) -> bytes:
        """Return a valid file with modified rows."""
        connection = sqlite3.connect(":memory:", isolation_level=None)
        try:
            connection.deserialize(self._random.choice(self._good))
            for _ in range(self._random.randrange(1, 4)):
                change(connection)
            # A table may have been dropped.
            with contextlib.suppress(sqlite3.OperationalError):
                if self._random.random() < _SEALED:
                    sealed(connection)
            return bytes(connection.serialize())
        finally:
            connection.close()

    def _cell(
        self, connection: sqlite3.Connection, kind: type | None = None
    ) -> tuple[str, str, int, Any] | None:
        """Return (table, column, row, value) of a random cell, of the given type if any."""
        table = self._random.choice(tables(_version(connection)))
        column = self._random.choice(columns(table, _version(connection)))
        rows = connection.execute(f"SELECT rowid, {column} FROM {table}").fetchall()
        rows = [row for row in rows if kind is None or isinstance(row[1], kind)]
        return (table, column, *self._random.choice(rows)) if rows else None

    def _put(self, connection: sqlite3.Connection, cell: Cell, value: Any) -> None:  # noqa: ANN401
        table, column, row, _ = cell
        try:
            connection.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (value, row))
        except (sqlite3.IntegrityError, OverflowError):
            return

    def _values(self) -> bytes:
        """Replace values by others of another type or size."""

        def change(connection: sqlite3.Connection) -> None:
            cell = self._cell(connection)
            if cell and isinstance(cell[3], int) and self._random.random() < 0.5:
                self._put(connection, cell, cell[3] + self._random.choice((-1, 1, 2, 1000)))
            elif cell:
                self._put(connection, cell, self._random.choice(_VALUES))

        return self._changed(change)

    def _rows(self) -> bytes:
        """Delete, duplicate or exchange rows."""

        def change(connection: sqlite3.Connection) -> None:
            table, kind = self._random.choice(tables(_version(connection))), self._random.random()
            if kind < 0.5:
                connection.execute(f"DELETE FROM {table} WHERE rowid % 3 = ?", (self._random.randrange(3),))
            elif kind < 0.8:
                names = ", ".join(columns(table, _version(connection)))
                connection.execute(f"INSERT OR IGNORE INTO {table} SELECT {names} FROM {table} LIMIT 3")
            else:
                connection.execute(f"UPDATE OR IGNORE {table} SET rowid = rowid + 1 WHERE rowid % 2")

        return self._changed(change)

    def _blobs(self) -> bytes:
        """Modify compressed data below the compression."""

        def change(connection: sqlite3.Connection) -> None:
            cell = self._cell(connection, bytes)
            if not cell or not cell[3]:
                return
            table, column, _, raw = cell
            is_first = _version(connection) == FIRST_VERSION
            if table == "frames":
                cut, put = (_first_opened, _first_closed) if is_first else (_opened, closed)
                value = self._changed_streams(raw, cut, put)
            elif table == "tail" and len(raw) > 16 and column == "body" and not raw.startswith(b"["):
                cut, put = (_first_split, _first_joined) if is_first else (_split, joined)
                value = self._changed_streams(raw, cut, put)
            elif (table, column) == ("blocks", "anchors") and _version(connection) >= CPU_VERSION:
                value = other_anchors(self._random, raw) or self._damaged(raw)
            elif table == "contents" or (table == "blocks" and (is_first or column == "others")):
                value = self._recompressed(raw)
            else:
                value = self._damaged(raw)
            self._put(connection, cell, value)

        return self._changed(change)

    def _changed_streams(
        self, raw: bytes, cut: Callable[[bytes], Streams], put: Callable[[Streams], bytes]
    ) -> bytes:
        """Modify one of the streams in a blob."""
        try:
            parts = list(cut(raw))
        except (OpwatchError, zlib.error):
            return self._damaged(raw)
        at = self._random.randrange(len(parts))
        parts[at] = self._damaged(parts[at])
        return put(tuple(parts))

    def _recompressed(self, raw: bytes) -> bytes:
        try:
            return deflated(self._damaged(_inflated(raw)))
        except zlib.error:
            return self._damaged(raw)

    def _damaged(self, raw: bytes) -> bytes:
        chance, changed = self._random, bytearray(raw)
        for _ in range(chance.randrange(1, 4)):
            at, kind = chance.randrange(len(changed) + 1), chance.random()
            if kind < 0.5:
                changed[at : at + 1] = bytes((chance.choice((0, 1, 127, 128, 255, chance.randrange(256))),))
            elif kind < 0.7:
                changed[at:at] = bytes(changed[at : at + 9]) * chance.choice((1, 40))
            elif kind < 0.8:
                changed[at:at] = b"\xff" * 9 + b"\x01"
            else:
                del changed[at : at + chance.randrange(9)]
        return bytes(changed)

    def _documents(self) -> bytes:
        """Replace values within documents by others of any type."""

        def change(connection: sqlite3.Connection) -> None:
            table, column, where = self._random.choice(
                (
                    ("entries", "body", ""),
                    ("facts", "body", ""),
                    ("events", "words", "WHERE words LIKE '{%'"),
                    ("shapes", "fields", ""),
                    ("tail", "body", f"WHERE place = {OTHERS}"),
                    ("blocks", "others", "WHERE length(others)"),
                    ("header", "value", "WHERE value LIKE '[%'"),
                )
            )
            rows = connection.execute(f"SELECT rowid, {column} FROM {table} {where}").fetchall()
            if rows:
                row, value = self._random.choice(rows)
                self._put(connection, (table, column, row, value), self._other_document(table, value))

        return self._changed(change)

    def _other_document(self, table: str, value: Any) -> Any:  # noqa: ANN401
        try:
            text = _inflated(value) if table == "blocks" else value
            lines = text.split(b"\n") if table == "blocks" else [text]
            documents = [json.loads(line) for line in lines]
        except (ValueError, zlib.error, TypeError, AttributeError):
            return value
        at = self._random.randrange(len(documents))
        documents[at] = self._other(documents[at])
        raw = b"\n".join(json.dumps(document).encode() for document in documents)
        if table == "blocks":
            return deflated(raw)
        return raw if table == "tail" else raw.decode()

    def _other(self, plain: Any) -> Any:  # noqa: ANN401
        """Return the document with one value replaced at any depth."""
        chance = self._random
        if isinstance(plain, dict) and plain and chance.random() < 0.9:
            name = chance.choice(list(plain))
            return plain | {name: self._other(plain[name])}
        if not isinstance(plain, list) or not plain or chance.random() < 0.15:
            return chance.choice(_PLAIN)
        changed = list(plain)
        at = chance.randrange(len(changed))
        kind = chance.random()
        if kind < 0.1:
            del changed[at]
        elif kind < 0.2:
            changed.insert(at, chance.choice(_PLAIN))
        else:
            changed[at] = self._other(changed[at])
        return changed

    def _tables(self) -> bytes:
        """Add foreign tables, or change the form of ours."""

        def change(connection: sqlite3.Connection) -> None:
            table = self._random.choice(tables(_version(connection)))
            statement = self._random.choice(
                (
                    f"DROP TABLE IF EXISTS {table}",
                    f"ALTER TABLE {table} ADD COLUMN more",
                    f"CREATE TABLE IF NOT EXISTS other_{table} (x)",
                    f"CREATE TRIGGER IF NOT EXISTS t AFTER INSERT ON {table} BEGIN DELETE FROM {table}; END",
                    f"CREATE VIEW IF NOT EXISTS v AS SELECT * FROM {table}",
                    f"CREATE INDEX IF NOT EXISTS i ON {table} ({columns(table)[0]})",
                    "PRAGMA user_version = 1",
                    "PRAGMA user_version = 2",
                    "PRAGMA user_version = 3",
                    "PRAGMA user_version = 4",
                    "PRAGMA application_id = 7",
                )
            )
            try:
                connection.execute(statement)
            except sqlite3.OperationalError:
                return

        return self._changed(change)


class _Nowhere(io.StringIO):
    """Discards all output."""

    def write(self, text: str) -> int:
        return len(text)


_SINKS: tuple[Callable[[TextIO], Sink], ...] = (Lines, JsonLines)


def look_at(path: Path, sink: Sink) -> None:
    """Show all readable content of a recording."""
    recording = RecordedRun(path)
    try:
        story = Story()
        for entry in ended(recording.entries()):
            for news in story.take(entry):
                if isinstance(news, Event):
                    sink.tell(news)
                else:
                    sink.write(news)
        beside(recording)
        command_cpu(recording)
        list(kept_notes(recording))
        if is_of_waf(recording):
            recorded_waf(recording, Catalogue(())).outcome()
        for audited in recorded_audits(recording):
            if isinstance(audited, SeenAudit):
                write_json([ledger.audit(audited.evidence, audited.subject)], _Nowhere())
    finally:
        recording.close()


def _version(connection: sqlite3.Connection) -> int:
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return version


def _inflated(raw: bytes) -> bytes:
    return zlib.decompress(raw, -15)


def _opened(raw: bytes) -> Streams:
    return opened(raw, "it")


def _split(raw: bytes) -> Streams:
    return split(raw, "it")


def _first_split(raw: bytes) -> Streams:
    return split_first(raw, "it")


def _first_joined(streams: Streams) -> bytes:
    return struct.pack("<4I", *map(len, streams)) + b"".join(streams)


def _first_opened(raw: bytes) -> Streams:
    return tuple(_inflated(part) if part else b"" for part in _first_split(raw))


def _first_closed(streams: Streams) -> bytes:
    return _first_joined(tuple(deflated(stream) if stream else b"" for stream in streams))


def _fast_folder() -> str | None:
    """Return a folder in memory if there is one, because each input is a file."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def main() -> int:
    return run_by_words(lambda inputs, seed: Fuzz(seed).run(inputs), 10000)


if __name__ == "__main__":
    sys.exit(main())
