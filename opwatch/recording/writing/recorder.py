"""Write the entries of a run in progress to a file. Callers never wait for the disk."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from opwatch.errors import OpwatchError
from opwatch.samples.entries import CountersRead, IntervalEnded, RunEntry, SlowRequestsSeen
from opwatch.samples.entry_parts import get_samples

# A waiting sample takes 136 KiB.
MAX_WAITING = 512
# Number of slow requests that take at most the memory of a sample.
_REQUESTS_PER_SAMPLE = 128
# Minimum interval between commits, even with short intervals.
_COMMIT_S = 0.25
# Maximum wait at the end for a disk that does not respond.
_MAX_END_WAIT_S = 10.0


@dataclass(frozen=True, slots=True)
class _Event:
    kind: str
    words: str
    mono_ns: int
    status: int | None


@dataclass(frozen=True, slots=True)
class _File:
    name: str
    raw: bytes
    mono_ns: int


class RecordingTarget(Protocol):
    """The destination of entries. After construction a target belongs to one thread, except for `device`,
    `inode` and `kept_s`."""

    @property
    def path(self) -> Path: ...

    # pause() is called after each commit and at least at this interval in seconds; None for commits only.
    pause_s: float | None

    @property
    def kept_s(self) -> float | None:
        """Time in seconds for which entries are kept, None for unlimited."""

    def read_device_number(self) -> int: ...
    def read_inode(self) -> int: ...
    def begin_transaction(self) -> None: ...
    def add_entry(self, entry: RunEntry) -> None: ...
    def add_event(self, kind: str, words: str, mono_ns: int, status: int | None = None) -> None: ...
    def add_file(self, name: str, raw: bytes, mono_ns: int) -> None: ...
    def commit(self) -> None: ...
    def roll_back(self) -> None: ...
    def run_maintenance(self) -> None: ...
    def end_recording(self, reason: str, mono_ns: int, left_out: int) -> None: ...
    def abandon(self) -> None: ...


class Recorder:
    """Writes from construction to finish_recording().

    An error ends the recording but not the run: `tell` is called once with the error, and `problem` stores
    it.
    """

    def __init__(
        self, target: RecordingTarget, tell: Callable[[str], None], most_waiting: int = MAX_WAITING
    ) -> None:
        self._target, self._tell, self._most = target, tell, most_waiting
        self.problem: str | None = None
        self.left_out = 0
        self._noted = 0
        self._waiting: deque[RunEntry | _Event | _File] = deque()
        self._samples = 0
        self._reason: str | None = None
        self._change = threading.Condition()
        self._thread = threading.Thread(target=self._write_entries, name="recorder", daemon=True)
        self._thread.start()

    def read_device_number(self) -> int:
        """Return the number of the file's device."""
        return self._target.read_device_number()

    def add_entry(self, entry: RunEntry) -> None:
        """Keep an entry.

        If the disk is too slow, intermediate samples are left out and counted; the following interval covers
        their time.
        """
        size = _estimate_size(entry)
        with self._change:
            may_be_left_out = isinstance(entry, IntervalEnded | CountersRead | SlowRequestsSeen)
            if self.problem or (may_be_left_out and self._samples + size > self._most):
                self.left_out += 1
                return
            self._samples += size
            self._waiting.append(entry)
            self._change.notify()

    def add_event(self, kind: str, words: str, status: int | None = None, mono_ns: int | None = None) -> None:
        """Keep an event of now, or of `mono_ns`."""
        self._enqueue_item(_Event(kind, words, time.monotonic_ns() if mono_ns is None else mono_ns, status))

    def add_file(self, name: str, raw: bytes) -> None:
        """Keep another program's file."""
        self._enqueue_item(_File(name, raw, time.monotonic_ns()))

    def _enqueue_item(self, one: _Event | _File) -> None:
        with self._change:
            if not self.problem:
                self._waiting.append(one)
                self._change.notify()

    def finish_recording(self, reason: str, longest_s: float = _MAX_END_WAIT_S) -> None:
        """Write the waiting entries and the end of the file. `reason` is the reason for the run's end."""
        with self._change:
            self._reason = self._reason or reason
            self._change.notify()
        self._thread.join(longest_s)
        if self._thread.is_alive():
            self._stop_recording(
                f"{self._target.path}: its disk does not respond; the end of the recording was not written"
            )

    def _write_entries(self) -> None:
        try:
            while self._write_waiting():
                pass
            self._target.end_recording(self._reason or "", time.monotonic_ns(), self.left_out)
        except (sqlite3.Error, OSError) as error:
            self._stop_recording(
                f"{self._target.path}: the recording ends here: {error}. What was written is kept; the run "
                "continues"
            )
            self._target.abandon()
        except OpwatchError as error:
            self._stop_recording(str(error))
            self._target.abandon()
        except Exception as error:
            self._stop_recording(
                f"{self._target.path}: the recording ends here: {type(error).__name__}: {error}"
            )
            self._target.abandon()

    def _write_waiting(self) -> bool:
        """Write the waiting entries in one transaction; return false if all are written and the run has
        ended."""
        with self._change:
            has_news = self._change.wait_for(
                lambda: self._waiting or self._reason is not None, self._target.pause_s
            )
            taken = list(self._waiting)
            self._waiting.clear()
            left_out = self.left_out
        if not taken:
            self._target.run_maintenance()
            return not has_news
        self._target.begin_transaction()
        try:
            for one in taken:
                self._write_item(one)
            if left_out > self._noted:
                words = f"{left_out - self._noted} entries were left out because the disk was too slow"
                self._target.add_event("left out", words, time.monotonic_ns(), left_out - self._noted)
                self._noted = left_out
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                self._target.roll_back()
            raise
        self._target.commit()
        self._target.run_maintenance()
        with self._change:
            self._samples -= sum(_estimate_size(one) for one in taken if not isinstance(one, _Event | _File))
            self._change.wait_for(lambda: self._reason is not None, _COMMIT_S)
        return True

    def _write_item(self, one: RunEntry | _Event | _File) -> None:
        if isinstance(one, _Event):
            self._target.add_event(one.kind, one.words, one.mono_ns, one.status)
        elif isinstance(one, _File):
            self._target.add_file(one.name, one.raw, one.mono_ns)
        else:
            self._target.add_entry(one)

    def _stop_recording(self, problem: str) -> None:
        with self._change:
            if self.problem:
                return
            self.problem = problem
            self.left_out += len(self._waiting)
            self._waiting.clear()
        self._tell(problem)


def _estimate_size(entry: RunEntry) -> int:
    """Return the size of an entry in samples, or in the memory of as many samples."""
    return (
        1 + len(entry.requests) // _REQUESTS_PER_SAMPLE
        if isinstance(entry, SlowRequestsSeen)
        else len(get_samples(entry))
    )
