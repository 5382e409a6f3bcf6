"""A live run with a recording: entries for the file, from the run and about the recording itself."""

from __future__ import annotations

import argparse
import os
import shlex
import sqlite3
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Protocol

from opwatch import __version__
from opwatch.clock import Anchor
from opwatch.cpu import CommandCpu
from opwatch.errors import OpwatchError
from opwatch.foreign import read_text
from opwatch.host.device import Devices, Leaf
from opwatch.recording.reading.command import format_cpu
from opwatch.recording.reading.notes import iterate_notes
from opwatch.recording.reading.reader import RecordedRun
from opwatch.recording.schema import COMMAND_CPU, NOTE
from opwatch.recording.writing.file import RecordingFile
from opwatch.recording.writing.notes import NoteTaker
from opwatch.recording.writing.recorder import Recorder, RecordingTarget
from opwatch.samples.end import End
from opwatch.samples.entries import RunEntry
from opwatch.samples.source import Source
from opwatch.sinks.terminal import open_stdout, print_message
from opwatch.tools.runs.fio_run import RecordedFio, show_fio
from opwatch.tools.runs.fio_run import make_recorded_fio as make_recorded_fio

_BOOT_ID_PATH = Path("/proc/sys/kernel/random/boot_id")
_MACHINE_ID_PATH = Path("/etc/machine-id")
_REASONS = {
    End.COUNT: "the requested time or number of intervals is over",
    End.SIGNAL: "a signal",
    End.COMMAND: "the command has ended",
    End.VANISHED: "a device named by --dev is gone",
}


