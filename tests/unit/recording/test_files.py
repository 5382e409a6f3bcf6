"""Kept files stay readable, damaged files are refused with the place, and SQL reads every file."""

from __future__ import annotations

import contextlib
import gzip
import os
import re
import sqlite3
import tracemalloc
from contextlib import closing
from pathlib import Path

import pytest

from opwatch.cpu import CommandCpu, CpuTimes
from opwatch.errors import BadInput
from opwatch.recording.coding.blocks import compress_streams
from opwatch.recording.coding.contents import deflate_content
from opwatch.recording.reading.command import find_command_cpu
from opwatch.recording.reading.opening import CheckedFile, DamagedError
from opwatch.recording.reading.reader import RecordedRun
from opwatch.recording.schema import COMMAND_CPU, PHASE_BEGAN, PHASE_ENDED
from opwatch.recording.writing.newfile import NewDatabase
from opwatch.recording.writing.writer import RecordingWriter
from opwatch.samples.entries import (
    CountersRead,
    DiskAdded,
    EventReported,
    IntervalEnded,
    RunEnded,
    RunEntry,
    SlowRequestsSeen,
)
from opwatch.samples.entry_parts import get_samples
from opwatch.trace.slow import Submitter
from tests.fuzz.recordings import RecordingFuzzer
from tests.unit.support.recordings import HEADER, record_run, update_checksums
from tests.unit.support.runs import S, generate_run

FIXTURES = Path(__file__).parents[2] / "fixtures"
DOCUMENT = (Path(__file__).parents[3] / "docs" / "recording-format.md").read_text()
STATEMENTS = [
    statement.strip()
    for block in re.findall(r"```sql\n(.*?)```", DOCUMENT, re.DOTALL)
    for statement in block.split(";")
    if statement.strip()
]


def unpack_recording(name: str, folder: Path) -> Path:
    path = folder / Path(name).with_suffix("").name
    path.write_bytes(gzip.decompress((FIXTURES / name).read_bytes()))
    return path


def read_entries(path: Path) -> list[RunEntry]:
    recording = RecordedRun(path)
    try:
        return list(recording.iter_entries())
    finally:
        recording.close()


