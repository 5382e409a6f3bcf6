"""Files that stand for far more than they have: what is read of them is bounded by their size."""

from __future__ import annotations

import sqlite3
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from opwatch.errors import BadInput
from opwatch.recording.coding.blocks import compressed
from opwatch.recording.coding.columns import packed
from opwatch.recording.coding.times import CLOCKS
from opwatch.recording.coding.varints import put_change
from opwatch.recording.reading.notes import kept_notes
from opwatch.recording.reading.reader import RecordedRun
from opwatch.recording.schema import NOTE, PAGE_BYTES
from opwatch.recording.writing.newfile import NewDatabase
from opwatch.recording.writing.writer import RecordingWriter
from tests.unit.support.recordings import HEADER, record, sealed
from tests.unit.support.runs import S, a_run

MIB = 1 << 20


@contextmanager
def memory_below(most: int) -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < most
    finally:
        tracemalloc.stop()


def read_all(path: Path) -> None:
    with closing(RecordedRun(path)) as run:
        for _ in run.entries():
            pass


def with_frames(path: Path, body: bytes, samples: int) -> None:
    """Give the first minute 500 disks, each with these streams."""
    record(path, a_run(70))
    with closing(sqlite3.connect(path)) as connection, connection:
        [(fact,)] = connection.execute("SELECT fact FROM frames LIMIT 1").fetchall()
        connection.execute("DELETE FROM frames WHERE block = 1")
        for place in range(500):
            row = (1, place, fact, samples, body)
            connection.execute("INSERT INTO frames VALUES (?, ?, ?, ?, ?, 0)", row)
        connection.execute("UPDATE blocks SET frames = 500 WHERE block = 1")
        sealed(connection)


def test_minute_of_many_long_streams_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.opw"
    with_frames(path, compressed((b"", *[bytes(4 * MIB)] * 4)), samples=1)
    assert path.stat().st_size < 8 * MIB
    with memory_below(200 * MIB), pytest.raises(BadInput, match=r"block 1 stands for more than .* bytes"):
        read_all(path)


def test_minute_of_many_disks_with_many_samples_is_refused(tmp_path: Path) -> None:
    row = bytearray()
    put_change(row, 0)
    columns = packed(bytes(row) * CLOCKS * 60_000, CLOCKS)
    body = compressed((bytes(row) * CLOCKS, b"", b"", b"", b""))
    # A column that never changes takes no room for its rows.
    body = bytes([len(columns)]) + body[1:5] + columns + body[5 + body[0] :]
    path = tmp_path / "run.opw"
    with_frames(path, body, samples=60_000)
    with memory_below(200 * MIB), pytest.raises(BadInput, match=r"block 1 has more than .* samples"):
        read_all(path)


def events_of(path: Path, sizes: Iterator[int]) -> None:
    database = NewDatabase(path)
    writer = RecordingWriter(database, HEADER)
    writer.begin()
    for size in sizes:
        writer.event("x", "x" * size, S)
    writer.commit()
    database.close()


def _numbered(page: bytes, at: int) -> int:
    return int.from_bytes(page[at : at + 4])


def first_leaf_everywhere(raw: bytearray, root: int) -> None:
    """Let every pointer to a leaf below this page point to the first one."""

    def page_at(number: int) -> bytes:
        return bytes(raw[(number - 1) * PAGE_BYTES : number * PAGE_BYTES])

    def children(number: int) -> list[tuple[int, int]]:
        """Where in the file the pointers of a page are, and where they lead to."""
        page, begin = page_at(number), (number - 1) * PAGE_BYTES
        cells = [int.from_bytes(page[12 + 2 * at : 14 + 2 * at]) for at in range(int.from_bytes(page[3:5]))]
        return [(begin + cell, _numbered(page, cell)) for cell in cells]

    leaf = root
    while page_at(leaf)[0] == 5:
        leaf = children(leaf)[0][1]
    waiting = [root]
    while waiting:
        for at, child in children(waiting.pop()):
            if page_at(child)[0] == 5:
                waiting.append(child)
            else:
                raw[at : at + 4] = leaf.to_bytes(4)


def test_many_pointers_to_one_row_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.opw"
    events_of(path, iter([2 * MIB, *[300] * 400]))
    with closing(sqlite3.connect(path)) as connection:
        [(root,)] = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'events'").fetchall()
    raw = bytearray(path.read_bytes())
    assert len(raw) < 3 * MIB
    first_leaf_everywhere(raw, root)
    path.write_bytes(raw)
    with memory_below(20 * MIB), pytest.raises(BadInput, match="table events"):
        read_all(path)


def test_many_clocks_and_notes_are_read_in_the_time_of_their_number(tmp_path: Path) -> None:
    path = tmp_path / "run.opw"
    record(path, a_run(3))
    with closing(sqlite3.connect(path)) as connection, connection:
        clocks = ((at, 10**18 + 2 * at, 1, 0) for at in range(100_000))
        connection.executemany("INSERT INTO clocks VALUES (?, ?, ?, ?)", clocks)
        notes = ((1, 5 * at, NOTE, "a note", None, 0) for at in range(1, 20_001))
        connection.executemany("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?)", notes)
        sealed(connection)
    begin = time.process_time()
    with closing(RecordedRun(path)) as run:
        notes_there = list(kept_notes(run))
    assert time.process_time() - begin < 5
    assert len(notes_there) == 20_000
    assert notes_there[7].at
    # By the last reading of both clocks before it.
    assert round(notes_there[7].at.timestamp() * 1e9) == pytest.approx(10**18 + 2 * 40, abs=1000)
