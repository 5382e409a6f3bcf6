"""Recordings that lost pages which lead to others, or their end: the rows that are still there are shown."""

from __future__ import annotations

import collections
import contextlib
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from opwatch.errors import BadInput
from opwatch.recording.reading.opening import DamagedError
from opwatch.recording.reading.reader import RecordedRun
from opwatch.recording.reading.salvage import collect_rows
from opwatch.recording.schema import CHECK, INDEXES, PAGE_BYTES, TABLES, compute_row_check, has_check
from opwatch.samples.entries import EventReported, RunEnded, RunEntry
from opwatch.samples.entry_parts import get_samples
from opwatch.samples.sample import DiskSample
from opwatch.tools import cli
from tests.unit.support.recordings import record_run
from tests.unit.support.runs import GeneratedRun, generate_run

Known = dict[tuple[int, int], DiskSample]
_INTERIOR = (2, 5)


def read(path: Path) -> list[RunEntry]:
    with closing(RecordedRun(path)) as run:
        return list(run.iter_entries())


def samples_of(entries: list[RunEntry]) -> Known:
    return {
        (place, sample.reading.sample.end_ns): sample
        for entry in entries
        for place, sample in get_samples(entry).items()
    }


def gaps(entries: list[RunEntry]) -> list[str]:
    return [
        entry.event.text
        for entry in entries
        if isinstance(entry, EventReported) and entry.event.kind == "damaged"
    ]


def long_run() -> Iterator[RunEntry]:
    """Two disks for eight minutes, a sample every three seconds."""
    run = GeneratedRun(7)
    yield run.add_disk(0, "nvme0n1")
    yield run.add_disk(1, "sda")
    for number in range(160):
        run.advance_time(2)
        yield run.make_interval_entry([0, 1])
        if number % 15 == 0:
            yield run.make_poll_entry("nvme0n1", number)
    yield run.make_end_entry([0, 1])


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("whole") / "run.opw"
    record_run(path, long_run())
    return path


@pytest.fixture(scope="module")
def good(whole: Path) -> Known:
    return samples_of(read(whole))


def page_of(raw: bytes, number: int) -> bytes:
    return raw[(number - 1) * PAGE_BYTES : number * PAGE_BYTES]


def inner_pages(path: Path, names: list[str]) -> list[int]:
    """The roots of tables and indexes, and all interior pages below them."""
    raw, inner = path.read_bytes(), []
    with closing(sqlite3.connect(path)) as connection:
        roots = dict(connection.execute("SELECT name, rootpage FROM sqlite_schema"))
    waiting = [roots[name] for name in names]
    while waiting:
        number = waiting.pop()
        page = page_of(raw, number)
        inner.append(number)
        if page[0] in _INTERIOR:
            cells = [
                int.from_bytes(page[12 + 2 * at : 14 + 2 * at]) for at in range(int.from_bytes(page[3:5]))
            ]
            children = [int.from_bytes(page[cell : cell + 4]) for cell in cells]
            children.append(int.from_bytes(page[8:12]))
            waiting += [child for child in children if page_of(raw, child)[0] in _INTERIOR]
    return inner


def rows_left(whole: Path, length: int, path: Path) -> dict[str, set[int]]:
    """The rows of each table that need no page after this length, apart from interior pages. SQLite finds
    them in a file that still has all interior pages."""
    raw, interior = whole.read_bytes(), inner_pages(whole, [*TABLES])
    kept = bytearray(raw[:length] + bytes(len(raw) - length))
    for number in interior:
        page = page_of(raw, number)
        if page[0] in _INTERIOR:
            kept[(number - 1) * PAGE_BYTES : number * PAGE_BYTES] = page
    children = [int.from_bytes(raw[108:112])]
    cells = [int.from_bytes(raw[112 + 2 * at : 114 + 2 * at]) for at in range(int.from_bytes(raw[103:105]))]
    for number in [1, *children, *(int.from_bytes(raw[cell : cell + 4]) for cell in cells)]:
        # The schema.
        kept[(number - 1) * PAGE_BYTES : number * PAGE_BYTES] = page_of(raw, number)
    path.write_bytes(kept)
    left: dict[str, set[int]] = {}
    with closing(sqlite3.connect(whole)) as good, closing(sqlite3.connect(path)) as cut:
        for table in filter(has_check, TABLES):
            left[table] = set()
            for rowid, *row in good.execute(f"SELECT rowid, * FROM {table}"):
                with contextlib.suppress(sqlite3.DatabaseError):
                    there = cut.execute(
                        f"SELECT * FROM {table} NOT INDEXED WHERE rowid = ?", (rowid,)
                    ).fetchone()
                    if there == tuple(row):
                        left[table].add(rowid)
    return left


SHARES = (0.08, 0.16, 0.25, 0.35, 0.45, 0.55, 0.65, 0.75, 0.85, 0.95)