def test_kept_recording_is_read(tmp_path: Path) -> None:
    recording = RecordedRun(unpack_recording("good/recordings/1.opw.gz", tmp_path))
    every = list(recording.iter_entries())
    entries = [entry for entry in every if not isinstance(entry, SlowRequestsSeen)]
    assert len(every) - len(entries) == 3
    assert [type(entry).__name__ for entry in entries] == [
        *(
            "DiskAdded",
            "DiskAdded",
            "IntervalEnded",
            "CountersRead",
            "IntervalEnded",
            "DiskAdded",
            "EventReported",
        ),
        *("IntervalEnded", "DiskRemoved", "CountersRead", "IntervalEnded", "RunEnded"),
    ]
    last, look = entries[-1], entries[3]
    assert isinstance(last, RunEnded)
    assert isinstance(look, CountersRead)
    reads = [sample.reading.sample.ops["read"] for sample in last.samples.values()]
    stats = [sample.reading.after for sample in last.samples.values()]
    ticks = [stat.ticks for stat in stats if stat]
    assert ticks[0]
    assert ticks[0].jiffy_ns == 4_000_000
    assert ticks[0].groups == {"read": 83, "write": 2, "flush": 0, "discard": 0}
    first = entries[0]
    assert isinstance(first, DiskAdded)
    assert first.sample.cpu == CpuTimes(4, 31_000, 12_000, 500, 3)
    times = {(sample.cpu and sample.cpu.user) for sample in last.samples.values()}
    assert times == {31_000 + 6_500 * 7 // 5}
    assert [(op.completed, op.bytes, op.sum_ns) for op in reads] == [
        (73, 983040, 74760512),
        (34, 442368, 29079132),
    ]
    assert [op.latency.total for op in reads] == [op.completed for op in reads]
    assert look.sample.drive.model == "A Model"
    assert isinstance(look.sample.answers[0].answer, bytes)
    assert int.from_bytes(look.sample.answers[0].answer[32:48], "little") == 1000
    assert recording.trailer
    assert recording.trailer.reason == "the command has ended"
    assert recording.header["kernel"] == "6.12"
    assert [event.status for event in recording.events] == [None, 3]
    recording.close()


def test_slow_requests_of_a_kept_recording_are_read(tmp_path: Path) -> None:
    entries = read_entries(unpack_recording("good/recordings/1.opw.gz", tmp_path))
    first, second, third = (entry for entry in entries if isinstance(entry, SlowRequestsSeen))
    assert (first.limit_ns, first.counts, first.requests) == (10**7, {0: 0, 1: 0}, ())
    assert (second.counts, len(second.requests)) == ({0: 4, 1: 4}, 6)
    assert (third.counts, len(third.requests)) == ({0: 6, 1: 6}, 4)
    one = second.requests[0]
    assert (one.place, one.op, one.latency_ns, one.sector) == (0, "read", 2_066_767_044, 1 << 40)
    assert (one.submitter, one.queue_ns) == (Submitter.WRITE_BACK, None)
    assert (one.cgroup_number, one.cgroup) == (77, "/system.slice/fio.service")


def test_kept_recording_of_a_killed_recorder_is_read(tmp_path: Path) -> None:
    recording = RecordedRun(unpack_recording("good/recordings/1-killed.opw.gz", tmp_path))
    entries = [entry for entry in recording.iter_entries() if not isinstance(entry, SlowRequestsSeen)]
    assert len(entries) == 10
    assert recording.trailer is None
    recording.close()


def test_cpu_time_of_a_recorded_command_is_read(tmp_path: Path) -> None:
    with closing(RecordedRun(unpack_recording("good/recordings/1-command.opw.gz", tmp_path))) as recording:
        assert find_command_cpu(recording) == CommandCpu(1.25, 0.5)
    with closing(RecordedRun(unpack_recording("good/recordings/1.opw.gz", tmp_path))) as recording:
        assert find_command_cpu(recording) is None


@pytest.mark.parametrize(
    "words", ["", "[]", "{}", '{"user_s":-1,"system_s":0}', '{"user_s":"1","system_s":0}']
)
def test_invalid_cpu_time_is_refused(tmp_path: Path, words: str) -> None:
    path = unpack_recording("good/recordings/1-command.opw.gz", tmp_path)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE events SET words = ? WHERE kind = ?", (words, COMMAND_CPU))
        update_checksums(connection)
    with closing(RecordedRun(path)) as recording, pytest.raises(BadInput, match="table events, command CPU"):
        find_command_cpu(recording)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("cut", ": table header, counters "),
        ("trigger", ": trigger 't' "),
        ("view", ": view 'v' "),
        ("text", ": table blocks, row 1: first "),
        ("version", " version 99,"),
        ("other", " not an opwatch recording$"),
    ],
)
def test_a_bad_file_is_refused_with_its_place(tmp_path: Path, name: str, words: str) -> None:
    path = unpack_recording(f"bad/recordings/{name}.opw.gz", tmp_path)
    with pytest.raises(BadInput, match=f"{re.escape(str(path))}.*{words}"):
        read_entries(path)


@pytest.mark.parametrize("content", [b"hello\n", b"1 2 3\n" * 5000])
def test_another_kind_of_file_is_not_called_a_recording(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    with pytest.raises(BadInput, match=f"^{re.escape(str(path))} is not an opwatch recording"):
        read_entries(path)


@pytest.mark.parametrize("version", [-1, 0, 2, 6])
def test_recording_of_another_version_is_refused(tmp_path: Path, version: int) -> None:
    path = unpack_recording("good/recordings/1.opw.gz", tmp_path)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"PRAGMA user_version = {version}")
    with pytest.raises(BadInput, match=rf" {version}, .* version 1\b") as refused:
        read_entries(path)
    assert not isinstance(refused.value, DamagedError)


@pytest.fixture(scope="module")
def two_minutes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recordings") / "run.opw"
    record_run(path, generate_run(130))
    return path


