"""Recordings written by tests."""

from __future__ import annotations

import io
import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path

from opwatch.recording.schema import has_check, row_check, tables
from opwatch.recording.writing.newfile import NewDatabase
from opwatch.recording.writing.writer import RecordingWriter
from opwatch.samples.entries import RunEntry
from opwatch.samples.observation import Event, Sink
from opwatch.samples.story import Story
from opwatch.sinks.jsonl import JsonLines
from opwatch.sinks.lines import Lines
from tests.unit.support.runs import MadeUpRun, S

HEADER: dict[str, str | int] = {
    "tool": "opwatch 0.1",
    "kernel": "6.12",
    "host": "a host",
    "command_line": "opwatch record -o run.opw",
    "interval_ns": 10**9,
}


def record(path: Path, run: Iterable[RunEntry], *, is_ended: bool = True) -> None:
    """Write a transaction per entry; without an end, the file is as a killed recorder leaves it."""
    database = NewDatabase(path)
    writer = RecordingWriter(database, HEADER)
    writer.begin()
    writer.event("command started", "fio job.fio", 6_999 * S)
    writer.commit()
    for entry in run:
        writer.begin()
        writer.put(entry)
        writer.commit()
    if is_ended:
        writer.begin()
        writer.event("command ended", "fio job.fio", 8_000 * S, 3)
        writer.commit()
        writer.end("the command has ended", 99, 0)
    database.close()


def sealed(connection: sqlite3.Connection) -> None:
    """Recompute every row's checksum from its current content."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    for table in (name for name in tables(version) if has_check(name, version)):
        rows = connection.execute(f"SELECT rowid, * FROM {table}").fetchall()
        checks = [(row_check(table, row[1:-1]), row[0]) for row in rows]
        connection.executemany(f"UPDATE {table} SET crc = ? WHERE rowid = ?", checks)


def short_run() -> Iterator[RunEntry]:
    """Yield a few entries of every kind, over more than a minute."""
    run = MadeUpRun(4)
    yield run.begin(0, "nvme0n1")
    yield run.begin(1, "sda")
    yield run.slowed([0, 1])
    yield run.tick([0, 1])
    yield run.look("nvme0n1", 1000)
    run.sleep(61)
    yield run.slowed([0, 1], noted=3, left_out=1)
    yield run.tick([0, 1])
    yield run.begin(2, "sdb", late=True)
    yield run.refuse()
    yield run.tick([0, 1, 2])
    yield run.leave(2)
    yield run.look("nvme0n1", 1001)
    yield run.tick([0, 1])
    yield run.slowed([0, 1], noted=2)
    yield run.end([0, 1])


def shown(run: Iterable[RunEntry], *, plain: bool = False) -> str:
    """Return all output of a run."""
    out, story = io.StringIO(), Story()
    sink: Sink = Lines(out, every_s=1) if plain else JsonLines(out)
    for entry in run:
        for news in story.take(entry):
            if isinstance(news, Event):
                sink.tell(news)
            else:
                sink.write(news)
    return out.getvalue()
