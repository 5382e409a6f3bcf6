"""A recording as a run that is shown again: its part, its pace, and the messages about it."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import TextIO

from opwatch.errors import NotEnoughData, UsageError
from opwatch.foreign import parse_unsigned
from opwatch.recording.reading.files import iterate_files
from opwatch.recording.reading.notes import iterate_notes
from opwatch.recording.reading.reader import RecordedRun, is_damage
from opwatch.recording.reading.steps import IntervalSteps
from opwatch.recording.reading.window import close_run, merge_intervals, select_window
from opwatch.recording.schema import FILE, NOTE, SWEEP
from opwatch.samples.entries import DiskAdded, IntervalEnded, RunEnded, RunEntry
from opwatch.samples.entry_parts import find_start_ns
from opwatch.times import parse_time
from opwatch.tools.arguments import time_between
from opwatch.tools.runs.audit_recorder import is_audit_recording
from opwatch.tools.runs.waf_outcome import is_waf_recording
from opwatch.tools.runs.writes_recorder import is_writes_recording

_MAX_STEP_S = 86400
_DAY = timedelta(days=1)
# Header fields about the file layout, which users do not need.
_LAYOUT_FIELDS = ("format", "ops", "counters", "slots")


# Argument type of INTERVAL.
interval = time_between(0.01, _MAX_STEP_S)


def add_bounds_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the bounds of the part to show."""
    parser.add_argument(
        "--from",
        dest="begin",
        metavar="T",
        help="start here: an offset from the start (90, 10m), or a time of day (14:05, 14:05:30, "
        "2026-11-22T14:05:30)",
    )
    parser.add_argument("--to", dest="end", metavar="T", help="end here")


class Replay:
    """A recording as a source."""

    def __init__(self, run: RecordedRun, args: argparse.Namespace) -> None:
        self._run, self._args = run, args
        self._recorded_ns = _get_interval_ns(run)
        if reason := explain_no_intervals(run):
            raise NotEnoughData(f"{run.name}: {reason}; opwatch replay shows it (with --json for programs)")
        # Events on a damaged file come before the first disk.
        first = next((entry for entry in run.iter_entries() if not is_damage(entry)), None)
        if not isinstance(first, DiskAdded):
            raise NotEnoughData(f"{run.name}: it ended before anything was watched")
        self._first = first
        self.step_ns = self._get_step_ns()

    def _get_step_ns(self) -> int:
        asked_ns = round((self._args.interval or 0) * 1e9)
        if asked_ns and asked_ns < self._recorded_ns:
            raise UsageError(
                f"{self._run.name} has a sample every {self._recorded_ns / 1e9:g} s: it cannot show "
                "shorter intervals"
            )
        return asked_ns or self._recorded_ns

    def _find_begun(self) -> datetime:
        """Return the local time of the start."""
        return self._first.sample.anchor.to_wall_time(find_start_ns(self._first)).astimezone()

    def parse_time(self, text: str) -> int:
        """Return a time on the clock of the samples."""
        begin_ns = find_start_ns(self._first)
        try:
            return begin_ns + round(parse_time(text) * 1e9)
        except UsageError:
            pass
        begun = self._find_begun()
        try:
            if "T" in text or "-" in text:
                at = datetime.fromisoformat(text).astimezone()
            else:
                clock = datetime.fromisoformat(f"2000-01-01T{text}").time()
                at = datetime.combine(begun.date(), clock).astimezone()
                # A time of day before the start refers to the next day.
                at += _DAY if at < begun - timedelta(seconds=1) else timedelta()
        except (ValueError, OverflowError):
            raise UsageError(
                f"{text!r} is not a valid time: write an offset from the start (90, 10m), or a time of day "
                "(14:05, 14:05:30, 2026-11-22T14:05:30)"
            ) from None
        return begin_ns + (at - begun) // timedelta(microseconds=1) * 1000

    def find_bounds(self) -> tuple[int | None, int | None]:
        """Return the start and the end of the part to show, by the samples' clock; None where it is the
        run's."""
        begin_ns, end_ns = (
            self.parse_time(one) if one else None for one in (self._args.begin, self._args.end)
        )
        if begin_ns is not None and end_ns is not None and end_ns <= begin_ns:
            raise UsageError("--to is not later than --from")
        return begin_ns, end_ns

    def iter_entries(self, minutes: Mapping[int, frozenset[int]] | None = None) -> Iterator[RunEntry]:
        """Yield the entries of the part to show. `minutes` are the places to read by block, None for all."""
        args = self._args
        begin_ns, end_ns = self.find_bounds()
        if args.at:
            yield from self._select_around(self.parse_time(args.at))
            return
        steps = self._make_steps(begin_ns, end_ns)
        chosen: Iterator[RunEntry] = self._run.iter_entries(begin_ns or 0, steps, minutes)
        if begin_ns is None and end_ns is None:
            chosen = close_run(chosen)
        else:
            chosen = select_window(chosen, begin_ns or 0, end_ns)
        if steps:
            chosen = merge_intervals(chosen, steps)
        is_empty = True
        if args.step:
            chosen = close_run(_step_entries(chosen, sys.stdin))
        for entry in self._pace_entries(chosen):
            is_empty = False
            yield entry
        if is_empty:
            begun = self._find_begun()
            raise NotEnoughData(
                f"{self._run.name} has no samples in that time; it starts at {begun:%Y-%m-%dT%H:%M:%S}"
            )

    def _make_steps(self, *marks: int | None) -> IntervalSteps | None:
        """Return the intervals to show if longer than the recorded intervals."""
        if self.step_ns <= self._recorded_ns:
            return None
        return IntervalSteps(
            self.step_ns, self._recorded_ns, tuple(mark for mark in marks if mark is not None)
        )

    def _select_around(self, at_ns: int) -> Iterator[RunEntry]:
        """Return the entries from the last samples before a time to the first samples after that time, or an
        interval later."""
        steps = self._make_steps(at_ns - 1)
        chosen = select_window(self._run.iter_entries(at_ns - 1, steps), at_ns - 1, None)
        if steps:
            chosen = merge_intervals(chosen, steps)
        for entry in chosen:
            if isinstance(entry, RunEnded):
                break
            yield entry
            if isinstance(entry, IntervalEnded):
                return
        raise NotEnoughData(f"{self._run.name} has no interval at that time")

    def _pace_entries(self, entries: Iterator[RunEntry]) -> Iterator[RunEntry]:
        """Yield the entries, each at its time if a speed was given."""
        if not self._args.speed:
            yield from entries
            return
        begun, first_ns = time.monotonic(), 0
        for entry in entries:
            at_ns = find_start_ns(entry)
            first_ns = first_ns or at_ns
            due = begun + (at_ns - first_ns) / 1e9 / self._args.speed
            time.sleep(max(0.0, due - time.monotonic()))
            yield entry