@pytest.mark.parametrize("share", SHARES)
def test_every_row_that_is_left_of_a_cut_file_is_collected(whole: Path, tmp_path: Path, share: float) -> None:
    path, length = tmp_path / "cut.opw", int(whole.stat().st_size * share) // PAGE_BYTES * PAGE_BYTES
    path.write_bytes(whole.read_bytes()[:length])
    left = rows_left(whole, length, tmp_path / "oracle")
    with closing(sqlite3.connect(whole)) as good, closing(collect_rows(path, length)) as there:
        for table, rowids in left.items():
            rows = set(there.execute(f"SELECT rowid, * FROM {table}"))
            assert rows <= set(good.execute(f"SELECT rowid, * FROM {table}"))
            if table != "entries":
                assert {row[0] for row in rows} == rowids, table
    assert sum(map(len, left.values())) > 20


@pytest.mark.parametrize(("table", "column"), [("blocks", "last"), ("frames", "block")])
def test_rows_with_text_in_place_of_a_number_are_left_out(
    whole: Path, tmp_path: Path, table: str, column: str
) -> None:
    path = tmp_path / "typed.opw"
    shutil.copy(whole, path)
    with closing(sqlite3.connect(path)) as typed:
        rowid = typed.execute(f"SELECT max(rowid) FROM {table}").fetchone()[0]
        typed.execute(f"UPDATE {table} SET {column} = 'x' WHERE rowid = ?", (rowid,))
        row = typed.execute(f"SELECT * FROM {table} WHERE rowid = ?", (rowid,)).fetchone()
        check = (compute_row_check(table, row[:-1]), rowid)
        typed.execute(f"UPDATE {table} SET {CHECK.split()[0]} = ? WHERE rowid = ?", check)
        typed.commit()
    with closing(collect_rows(path, path.stat().st_size)) as there:
        rowids = {row[0] for row in there.execute(f"SELECT rowid FROM {table}")}
    assert rowid not in rowids


@pytest.mark.parametrize("share", SHARES)
def test_cut_file_shows_all_whole_minutes_before_the_cut(
    whole: Path, good: Known, tmp_path: Path, share: float
) -> None:
    path, raw = tmp_path / "cut.opw", whole.read_bytes()
    length = int(len(raw) * share)
    path.write_bytes(raw[:length])
    left = rows_left(whole, length, tmp_path / "oracle")
    with closing(sqlite3.connect(whole)) as connection:
        [(header,)] = connection.execute("SELECT count(*) FROM header")
        needed = collections.defaultdict(set)
        for rowid, block in connection.execute("SELECT rowid, block FROM frames"):
            needed[block].add(rowid)
        # An entry cannot be read without the field names of its class.
        classes = "SELECT number, shapes.rowid FROM entries JOIN shapes ON class = kind"
        unreadable = {number for number, rowid in connection.execute(classes) if rowid not in left["shapes"]}
        times = [
            (begin, end)
            for block, first, last, begin, end in connection.execute(
                "SELECT block, first, last, begin_ns, end_ns FROM blocks"
            )
            if block in left["blocks"]
            and needed[block] <= left["frames"]
            and unreadable.isdisjoint(range(first, last + 1))
        ]
    if len(left["header"]) < header:
        with pytest.raises(BadInput, match=r"table header, .* is missing"):
            RecordedRun(path)
        return
    with closing(RecordedRun(path)) as run:
        entries = []
        with contextlib.suppress(DamagedError):
            for entry in run.iter_entries():
                entries.append(entry)
    there = samples_of(entries)
    assert f"its last {len(raw) - length} bytes are missing" in gaps(entries)[0]
    assert all(good[key] == sample for key, sample in there.items())
    wanted = {key for key in good if any(begin <= key[1] <= end for begin, end in times)}
    assert wanted <= there.keys()
    assert there == good or len(gaps(entries)) >= 2


