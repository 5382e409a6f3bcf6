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
import sys
import tempfile
import time
import zlib
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

from opwatch.blame.history import MAX_NAMED, build_owned_history
from opwatch.counters.catalogue.families import Catalogue
from opwatch.errors import OpwatchError
from opwatch.fio.comparison import compare_with_fio
from opwatch.ftl.drive import ServiceOp
from opwatch.ftl.recorded import iter_records, scale_requests
from opwatch.recording.coding.audits import SeenAudit
from opwatch.recording.coding.blocks import compress_columns, expand_columns, join_streams, split_streams
from opwatch.recording.coding.contents import deflate_content
from opwatch.recording.coding.frames import Streams
from opwatch.recording.coding.free_space import FREE_ROW
from opwatch.recording.coding.requests import decode_requests, encode_requests
from opwatch.recording.reading.command import find_command_cpu
from opwatch.recording.reading.history import read_free_space, read_history_file, read_requests
from opwatch.recording.reading.notes import iterate_notes
from opwatch.recording.reading.reader import RecordedRun
from opwatch.recording.reading.window import close_run
from opwatch.recording.schema import OTHERS, PAGE_BYTES, TABLES, list_columns
from opwatch.samples.observation import Event, Sink
from opwatch.samples.presenter import RunPresenter
from opwatch.sinks.jsonl import JsonLines
from opwatch.sinks.lines import TextLines
from opwatch.sinks.trim_audit import write_json
from opwatch.sinks.writes import build_writes_document
from opwatch.sweep.replay import prepare_requests
from opwatch.tools.runs.audit_recorder import read_audits
from opwatch.tools.runs.waf_outcome import is_waf_recording, read_waf
from opwatch.tools.runs.writes_recorder import is_writes_recording, read_writes
from opwatch.trim.audit import ledger
from opwatch.trim.history.requests import RequestRow
from tests.unit.support.recordings import update_checksums

from .history import check_map
from .recorded_anchors import change_anchors
from .rules import RefusedOrValid, run_from_arguments

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
_UNIT_BYTES = 4096
# Table, column, row, value.
Cell = tuple[str, str, int, Any]


