"""Rows of a flight recorder for an archive: minutes, collected in a spool, converted once per hour or day."""

from __future__ import annotations

import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from opwatch.recording.reading.steps import IntervalSteps
from opwatch.recording.reading.window import IntervalMerger
from opwatch.samples.drive_status import DriveStatuses
from opwatch.samples.entries import RunEntry
from opwatch.samples.observation import Observation
from opwatch.samples.presenter import RunPresenter
from opwatch.sinks.export.spool import RowSpool, close_leftovers, list_spooled
from opwatch.sinks.export.table import RowOrigin, build_rows
from opwatch.sinks.terminal import print_message

# The folder in the ring's folder with the rows that wait for the archive.
SPOOL = "archive"
ROW_NS = 60 * 10**9
# The start of a row's time, within which rows belong to one file.
PERIODS = {"hour": "%Y-%m-%d %H", "day": "%Y-%m-%d"}
# Rows that wait while the archive cannot be written, for example because its disk is full.
MAX_PENDING_BYTES = 256 << 20
# Batches that wait for a slow disk; a batch is a minute.
_MAX_BATCHES = 64
_RETRY_S = 600.0
_MAX_END_S = 60.0

_Batch = tuple[datetime, list[dict[str, Any]]]


class RowCollector:
    """Takes the entries of a run, and returns the rows of each minute."""

    def __init__(self, origin: RowOrigin, recorded_ns: int) -> None:
        self._origin = origin
        self._merger = IntervalMerger(IntervalSteps(max(ROW_NS, recorded_ns), recorded_ns))
        self._story = RunPresenter()
        self._drives = DriveStatuses()

    def collect_rows(self, entry: RunEntry) -> _Batch | None:
        """Return the rows that an entry completes, and their time; None without rows."""
        rows, at = list[dict[str, Any]](), None
        for merged in self._merger.merge_entry(entry):
            self._drives.process_entry(merged)
            for news in self._story.process_entry(merged):
                if isinstance(news, Observation) and not news.final:
                    rows += build_rows(self._origin, self._drives.find_status(news.device), news)
                    at = at or news.at
        return (at, rows) if at else None


class Archiver:
    """Writes rows in a thread, so that sampling never waits for a disk, and has them converted by a process.

    An error never ends the recorder: it is reported once, and the rows wait or are counted as lost.
    """

    def __init__(
        self, origin: RowOrigin, recorded_ns: int, *, spool: Path, archive: Path, period: str
    ) -> None:
        self._collector = RowCollector(origin, recorded_ns)
        self._folder, self._archive = spool, archive
        self._spool = RowSpool(spool, origin.host or "", origin.shard)
        close_leftovers(spool)
        self._format = PERIODS[period]
        self._period: str | None = None
        self._queue: queue.Queue[_Batch | None] = queue.Queue(_MAX_BATCHES)
        self._writing: subprocess.Popen[bytes] | None = None
        self._tried = -_RETRY_S
        self._lost = 0
        self._has_problem = False
        self._thread = threading.Thread(target=self._write_batches, name="archive", daemon=True)
        self._thread.start()

    def process_entry(self, entry: RunEntry) -> None:
        """Queue the rows that an entry completes."""
        batch = self._collector.collect_rows(entry)
        if batch:
            try:
                self._queue.put_nowait(batch)
            except queue.Full:
                self._report_loss(len(batch[1]), f"{self._folder} is too slow")

    def finish(self) -> None:
        """Convert everything up to now, within a time limit. What is left is converted at the next start."""
        try:
            self._queue.put(None, timeout=_MAX_END_S)
        except queue.Full:
            return
        self._thread.join(_MAX_END_S)
        if self._writing and not self._thread.is_alive():
            try:
                self._writing.wait(_MAX_END_S)
            except subprocess.TimeoutExpired:
                self._writing.kill()
                print_message(f"{self._archive}: writing took too long; the next start writes the rest")

    def _iter_batches(self) -> Iterator[_Batch]:
        """Yield the batches, and start due conversions between them."""
        self._start_writing()
        while batch := self._queue.get():
            yield batch
            if time.monotonic() >= self._tried + _RETRY_S:
                self._start_writing()

    def _write_batches(self) -> None:
        for at, rows in self._iter_batches():
            try:
                self._add_batch(at, rows)
                self._has_problem = False
            except OSError as error:
                self._report_loss(len(rows), f"{self._folder} cannot be written: {error.strerror}")
        try:
            self._spool.close_file()
        except OSError as error:
            print_message(f"{self._folder} cannot be written: {error.strerror}")
        if self._writing:
            self._writing.wait()
        self._start_writing()

    def _add_batch(self, at: datetime, rows: list[dict[str, Any]]) -> None:
        period = f"{at.astimezone(UTC):{self._format}}"
        if self._period not in (None, period):
            self._spool.close_file()
            self._start_writing()
        self._period = period
        for dropped in self._spool.drop_oldest(MAX_PENDING_BYTES):
            print_message(f"removed {dropped.path.name}, because {self._archive} cannot be written for long")
        self._spool.add_rows(at, rows)

    def _start_writing(self) -> None:
        """Start a process that converts the closed files, unless one runs."""
        try:
            if (self._writing and self._writing.poll() is None) or not list_spooled(self._folder):
                return
            self._tried = time.monotonic()
            self._writing = self._start_process()
        except OSError as error:
            self._tried = time.monotonic()
            print_message(f"the rows of {self._folder} cannot be written now: {error.strerror}")

    def _start_process(self) -> subprocess.Popen[bytes]:
        # -P: import nothing from the current folder.
        argv = [sys.executable, "-P", "-m", "opwatch", "flight", "archive", "--quiet"]
        argv += ["-o", str(self._archive), "--ring", str(self._folder.parent)]
        return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)

    def _report_loss(self, rows: int, why: str) -> None:
        self._lost += rows
        if not self._has_problem:
            self._has_problem = True
            print_message(f"{why}: {self._lost} rows are missing in the archive so far")
