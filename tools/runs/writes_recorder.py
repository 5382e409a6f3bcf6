"""Measurements of writes that are recorded and shown again: the recording of `opwatch writes`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType

from opwatch.clock import Anchor
from opwatch.errors import BadInput, NotEnoughData
from opwatch.recording.coding.writes import (
    WritesBeginning,
    decode_beginning,
    decode_end,
    decode_step,
    encode_writes,
)
from opwatch.recording.reading.files import StoredFile, iterate_files, read_stored_file
from opwatch.recording.reading.reader import RecordedRun
from opwatch.recording.schema import WRITES, format_json, replace_invalid
from opwatch.recording.writing.recorder import Recorder
from opwatch.sinks.terminal import print_message
from opwatch.sinks.writes import WritesPrinter
from opwatch.tools.runs.run_recorder import create_recording, make_header, make_note_taker, warn_of_own_disk
from opwatch.writes.reading import WritesReading
from opwatch.writes.series import (
    WritesEnd,
    WritesOutcome,
    WritesPart,
    WritesQuestion,
    WritesSeries,
    WritesStep,
)

_FOLDER = "writes/"
_BEGIN, _END = f"{_FOLDER}begin.json", f"{_FOLDER}end.json"
# A recording has at most 65,536 events, and a file is one.
_MOST_STEPS = 60_000


class WritesRecorder(AbstractContextManager["WritesRecorder"]):
    """Records a measurement inside the context. `problem` is the reason why a part is missing, or None."""

    def __init__(self, path: Path, every_s: float | None, clocks: Anchor, disks: Iterable[str]) -> None:
        target = create_recording(path, make_header(every_s), clocks)
        self._recorder = Recorder(target, print_message)
        self._taker = make_note_taker(target, self._recorder)
        self._path = path
        self._count = 0
        self._reason = "interrupted"
        warn_of_own_disk(self._recorder, path, disks)

    @property
    def problem(self) -> str | None:
        return self._recorder.problem

    def record_beginning(self, question: WritesQuestion, first: WritesReading) -> None:
        """Record what is measured, and a summary for readers other than opwatch."""
        stack = question.stack
        words = {
            "subject": replace_invalid(stack.subject),
            "filesystem": stack.filesystem,
            "devices": list(stack.tops),
        }
        self._recorder.add_event(WRITES, format_json(words))
        self._recorder.add_file(_BEGIN, encode_writes(WritesBeginning(question, first)))

    def record_step(self, step: WritesStep) -> None:
        """Record the end of an interval, unless the recording is full."""
        self._count += 1
        if self._count <= _MOST_STEPS:
            self._recorder.add_file(f"{_FOLDER}{self._count}.json", encode_writes(step))
        elif self._count == _MOST_STEPS + 1:
            print_message(f"{self._path} has {_MOST_STEPS} intervals and is full; only the total is added")

    def record_end(self, end: WritesEnd) -> None:
        self._recorder.add_file(_END, encode_writes(end))
        self._reason = "the measurement has ended"

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._taker.close()
        self._recorder.finish_recording(f"interrupted: {kind.__name__}" if kind else self._reason)


def is_writes_recording(run: RecordedRun) -> bool:
    """Return whether `opwatch writes` made the recording, which then has its readings and no disks."""
    return any(event.kind == WRITES for event in run.events)


def read_writes(run: RecordedRun) -> Iterator[WritesOutcome]:
    """Yield the rows of each interval, if there are several, and then those of all intervals."""
    files = [file for file in iterate_files(run) if file.name.startswith(_FOLDER)]
    if not files or files[0].name != _BEGIN:
        raise NotEnoughData(f"{run.name}: it ended before the first reading")
    beginning = decode_beginning(*_read_part(run, files[0]))
    question = beginning.question
    series, end = WritesSeries(question, beginning.first, run.to_wall_time), None
    for file in files[1:]:
        raw, where = _read_part(run, file)
        if file.name == _END:
            end = decode_end(raw, question.stack, where)
            _check_order(series, end.reading, where)
            break
        step = decode_step(raw, question.stack, where)
        _check_order(series, step.reading, where)
        outcome = series.add_step(step)
        if question.every_s:
            yield outcome
    total = series.make_total(end) if end else series.make_unended_total()
    if total is None:
        raise NotEnoughData(f"{run.name}: it ended before the first interval did")
    yield total


def _read_part(run: RecordedRun, file: StoredFile) -> tuple[bytes, str]:
    """Return the bytes of a part, and its name for messages."""
    return read_stored_file(run, file), f"{run.name}: {file.name}"


def _check_order(series: WritesSeries, reading: WritesReading, where: str) -> None:
    if reading.mono_ns < series.newest.mono_ns:
        raise BadInput(f"{where}: its reading is earlier than the one before")


def show_writes(run: RecordedRun, *, as_json: bool, quiet: bool) -> None:
    """Show a recorded measurement in its original form; with `quiet`, only the total."""
    printer = WritesPrinter(as_json=as_json)
    for outcome in read_writes(run):
        if not quiet or outcome.part is not WritesPart.INTERVAL:
            printer.print_outcome(outcome)