@pytest.mark.parametrize("table", [*TABLES, *INDEXES])
@pytest.mark.parametrize("kind", ["zeros", "flips"])
def test_values_are_right_and_nearly_all_there_without_an_interior_page(
    whole: Path, good: Known, tmp_path: Path, table: str, kind: str
) -> None:
    raw, path = whole.read_bytes(), tmp_path / "run.opw"
    pages = inner_pages(whole, [table])
    for number in pages[:: max(1, len(pages) // 4)]:
        page = bytearray(page_of(raw, number))
        if kind == "zeros":
            page = bytearray(PAGE_BYTES)
        else:
            page[8:24] = bytes(byte ^ 0x15 for byte in page[8:24])
        is_leaf = raw[(number - 1) * PAGE_BYTES] not in _INTERIOR
        path.write_bytes(raw[: (number - 1) * PAGE_BYTES] + page + raw[number * PAGE_BYTES :])
        if is_leaf and table in ("header", "shapes", "facts", "blocks"):
            # It held all rows of the table.
            with pytest.raises(BadInput, match=table):
                read(path)
            continue
        entries = read(path)
        there = samples_of(entries)
        assert all(good[key] == sample for key, sample in there.items())
        assert len(there) == len(good) or gaps(entries)
        # Each minute has a sample of the drive, which needs the contents.
        assert len(there) > 0.8 * len(good) or (is_leaf and table == "contents")
        if not is_leaf:
            assert gaps(entries)
            assert there == good
            assert isinstance(entries[-1], RunEnded)


def test_file_without_its_first_page_is_read(whole: Path, good: Known, tmp_path: Path) -> None:
    path = tmp_path / "run.opw"
    path.write_bytes(bytes(PAGE_BYTES) + whole.read_bytes()[PAGE_BYTES:])
    entries = read(path)
    assert samples_of(entries) == good
    assert len(gaps(entries)) == 1


def test_replay_shows_a_file_without_the_root_of_its_frames(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, raw = tmp_path / "run.opw", whole.read_bytes()
    root = inner_pages(whole, ["frames"])[0]
    path.write_bytes(raw[: (root - 1) * PAGE_BYTES] + bytes(PAGE_BYTES) + raw[root * PAGE_BYTES :])
    lines = []
    for one in (whole, path):
        assert cli.main(["replay", "--json", str(one), "60"]) == 0
        lines.append([line for line in capsys.readouterr().out.splitlines() if '"interval"' in line])
    assert lines[0]
    assert lines[0] == lines[1]


@pytest.mark.parametrize("command", [["replay"], ["dump", "-O", "csv"], ["report"], ["compare"]])
def test_each_command_reports_the_missing_end_once(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    path, raw = tmp_path / "cut.opw", whole.read_bytes()
    path.write_bytes(raw[: len(raw) * 19 // 20])
    more = {"report": ["-o", str(tmp_path / "run.html")], "compare": [str(whole)]}.get(command[0], [])
    assert cli.main([*command, str(path), *more]) == 0
    out, err = capsys.readouterr()
    lost = f"its last {len(raw) - path.stat().st_size} bytes are missing"
    assert (out + err).count(lost) == 1


def test_file_without_the_row_of_its_end_is_not_reported_as_killed(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, raw = tmp_path / "run.opw", whole.read_bytes()
    [root] = inner_pages(whole, ["trailer"])
    path.write_bytes(raw[: (root - 1) * PAGE_BYTES] + bytes(PAGE_BYTES) + raw[root * PAGE_BYTES :])
    page = tmp_path / "run.html"
    assert cli.main(["replay", str(path)]) == 0
    assert cli.main(["report", str(path), "-o", str(page)]) == 0
    assert "killed" not in "".join(capsys.readouterr()) + page.read_text()


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recorder that was killed in its fourth minute: old rows of `tail` are on free pages."""
    path = tmp_path_factory.mktemp("killed") / "run.opw"
    record_run(path, list(generate_run(220))[:-1], is_ended=False)
    return path


@pytest.mark.manual
def test_deleted_rows_do_not_reappear(killed: Path, tmp_path: Path) -> None:
    good, raw = samples_of(read(killed)), killed.read_bytes()
    with closing(sqlite3.connect(killed)) as connection:
        [(tail,)] = connection.execute("SELECT count(*) FROM tail")
    assert tail > 50
    path = tmp_path / "run.opw"
    for number in [*inner_pages(killed, [*TABLES, *INDEXES]), 2, 105, 208]:
        if raw[(number - 1) * PAGE_BYTES] == 13:
            continue
        path.write_bytes(raw[: (number - 1) * PAGE_BYTES] + bytes(PAGE_BYTES) + raw[number * PAGE_BYTES :])
        there = samples_of(read(path))
        assert all(good.get(key) == sample for key, sample in there.items())
        # Of the tail, the last entry is left out: rows of it may be missing.
        assert len(there) >= len(good) - 4


def test_log_of_a_killed_recorder_is_applied_first(tmp_path: Path) -> None:
    path, copy = tmp_path / "run.opw", tmp_path / "copy.opw"
    record_run(path, generate_run(130))
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode=WAL").fetchall()
        connection.execute("PRAGMA wal_autocheckpoint=0").fetchall()
        connection.execute("UPDATE frames SET crc = crc + 1")
        connection.execute("UPDATE frames SET crc = crc - 1")
        shutil.copy(path, copy)
        shutil.copy(f"{path}-wal", f"{copy}-wal")
    good = samples_of(read(copy))
    raw = bytearray(copy.read_bytes())
    # All pages that the log has are bad in the file, and one that it does not have.
    log = Path(f"{copy}-wal").read_bytes()
    numbers = {int.from_bytes(log[at : at + 4]) for at in range(32, len(log), 24 + PAGE_BYTES)} - {1}
    [lost] = inner_pages(path, ["frames_of_block"])[:1]
    assert lost not in numbers
    assert numbers
    for number in {*numbers, lost}:
        raw[(number - 1) * PAGE_BYTES : number * PAGE_BYTES] = bytes(PAGE_BYTES)
    copy.write_bytes(raw)
    entries = read(copy)
    assert samples_of(entries) == good
    assert gaps(entries)
