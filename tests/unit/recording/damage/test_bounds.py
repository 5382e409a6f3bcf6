"""Files that claim far more content than they hold: memory for reading stays bounded by the file size."""

from __future__ import annotations

import sqlite3
import time
import tracemalloc
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from opwatch.errors import BadInput
from opwatch.fio.recorded import read_fio_report
from opwatch.recording.coding.blocks import compress_streams
from opwatch.recording.coding.columns import pack_columns
from opwatch.recording.coding.contents import deflate_content
from opwatch.recording.coding.times import CLOCKS
from opwatch.recording.coding.varints import put_change
from opwatch.recording.reading import stretches
from opwatch.recording.reading.notes import iterate_notes
from opwatch.recording.reading.opening import CheckedFile
from opwatch.recording.reading.reader import RecordedRun
from opwatch.recording.reading.stretches import max_samples, max_stream_bytes
from opwatch.recording.schema import NOTE, PAGE_BYTES, format_json
from opwatch.recording.writing.newfile import NewDatabase
from opwatch.recording.writing.writer import RecordingWriter
from opwatch.samples.entries import EventReported, IntervalEnded, RunEnded
from opwatch.samples.sample import DiskSample
from tests.fuzz.hostile.long_runs import shift_sample
from tests.unit.support.recordings import HEADER, generate_short_run, record_run, update_checksums
from tests.unit.support.runs import GeneratedRun, S, generate_run

MIB = 1 << 20


@contextmanager
def check_memory(most: int) -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < most
    finally:
        tracemalloc.stop()


def read_all(path: Path) -> None:
    with closing(RecordedRun(path)) as run:
        for _ in run.iter_entries():
            pass


def write_large_frames(path: Path, body: bytes, samples: int) -> None:
    """Give the first minute 500 disks, each with these streams."""
    record_run(path, generate_run(70))
    with closing(sqlite3.connect(path)) as connection, connection:
        [(fact,)] = connection.execute("SELECT fact FROM frames LIMIT 1").fetchall()
        connection.execute("DELETE FROM frames WHERE block = 1")
        for place in range(500):
            row = (1, place, fact, samples, body)
            connection.execute("INSERT INTO frames VALUES (?, ?, ?, ?, ?, 0)", row)
        connection.execute("UPDATE blocks SET frames = 500 WHERE block = 1")
        update_checksums(connection)


def test_minute_of_many_long_streams_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.opw"
    write_large_frames(path, compress_streams((b"", *[bytes(4 * MIB)] * 4)), samples=1)
    assert path.stat().st_size < 8 * MIB
    with (
        check_memory(200 * MIB),
        pytest.raises(BadInput, match=r"block 1 expands to .* bytes, more than the file allows"),
    ):
        read_all(path)


def test_minute_of_many_disks_with_many_samples_is_refused(tmp_path: Path) -> None:
    row = bytearray()
    put_change(row, 0)
    columns = pack_columns(bytes(row) * CLOCKS * 60_000, CLOCKS)
    body = compress_streams((bytes(row) * CLOCKS, b"", b"", b"", b""))
    # A constant column takes no bytes for its rows.
    body = bytes([len(columns)]) + body[1:5] + columns + body[5 + body[0] :]
    path = tmp_path / "run.opw"
    write_large_frames(path, body, samples=60_000)
    with check_memory(200 * MIB), pytest.raises(BadInput, match=r"block 1 has more than .* samples"):
        read_all(path)


def write_events(path: Path, sizes: Iterator[int]) -> None:
    database = NewDatabase(path)
    writer = RecordingWriter(database, HEADER)
    writer.begin_transaction()
    for size in sizes:
        writer.add_event("x", "x" * size, S)
    writer.commit()
    database.close()


def _read_integer(page: bytes, at: int) -> int:
    return int.from_bytes(page[at : at + 4])


def redirect_leaves(raw: bytearray, root: int) -> None:
    """Redirect every leaf pointer below this page to the first leaf."""

    def get_page(number: int) -> bytes:
        return bytes(raw[(number - 1) * PAGE_BYTES : number * PAGE_BYTES])

    def list_children(number: int) -> list[tuple[int, int]]:
        """Return the pointers of a page: (offset in the file, target page)."""
        page, begin = get_page(number), (number - 1) * PAGE_BYTES
        cells = [int.from_bytes(page[12 + 2 * at : 14 + 2 * at]) for at in range(int.from_bytes(page[3:5]))]
        return [(begin + cell, _read_integer(page, cell)) for cell in cells]

    leaf = root
    while get_page(leaf)[0] == 5:
        leaf = list_children(leaf)[0][1]
    waiting = [root]
    while waiting:
        for at, child in list_children(waiting.pop()):
            if get_page(child)[0] == 5:
                waiting.append(child)
            else:
                raw[at : at + 4] = leaf.to_bytes(4)