def test_file_cut_at_any_page_opens_or_is_refused(tmp_path: Path) -> None:
    run, opened, path = list(generate_run(75)), 0, tmp_path / "cut.opw"
    record_run(tmp_path / "whole.opw", run)
    whole = (tmp_path / "whole.opw").read_bytes()
    for length in range(0, len(whole), 4096):
        path.write_bytes(whole[:length])
        try:
            recording = RecordedRun(path)
        except BadInput as error:
            assert str(path) in str(error)
            continue
        opened += 1
        assert recording.missing_bytes == len(whole) - length
        kept = []
        with closing(recording), contextlib.suppress(DamagedError):
            for entry in recording.iter_entries():
                kept.append(entry)
        first, *rest = [entry for entry in kept if entry not in run]
        assert isinstance(first, EventReported)
        assert f" {len(whole) - length} bytes " in first.event.text
        samples = [sample for entry in run for sample in get_samples(entry).values()]
        assert all(sample in samples for entry in rest for sample in get_samples(entry).values())
    # Files open from the page that holds the field names.
    assert opened > 0


def test_any_file_name_works(two_minutes: Path, tmp_path: Path) -> None:
    for name in (b"a run?mode=rwc&x#%41.opw", b"\xff\xfe.opw", b"\x1b[31m\n.opw"):
        path = tmp_path / os.fsdecode(name)
        path.write_bytes(two_minutes.read_bytes())
        assert len(read_entries(path)) == len(read_entries(two_minutes))
        new = tmp_path / os.fsdecode(b"new" + name)
        record_run(new, generate_run(3))
        assert read_entries(new) == list(generate_run(3))


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text.opw").write_text("this is no recording\n" * 500)
    (tmp_path / "empty.opw").write_bytes(b"")
    for path, words in (
        (tmp_path, "regular file"),
        (tmp_path / "text.opw", "database"),
        (tmp_path / "empty.opw", "opwatch recording"),
    ):
        with pytest.raises(BadInput, match=rf"{re.escape(str(path))} .*\b{words}\b"):
            RecordedRun(path)


def test_the_sql_of_the_document_knows_phases(tmp_path: Path) -> None:
    [statement] = [statement for statement in STATEMENTS if PHASE_BEGAN in statement]
    database = NewDatabase(tmp_path / "run.opw")
    writer = RecordingWriter(database, HEADER)
    writer.begin_transaction()
    for kind, words, at_s in ((PHASE_BEGAN, "fill", 1), (PHASE_ENDED, "fill", 3), (PHASE_BEGAN, "load", 4)):
        writer.add_event(kind, words, at_s * S)
    writer.commit()
    database.close()
    connection = sqlite3.connect(f"file:{tmp_path / 'run.opw'}?mode=ro", uri=True)
    rows = connection.execute(statement).fetchall()
    connection.close()
    assert rows == [("fill", S, 3 * S), ("load", 4 * S, None)]


@pytest.mark.parametrize(
    "statement",
    [text for text in STATEMENTS if PHASE_BEGAN not in text],
    ids=lambda text: text.split("\n")[0][:40],
)
def test_the_sql_of_the_document_reads_a_recording(two_minutes: Path, statement: str) -> None:
    connection = sqlite3.connect(f"file:{two_minutes}?mode=ro", uri=True)
    rows = connection.execute(statement).fetchall()
    connection.close()
    assert rows


def test_the_sql_of_the_document_counts_as_the_samples_do(two_minutes: Path) -> None:
    minutes = next(statement for statement in STATEMENTS if "per_s" in statement)
    connection = sqlite3.connect(f"file:{two_minutes}?mode=ro", uri=True)
    rows = [row for row in connection.execute(minutes) if row[:2] == (0, "read")]
    counts = "SELECT mono_ns FROM counts WHERE place = 0 AND op = 'read' ORDER BY mono_ns LIMIT 2"
    [(before_ns,), (after_ns,)] = connection.execute(counts).fetchall()
    connection.close()
    moments = {
        entry.samples[0].reading.sample.end_ns: entry.samples[0].reading.sample.ops["read"]
        for entry in read_entries(two_minutes)
        if isinstance(entry, IntervalEnded | RunEnded)
    }
    _, _, at_ns, per_s, mb_per_s, mean_ns = rows[0]
    assert at_ns == after_ns
    now, then, seconds = moments[at_ns], moments[before_ns], (at_ns - before_ns) / 1e9
    assert per_s == pytest.approx((now.completed - then.completed) / seconds)
    assert mb_per_s == pytest.approx((now.bytes - then.bytes) / 1e6 / seconds)
    assert mean_ns == pytest.approx((now.sum_ns - then.sum_ns) / (now.completed - then.completed))