class RecordingFuzzer:
    """Sequence of inputs from a seed, or from `chance`."""

    def __init__(self, seed: int, chance: random.Random | None = None) -> None:
        self._random = chance or random.Random(seed)
        self._requests = gzip.decompress((GOOD / "1-requests.opw.gz").read_bytes())
        self._good = [gzip.decompress(path.read_bytes()) for path in sorted(GOOD.glob("*.opw.gz"))]
        self.targets: dict[str, Callable[[], bytes]] = {
            "bytes": self._make_damaged_file,
            "values": self._change_values,
            "rows": self._rearrange_rows,
            "blobs": self._change_blobs,
            "documents": self._change_documents,
            "requests": self._change_requests,
            "tables": self._change_tables,
        }

    def run_inputs(self, inputs: int, only: str | None = None) -> None:
        """Run this many inputs. Raises at the first failure."""
        names = [only] if only else list(self.targets)
        with tempfile.TemporaryDirectory(dir=_find_fast_folder()) as folder:
            path = Path(folder) / "it.opw"
            sound_s = self._time_valid_file(path)
            for _ in range(inputs):
                name = self._random.choice(names)
                path.write_bytes(self.targets[name]())
                with RefusedOrValid(f"recording, {name}", sound_s):
                    show_recording(path, self._random.choice(_SINKS)(_NullOutput()))

    def _time_valid_file(self, path: Path) -> float:
        """Return the CPU seconds to show the most expensive valid file, after its imports."""
        costs = []
        for good in self._good:
            path.write_bytes(good)
            for make_sink in _SINKS:
                show_recording(path, make_sink(_NullOutput()))
                begin = time.thread_time()
                show_recording(path, make_sink(_NullOutput()))
                costs.append(time.thread_time() - begin)
        return max(costs)

    def _make_damaged_file(self) -> bytes:
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

    def _change_rows(self, change: Callable[[sqlite3.Connection], None]) -> bytes:
        """Return a valid file with modified rows."""
        return self._change_file(change, self._random.choice(self._good))

    def _change_file(self, change: Callable[[sqlite3.Connection], None], good: bytes) -> bytes:
        connection = sqlite3.connect(":memory:", isolation_level=None)
        try:
            connection.deserialize(good)
            for _ in range(self._random.randrange(1, 4)):
                change(connection)
            # A table may have been dropped.
            with contextlib.suppress(sqlite3.OperationalError):
                if self._random.random() < _SEALED:
                    update_checksums(connection)
            return bytes(connection.serialize())
        finally:
            connection.close()

    def _choose_cell(
        self, connection: sqlite3.Connection, kind: type | None = None
    ) -> tuple[str, str, int, Any] | None:
        """Return (table, column, row, value) of a random cell, of the given type if any."""
        table = self._random.choice([*TABLES])
        column = self._random.choice(list_columns(table))
        rows = connection.execute(f"SELECT rowid, {column} FROM {table}").fetchall()
        rows = [row for row in rows if kind is None or isinstance(row[1], kind)]
        return (table, column, *self._random.choice(rows)) if rows else None

    def _set_cell(self, connection: sqlite3.Connection, cell: Cell, value: Any) -> None:  # noqa: ANN401
        table, column, row, _ = cell
        try:
            connection.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (value, row))
        except (sqlite3.IntegrityError, OverflowError):
            return

    def _change_values(self) -> bytes:
        """Replace values by others of another type or size."""

        def change_cell(connection: sqlite3.Connection) -> None:
            cell = self._choose_cell(connection)
            if cell and isinstance(cell[3], int) and self._random.random() < 0.5:
                self._set_cell(connection, cell, cell[3] + self._random.choice((-1, 1, 2, 1000)))
            elif cell:
                self._set_cell(connection, cell, self._random.choice(_VALUES))

        return self._change_rows(change_cell)

    def _rearrange_rows(self) -> bytes:
        """Delete, duplicate or exchange rows."""

        def change_rows(connection: sqlite3.Connection) -> None:
            table, kind = self._random.choice([*TABLES]), self._random.random()
            if kind < 0.5:
                connection.execute(f"DELETE FROM {table} WHERE rowid % 3 = ?", (self._random.randrange(3),))
            elif kind < 0.8:
                names = ", ".join(list_columns(table))
                connection.execute(f"INSERT OR IGNORE INTO {table} SELECT {names} FROM {table} LIMIT 3")
            else:
                connection.execute(f"UPDATE OR IGNORE {table} SET rowid = rowid + 1 WHERE rowid % 2")

        return self._change_rows(change_rows)

    def _change_blobs(self) -> bytes:
        """Modify compressed data below the compression."""

        def change_blob(connection: sqlite3.Connection) -> None:
            cell = self._choose_cell(connection, bytes)
            if not cell or not cell[3]:
                return
            table, column, _, raw = cell
            if table == "frames":
                value = self._change_streams(raw, _open_streams, compress_columns)
            elif table == "tail" and len(raw) > 16 and column == "body" and not raw.startswith(b"["):
                value = self._change_streams(raw, _split_streams, join_streams)
            elif (table, column) == ("blocks", "anchors"):
                value = change_anchors(self._random, raw) or self._damage_bytes(raw)
            elif table == "contents" or (table, column) == ("blocks", "others"):
                value = self._damage_compressed(raw)
            else:
                value = self._damage_bytes(raw)
            self._set_cell(connection, cell, value)

        return self._change_rows(change_blob)

    def _change_streams(
        self, raw: bytes, cut: Callable[[bytes], Streams], put: Callable[[Streams], bytes]
    ) -> bytes:
        """Modify one of the streams in a blob."""
        try:
            parts = list(cut(raw))
        except (OpwatchError, zlib.error):
            return self._damage_bytes(raw)
        at = self._random.randrange(len(parts))
        parts[at] = self._damage_bytes(parts[at])
        return put(tuple(parts))

    def _damage_compressed(self, raw: bytes) -> bytes:
        try:
            return deflate_content(self._damage_bytes(_inflate_raw(raw)))
        except zlib.error:
            return self._damage_bytes(raw)

    def _damage_bytes(self, raw: bytes) -> bytes:
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

    def _change_documents(self) -> bytes:
        """Replace values within documents by others of any type."""

        def change_document(connection: sqlite3.Connection) -> None:
            table, column, where = self._random.choice(
                (
                    ("entries", "body", ""),
                    ("facts", "body", ""),
                    ("events", "words", "WHERE words LIKE '{%'"),
                    ("shapes", "fields", ""),
                    ("checkpoints", "body", ""),
                    ("tail", "body", f"WHERE place = {OTHERS}"),
                    ("blocks", "others", "WHERE length(others)"),
                    ("header", "value", "WHERE value LIKE '[%'"),
                )
            )
            rows = connection.execute(f"SELECT rowid, {column} FROM {table} {where}").fetchall()
            if rows:
                row, value = self._random.choice(rows)
                self._set_cell(connection, (table, column, row, value), self._change_json(table, value))

        return self._change_rows(change_document)

    def _change_json(self, table: str, value: Any) -> Any:  # noqa: ANN401
        try:
            text = _inflate_raw(value) if table == "blocks" else value
            lines = text.split(b"\n") if table == "blocks" else [text]
            documents = [json.loads(line) for line in lines]
        except (ValueError, zlib.error, TypeError, AttributeError):
            return value
        at = self._random.randrange(len(documents))
        documents[at] = self._replace_value(documents[at])
        raw = b"\n".join(json.dumps(document).encode() for document in documents)
        if table == "blocks":
            return deflate_content(raw)
        return raw if table == "tail" else raw.decode()

    def _replace_value(self, plain: Any) -> Any:  # noqa: ANN401
        """Return the document with one value replaced at any depth."""
        chance = self._random
        if isinstance(plain, dict) and plain and chance.random() < 0.9:
            name = chance.choice(list(plain))
            return plain | {name: self._replace_value(plain[name])}
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
            changed[at] = self._replace_value(changed[at])
        return changed

    def _change_requests(self) -> bytes:
        """Replace, add and remove requests of a history."""

        def change_row(connection: sqlite3.Connection) -> None:
            rows = connection.execute("SELECT * FROM contents WHERE content > ?", (FREE_ROW,)).fetchall()
            number, _, size, body, _ = self._random.choice(rows)
            # A row that was changed before may be invalid.
            with contextlib.suppress(OpwatchError):
                size, body = encode_requests(self._change_request(decode_requests(size, body, "it")))
                statement = "UPDATE contents SET size = ?, body = ? WHERE content = ?"
                connection.execute(statement, (size, body, number))

        return self._change_file(change_row, self._requests)

    def _change_request(self, row: RequestRow) -> RequestRow:
        """Return the row with other requests, or other times."""
        chance = self._random
        sectors, lengths, kinds = row.sectors[:], row.lengths[:], bytearray(row.kinds)
        at, kind = chance.randrange(len(kinds)), chance.random()
        if kind < 0.3:
            sectors[at] = chance.choice((0, sectors[at] + 7, (1 << 41) - 1, 1 << 41, (1 << 64) - 1))
        elif kind < 0.6:
            lengths[at] = chance.choice((0, 1, lengths[at] * 1000, (1 << 32) - 1))
        elif kind < 0.8:
            kinds[at] = chance.choice((*range(8), 255))
        elif kind < 0.9:
            for column in (sectors, lengths, kinds):
                del column[at:]
        else:
            row = row._replace(begin_ns=chance.choice((0, row.end_ns + 1, (1 << 64) - 1)))
        owners = self._choose_owners(len(kinds) if chance.random() < 0.9 else at)
        return row._replace(sectors=sectors, lengths=lengths, kinds=bytes(kinds), owners=owners)

    def _choose_owners(self, count: int) -> array[int]:
        """Return the places of this many owners, known or not, or none."""
        if self._random.random() < 0.3:
            return array("H")
        return array("H", self._random.choices((0, 1, 2, 999, (1 << 16) - 1), k=count))

    def _change_tables(self) -> bytes:
        """Add foreign tables, or change the form of ours."""

        def change_table(connection: sqlite3.Connection) -> None:
            table = self._random.choice([*TABLES])
            statement = self._random.choice(
                (
                    f"DROP TABLE IF EXISTS {table}",
                    f"ALTER TABLE {table} ADD COLUMN more",
                    f"CREATE TABLE IF NOT EXISTS other_{table} (x)",
                    f"CREATE TRIGGER IF NOT EXISTS t AFTER INSERT ON {table} BEGIN DELETE FROM {table}; END",
                    f"CREATE VIEW IF NOT EXISTS v AS SELECT * FROM {table}",
                    f"CREATE INDEX IF NOT EXISTS i ON {table} ({list_columns(table)[0]})",
                    "PRAGMA user_version = 2",
                    "PRAGMA application_id = 7",
                )
            )
            try:
                connection.execute(statement)
            except sqlite3.OperationalError:
                return

        return self._change_rows(change_table)