def redirect_events(path: Path) -> None:
    """Redirect all pointers of the table `events` to its first row."""
    with closing(sqlite3.connect(path)) as connection:
        [(root,)] = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'events'").fetchall()
    raw = bytearray(path.read_bytes())
    assert len(raw) < 3 * MIB
    redirect_leaves(raw, root)
    path.write_bytes(raw)


def test_row_with_many_pointers_is_read_only_once(tmp_path: Path) -> None:
    path = tmp_path / "run.opw"
    write_events(path, iter([2 * MIB, *[300] * 400]))
    redirect_events(path)
    with check_memory(20 * MIB), closing(RecordedRun(path)) as run:
        assert [len(event.words) for event in run.events] == [2 * MIB, *[300] * 400]


def test_many_clocks_and_notes_are_read_in_linear_time(tmp_path: Path) -> None:
    path = tmp_path / "run.opw"
    record_run(path, generate_run(3))
    with closing(sqlite3.connect(path)) as connection, connection:
        clocks = ((at, 10**18 + 2 * at, 1, 0) for at in range(100_000))
        connection.executemany("INSERT INTO clocks VALUES (?, ?, ?, ?)", clocks)
        notes = ((1, 5 * at, NOTE, "a note", None, 0) for at in range(1, 20_001))
        connection.executemany("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?)", notes)
        update_checksums(connection)
    begin = time.process_time()
    with closing(RecordedRun(path)) as run:
        notes_there = list(iterate_notes(run))
    assert time.process_time() - begin < 5
    assert len(notes_there) == 20_000
    assert notes_there[7].at
    # By the last reading of both clocks before the note.
    assert round(notes_there[7].at.timestamp() * 1e9) == pytest.approx(10**18 + 2 * 40, abs=1000)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "run.opw"
    record_run(path, generate_short_run())
    return path