def _step_entries(entries: Iterator[RunEntry], keys: TextIO) -> Iterator[RunEntry]:
    """Yield the entries, but wait for the user before each interval except the first. End when the input
    ends."""
    asked = 1
    for entry in entries:
        if isinstance(entry, IntervalEnded):
            while asked < 1:
                line = keys.readline()
                word = line.strip()
                if not line or word == "q":
                    return
                asked = parse_unsigned(word, 9) or int(not word)
            asked -= 1
        yield entry


def _get_interval_ns(run: RecordedRun) -> int:
    value = run.header.get("interval_ns")
    return value if isinstance(value, int) and 0 < value <= _MAX_STEP_S * 10**9 else 10**9


def choose_row_interval(run: RecordedRun, wanted_s: float) -> float:
    """Return the wanted interval, or the recorded one if that is longer."""
    return max(wanted_s, _get_interval_ns(run) / 1e9)


def list_notes(run: RecordedRun, *, verbose: bool = False, with_damage: bool = True) -> list[str]:
    """Return messages to print before a recording is shown. Without `with_damage`, the damage that entries()
    reports is left out."""
    notes = []
    if verbose:
        notes = [f"{name}: {value}" for name, value in run.header.items() if name not in _LAYOUT_FIELDS]
        notes += [
            f"{event.kind}: {event.words}" for event in run.events if event.kind not in (FILE, NOTE, SWEEP)
        ]
        notes += [f"file: {file.name}, {file.size} bytes" for file in iterate_files(run)]
    notes += [note.format_line() for note in iterate_notes(run)]
    if run.damage:
        notes += [run.damage] if with_damage else []
    elif run.missing_bytes:
        notes.append(f"{run.name}: its last {run.missing_bytes} bytes are missing")
    elif not run.trailer:
        notes.append(
            f"{run.name} has no end, because its recorder was killed; everything up to then is shown"
        )
    elif run.trailer.left_out:
        notes.append(
            f"{run.name}: {run.trailer.left_out} entries were left out, because its disk was too slow"
        )
    return notes


def open_run(path: Path) -> RecordedRun:
    """Open a recording for reading."""
    try:
        return RecordedRun(path)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error


def explain_no_intervals(run: RecordedRun) -> str | None:
    """Return the reason why a recording has no intervals, or None if it has some."""
    if is_waf_recording(run):
        return "it is a recording of opwatch waf, which measures one interval"
    if is_writes_recording(run):
        return "it is a recording of opwatch writes, which has rows of written bytes"
    return (
        "it is a recording of opwatch trim audit, which has no intervals" if is_audit_recording(run) else None
    )