def make_header(every_s: float | None) -> dict[str, str | int]:
    """Return the header of a recording, with place and time. `every_s` is None for a recording without
    intervals."""
    system = os.uname()
    interval = {} if every_s is None else {"interval_ns": round(every_s * 1e9)}
    return interval | {
        "tool": f"opwatch {__version__}",
        "kernel": system.release,
        "machine": system.machine,
        "host": system.nodename,
        "machine_id": _read_id(_MACHINE_ID_PATH),
        "boot": _read_id(_BOOT_ID_PATH),
        "command_line": shlex.join(["opwatch", *sys.argv[1:]]),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _read_id(path: Path) -> str:
    try:
        return read_text(path).strip()
    except OSError:
        return ""


class LiveSource(Source, Protocol):
    """A live run. `end` is the reason for the end, None until then; `status` is the command's exit status."""

    end: End | None
    status: int

    @property
    def leaves(self) -> list[Leaf]: ...
    @property
    def command_cpu(self) -> CommandCpu | None: ...


def create_recording(
    path: Path, headline: Mapping[str, str | int], clocks: Anchor | None = None
) -> RecordingFile:
    """Create a recording with the given header. `clocks` are for a run without clock readings in the
    samples."""
    try:
        target = RecordingFile(path, headline)
        if clocks:
            with remove_on_error(target):
                target.keep_clock(clocks)
        return target
    except sqlite3.Error as error:
        raise OpwatchError(f"cannot write {path}: {error}") from error
    except OSError as error:
        raise OpwatchError(
            f"cannot create {path}: {error.strerror}; name a file in a writable folder"
        ) from error


@contextmanager
def remove_on_error(target: RecordingFile) -> Iterator[None]:
    """Write a recording completely or not at all: remove the file on any error."""
    try:
        yield
    except sqlite3.Error as error:
        target.remove_files()
        raise OpwatchError(f"cannot write {target.path}: {error}; the file was removed") from error
    except BaseException:
        target.remove_files()
        raise


def create_run_recording(args: argparse.Namespace) -> RecordingFile:
    """Create the file of a run that starts now."""
    return create_recording(args.output, make_header(args.interval))


def make_note_taker(target: RecordingTarget, recorder: Recorder) -> NoteTaker:
    """Return a taker of the notes that arrive while a recording or a ring is written."""

    def take_note(text: str) -> str | None:
        if not recorder.problem:
            recorder.add_event(NOTE, text)
        return recorder.problem

    taker = NoteTaker(target.read_device_number(), target.read_inode(), take_note, target.kept_s)
    if taker.problem:
        print_message(f"{target.path}: {taker.problem}")
    return taker


class RunRecorder:
    """A source that records entries immediately, until closed. `problem` is the reason for missing entries,
    or None."""

    def __init__(
        self,
        live: LiveSource,
        target: RecordingTarget,
        command: list[str] | None = None,
        fio: RecordedFio | None = None,
    ) -> None:
        self._live, self._command, self._target = live, command, target
        # close() closes fio as well.
        self.fio = fio
        self._recorder = Recorder(target, print_message)
        self._taker = make_note_taker(target, self._recorder)
        warn_of_own_disk(self._recorder, self.path, (leaf.device.disk.name for leaf in live.leaves))
        if self._command:
            self._recorder.add_event("command started", shlex.join(self._command))

    @property
    def path(self) -> Path:
        """Return the current path of the recording."""
        return self._target.path

    @property
    def problem(self) -> str | None:
        return self._recorder.problem

    @property
    def left_out(self) -> int:
        return self._recorder.left_out

    def add_notes(self, texts: Iterable[str]) -> None:
        """Record the user's notes."""
        for text in texts:
            self.add_event(NOTE, text)

    def add_event(self, kind: str, words: str) -> None:
        """Record an event that is not about the disks."""
        self._recorder.add_event(kind, words)

    def iter_entries(self) -> Iterator[RunEntry]:
        for entry in self._live.iter_entries():
            self.add_entry(entry)
            yield entry

    def add_entry(self, entry: RunEntry) -> None:
        """Queue an entry for the recording, without waiting for the disk."""
        self._recorder.add_entry(entry)

    def show_notes_and_fio(self, print_lines: Callable[[Iterable[str]], None], *, as_json: bool) -> None:
        """Show notes as JSON, and fio's figures beside ours.

        Call after everything is written, because the recording is read as in a replay.
        """
        if (self.fio or as_json) and not self.problem:
            with closing(RecordedRun(self.path)) as run:
                show_notes_and_fio(run, print_lines, as_json=as_json)

    def __enter__(self) -> RunRecorder:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._taker.close()
        end = self._live.end
        if self._command and end:
            self._recorder.add_event("command ended", shlex.join(self._command), self._live.status)
            if spent := self._live.command_cpu:
                self._recorder.add_event(COMMAND_CPU, format_cpu(spent))
            if self.fio:
                self.fio.record_results(self._recorder)
        if self.fio:
            self.fio.close()
        cut = f"interrupted: {kind.__name__}" if kind else "interrupted"
        self._recorder.finish_recording(_REASONS.get(end, end.name) if end else cut)


def show_notes_and_fio(
    run: RecordedRun, print_lines: Callable[[Iterable[str]], None], *, as_json: bool
) -> None:
    """Show notes as JSON, and fio's figures. In text output notes are printed at the start instead."""
    if as_json:
        show_notes(run)
    show_fio(run, print_lines, as_json=as_json)


def show_notes(run: RecordedRun) -> None:
    """Show the user's notes as JSON lines. An importer's notes have no time and are printed elsewhere."""
    for note in iterate_notes(run):
        if note.mono_ns:
            open_stdout().write_json(note.to_document())


def warn_of_own_disk(recorder: Recorder, path: Path, disks: Iterable[str]) -> None:
    """Warn if the recording is stored on a recorded disk."""
    number, devices = recorder.read_device_number(), Devices()
    below = devices.by_number(os.major(number), os.minor(number))
    own = {leaf.device.disk.name for leaf in devices.find_leaves(below)} if below else set()
    both = sorted(own & set(disks))
    if both:
        print_message(
            f"{path} is stored on {', '.join(both)}, which is watched: the counts include "
            "the recording's own writes"
        )