def execute_change(path: Path, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        assert connection.execute(statement, values).rowcount
        update_checksums(connection)


def replace_others(path: Path, raw: bytes) -> None:
    """Replace the other bodies of the first minute."""
    execute_change(path, "UPDATE blocks SET others = ? WHERE block = 1", deflate_content(raw))


@pytest.mark.parametrize("name", ["ops", "counters"])
def test_samples_of_very_many_counters_are_refused(small: Path, name: str) -> None:
    names = format_json([f"x{number}" for number in range(1000)])
    execute_change(small, "UPDATE header SET value = ? WHERE name = ?", names, name)
    with check_memory(20 * MIB), pytest.raises(BadInput, match=f"table header, {name}"):
        read_all(small)


def test_minute_of_very_many_entries_is_refused(small: Path) -> None:
    replace_others(small, b"\n".join(b"[%d," % number for number in range(1_500_000)))
    with check_memory(60 * MIB), pytest.raises(BadInput, match=r"has more than .* entries"):
        read_all(small)


@pytest.mark.manual
def test_poll_with_very_many_large_answers_is_refused(tmp_path: Path) -> None:
    path, run = tmp_path / "run.opw", GeneratedRun(1)
    look = run.make_poll_entry("nvme0n1", 1)
    answers = [
        replace(look.sample.answers[0], answer=number.to_bytes(2) + bytes(4 * MIB - 2))
        for number in range(60)
    ]
    record_run(
        path, [run.add_disk(0, "nvme0n1"), replace(look, sample=replace(look.sample, answers=tuple(answers)))]
    )
    with check_memory(150 * MIB), pytest.raises(BadInput, match="contents expand to more bytes"):
        read_all(path)


def test_slow_request_that_is_referenced_twice_is_refused(small: Path) -> None:
    with closing(sqlite3.connect(small)) as connection:
        [(raw,)] = connection.execute("SELECT others FROM blocks WHERE block = 2").fetchall()
    lines = zlib.decompress(raw, -15).split(b"\n")
    [at] = [at for at, line in enumerate(lines) if b'"SlowRequestsSeen"' in line and b"[1,2," in line]
    lines[at] = lines[at].replace(b"[1,2,", b"[1,1,")
    execute_change(small, "UPDATE blocks SET others = ? WHERE block = 2", deflate_content(b"\n".join(lines)))
    with pytest.raises(BadInput, match="slow request 1 out of order, after 1"):
        read_all(small)


def test_very_many_entries_that_were_not_compressed_are_refused(small: Path) -> None:
    with closing(sqlite3.connect(small)) as connection, connection:
        rows = ((number, 0, 1, b"\0\0\0\0\0", 0) for number in range(100, 80_000))
        connection.executemany("INSERT INTO tail VALUES (?, ?, ?, ?, ?)", rows)
        update_checksums(connection)
    with check_memory(40 * MIB), pytest.raises(BadInput, match=r"table tail has more than .* rows"):
        read_all(small)


def test_very_many_rare_entries_are_refused(small: Path) -> None:
    with closing(sqlite3.connect(small)) as connection, connection:
        [(last,)] = connection.execute("SELECT max(last) FROM blocks").fetchall()
        rows = ((number, "ProgramsSkipped", 1, "[5]", 0) for number in range(last + 1, last + 40_000))
        connection.executemany("INSERT INTO entries VALUES (?, ?, ?, ?, ?)", rows)
        update_checksums(connection)
    with check_memory(40 * MIB), pytest.raises(BadInput, match=r"a minute has more than .* entries"):
        read_all(small)


def test_report_of_fio_that_takes_much_memory_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.opw"
    report = b'{"fio version": "fio-3.33", "jobs": [' + b",".join([b"{}"] * 1_000_000) + b"]}"
    database = NewDatabase(path)
    writer = RecordingWriter(database, HEADER)
    writer.begin_transaction()
    writer.add_file("fio/report.json", report, S)
    writer.commit()
    database.close()
    refused = pytest.raises(BadInput, match="more than 96 MiB of memory")
    with closing(RecordedRun(path)) as run, check_memory(40 * MIB), refused:
        read_fio_report(run)


@pytest.mark.parametrize("room", ["_SAMPLES", "_STREAMS"])
def test_more_samples_than_a_file_has_room_for_are_refused(
    small: Path, monkeypatch: pytest.MonkeyPatch, room: str
) -> None:
    read_all(small)
    bound = max_samples if room == "_SAMPLES" else max_stream_bytes
    with closing(CheckedFile(small)) as file:
        monkeypatch.setattr(stretches, room, getattr(stretches, room) - bound(file) + 4)
    with pytest.raises(BadInput, match=r"more than the file allows|than fit into the file"):
        read_all(small)


def test_many_idle_disks_stay_within_the_bounds_of_their_file(tmp_path: Path) -> None:
    """Imported disks without requests have the smallest samples."""
    path, run = tmp_path / "run.opw", GeneratedRun(1)
    began = [run.add_disk(place, f"sd{place}") for place in range(24)]
    samples = {place: one.sample for place, one in enumerate(began)}

    def shift_samples(second: int) -> dict[int, DiskSample]:
        return {place: shift_sample(sample, second * S) for place, sample in samples.items()}

    entries = [replace(one, sample=shift_samples(0)[one.place], discards=None, owners=None) for one in began]
    record_run(
        path,
        [
            *entries,
            *(IntervalEnded(shift_samples(second)) for second in range(1, 300)),
            RunEnded(shift_samples(300)),
        ],
    )
    read_all(path)


def test_page_that_claims_too_much_memory_is_damaged(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite raises MemoryError for some damaged schema pages."""

    def raise_memory_error(*_: object) -> None:
        raise MemoryError

    with closing(RecordedRun(small)) as run:
        entries = list(run.iter_entries())
    monkeypatch.setattr(CheckedFile, "_check_tables", raise_memory_error)
    with closing(RecordedRun(small)) as run:
        # The rows come from the pages, behind an event with the damage.
        first, *rest = run.iter_entries()
        assert isinstance(first, EventReported)
        assert "a page claims more" in first.event.text
        assert rest == entries


@pytest.mark.parametrize("name", ["run.opw", "run.opw-wal"])
def test_sparse_holes_do_not_raise_the_limits(small: Path, name: str) -> None:
    with small.with_name(name).open("ab") as file:
        file.truncate(5 << 30)
    with closing(CheckedFile(small)) as checked:
        assert checked.size < MIB