def test_documented_statements_exist() -> None:
    assert len(STATEMENTS) == 8


def test_a_block_without_an_end_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.opw"
    record_run(path, generate_run(130))
    connection = sqlite3.connect(path)
    last = "(SELECT max(block) FROM blocks)"
    connection.execute(f"UPDATE blocks SET last = ? WHERE block = {last}", (2**63 - 1,))
    update_checksums(connection)
    connection.commit()
    connection.close()
    with pytest.raises(BadInput, match=r"table blocks, row .* 9223372036854775807 "):
        read_entries(path)


def test_small_body_that_expands_too_far_is_refused(tmp_path: Path) -> None:
    whole = unpack_recording("good/recordings/1.opw.gz", tmp_path).read_bytes()
    lists = b"[" + b"[]," * (5 << 20) + b"[]]"
    for at, (statement, value, words) in enumerate(
        (
            (
                "UPDATE blocks SET others = ?",
                deflate_content(b'[4,"CountersRead",' + lists + b"]"),
                " 1048576 ",
            ),
            (
                "UPDATE blocks SET others = ?",
                deflate_content(bytes(17 << 20)),
                rf"\bblock 1 .*\b{16 << 20}\b",
            ),
            (
                "UPDATE contents SET body = ?",
                deflate_content(bytes(5 << 20)),
                rf"\btable contents, row 1 .*\b{4 << 20}\b",
            ),
            ("UPDATE facts SET body = ?", lists[: 2 << 20].decode(), " 1048576 "),
            ("UPDATE entries SET body = ?", lists[: 2 << 20].decode(), " 1048576 "),
            ("UPDATE entries SET body = ?", lists[: 9 << 20].decode(), "too big"),
        )
    ):
        path = tmp_path / f"{at}.opw"
        path.write_bytes(whole)
        connection = sqlite3.connect(path)
        connection.execute(statement, (value,))
        update_checksums(connection)
        connection.commit()
        connection.close()
        tracemalloc.start()
        with pytest.raises(BadInput, match=words):
            read_entries(path)
        assert tracemalloc.get_traced_memory()[1] < 100 << 20
        tracemalloc.stop()


def test_minute_that_expands_too_far_is_refused(tmp_path: Path) -> None:
    path = unpack_recording("good/recordings/1.opw.gz", tmp_path)
    whole = path.read_bytes()
    streams = (b"", b"", b"", bytes(1 << 17), b"")
    long = compress_streams(streams)
    for body, words in (
        (long, "has more rows|number of rows|no numbers|ends inside"),
        (long[:-40], "is cut off, or has more"),
        (long[:9] + long[12:], "damaged|cut|too few|more than"),
        (b"\0" + b"\xff\xff\xff\x7f" + long[5:], "a stream length"),
    ):
        path.write_bytes(whole)
        connection = sqlite3.connect(path)
        connection.execute("UPDATE frames SET body = ?", (body,))
        update_checksums(connection)
        connection.commit()
        connection.close()
        tracemalloc.start()
        with pytest.raises(BadInput, match=words):
            read_entries(path)
        assert tracemalloc.get_traced_memory()[1] < 30 << 20
        tracemalloc.stop()


@pytest.mark.parametrize("target", tuple(RecordingFuzzer(0).targets))
def test_every_other_recording_is_refused_or_sound(target: str) -> None:
    RecordingFuzzer(5).run_inputs(60, target)


@pytest.mark.parametrize("number", [1 << 63, -(1 << 63) - 1, 10**40])
def test_no_row_has_a_number_that_sqlite_cannot_hold(number: int, tmp_path: Path) -> None:
    with closing(CheckedFile(unpack_recording("good/recordings/1.opw.gz", tmp_path))) as file:
        assert list(file.iter_rows("contents", "WHERE content = ?", (1,)))
        assert list(file.iter_rows("contents", "WHERE content = ?", (number,))) == []