class _NullOutput(io.StringIO):
    """Discards all output."""

    def write(self, text: str) -> int:
        return len(text)


_SINKS: tuple[Callable[[TextIO], Sink], ...] = (TextLines, JsonLines)


def show_recording(path: Path, sink: Sink) -> None:
    """Show all readable content of a recording."""
    try:
        recording = RecordedRun(path)
    except OpwatchError:
        _show_history(path)
        return
    try:
        story = RunPresenter()
        for entry in close_run(recording.iter_entries()):
            for news in story.process_entry(entry):
                if isinstance(news, Event):
                    sink.write_event(news)
                else:
                    sink.write_observation(news)
        compare_with_fio(recording)
        find_command_cpu(recording)
        list(iterate_notes(recording))
        if is_waf_recording(recording):
            read_waf(recording, Catalogue(())).make_outcome()
        if is_writes_recording(recording):
            for outcome in read_writes(recording):
                build_writes_document(outcome)
        for audited in read_audits(recording):
            if isinstance(audited, SeenAudit):
                write_json([ledger.build_audit(audited.evidence, audited.subject)], _NullOutput())
    finally:
        recording.close()


def _show_history(path: Path) -> None:
    """Read a history, and check what a model drive would repeat."""
    saved, _ = read_history_file(path)
    check_map(saved.map)
    # Older histories have no requests, and their maps are read all the same.
    with contextlib.suppress(OpwatchError):
        read_free_space(path)
        saved, recorded = read_requests(path)
        assert len(recorded.owners) in (0, len(recorded.kinds))
        requests = prepare_requests(recorded)
        scaled = scale_requests(requests, 1 << 10, _UNIT_BYTES)
        assert 0 < scaled.units <= 1 << 10
        written = 0
        for op, offset, length in iter_records(scaled.records):
            assert offset + length <= scaled.units * _UNIT_BYTES
            written += length if op is ServiceOp.WRITE else 0
        assert written == scaled.pass_bytes
        # Any place may be in a row, and an owner without a name belongs to the rest.
        names = dict(enumerate(saved.look.owners, 1))
        owned = build_owned_history("it", recorded, None, names)
        assert sum(owned.host_bytes) == requests.written_bytes and len(owned.names) <= MAX_NAMED + 1


def _inflate_raw(raw: bytes) -> bytes:
    return zlib.decompress(raw, -15)


def _open_streams(raw: bytes) -> Streams:
    return expand_columns(raw, "it")


def _split_streams(raw: bytes) -> Streams:
    return split_streams(raw, "it")


def _find_fast_folder() -> str | None:
    """Return a folder in memory if there is one, because each input is a file."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def main() -> int:
    return run_from_arguments(lambda inputs, seed: RecordingFuzzer(seed).run_inputs(inputs), 10000)


if __name__ == "__main__":
    sys.exit(main())
