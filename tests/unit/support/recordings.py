"""Recordings written by tests."""

from __future__ import annotations

import io
import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path

from opwatch.recording.schema import TABLES, compute_row_check, has_check
from opwatch.recording.writing.newfile import NewDatabase
from opwatch.recording.writing.writer import RecordingWriter
from opwatch.samples.entries import RunEntry
from opwatch.samples.observation import Event, Sink
from opwatch.samples.presenter import RunPresenter
from opwatch.sinks.jsonl import JsonLines
from opwatch.sinks.lines import TextLines
from tests.unit.support.runs import GeneratedRun, S

HEADER: dict[str, str | int] = {
    "tool": "opwatch 0.1",
    "kernel": "6.12",
    "host": "a host",
    "command_line": "opwatch record -o run.opw",
    "interval_ns": 10**9,
}


def record_run(path: Path, run: Iterable[RunEntry], *, is_ended: bool = True) -> None:
    """Write a transaction per entry; without an end, the file is as a killed recorder leaves it."""
    database = NewDatabase(path)
    writer = RecordingWriter(database, HEADER)
    writer.begin_transaction()
    writer.add_event("command started", "fio job.fio", 6_999 * S)
    writer.commit()
    for entry in run:
        writer.begin_transaction()
        writer.add_entry(entry)
        writer.commit()
    if is_ended:
        writer.begin_transaction()
        writer.add_event("command ended", "fio job.fio", 8_000 * S, 3)
        writer.commit()
        writer.end_recording("the command has ended", 99, 0)
    database.close()


def update_checksums(connection: sqlite3.Connection) -> None:
    """Recompute every row's checksum from its current content."""
    for table in filter(has_check, TABLES):
        rows = connection.execute(f"SELECT rowid, * FROM {table}").fetchall()
        checks = [(compute_row_check(table, row[1:-1]), row[0]) for row in rows]
        connection.executemany(f"UPDATE {table} SET crc = ? WHERE rowid = ?", checks)


def generate_short_run() -> Iterator[RunEntry]:
    """Yield a few entries of every kind, over more than a minute."""
    run = GeneratedRun(4)
    yield run.add_disk(0, "nvme0n1")
    yield run.add_disk(1, "sda")
    yield run.make_slow_entry([0, 1])
    yield run.make_interval_entry([0, 1])
    yield run.make_poll_entry("nvme0n1", 1000)
    run.advance_time(61)
    yield run.make_slow_entry([0, 1], noted=3, left_out=1)
    yield run.make_interval_entry([0, 1])
    yield run.add_disk(2, "sdb", late=True)
    yield run.make_refused_entry()
    yield run.make_interval_entry([0, 1, 2])
    yield run.remove_disk(2)
    yield run.make_poll_entry("nvme0n1", 1001)
    yield run.make_interval_entry([0, 1])
    yield run.make_slow_entry([0, 1], noted=2)
    yield run.make_end_entry([0, 1])


def format_run(run: Iterable[RunEntry], *, plain: bool = False) -> str:
    """Return all output of a run."""
    out, story = io.StringIO(), RunPresenter()
    sink: Sink = TextLines(out, every_s=1) if plain else JsonLines(out)
    for entry in run:
        for news in story.process_entry(entry):
            if isinstance(news, Event):
                sink.write_event(news)
            else:
                sink.write_observation(news)
    return out.getvalue()
