"""`opwatch replay FILE [INTERVAL]`: show a recording as it was shown live."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import TextIO

from opwatch.counters.catalogue.families import load_catalogue
from opwatch.errors import NotEnoughData, UsageError
from opwatch.foreign import whole
from opwatch.recording.reading.files import kept_files
from opwatch.recording.reading.notes import kept_notes
from opwatch.recording.reading.reader import RecordedRun, is_damage
from opwatch.recording.reading.steps import Steps
from opwatch.recording.reading.window import between, ended, in_steps
from opwatch.recording.schema import FILE, NOTE
from opwatch.samples.entries import Began, Ended, RunEntry, Ticked
from opwatch.samples.entry_parts import first_moment
from opwatch.samples.observation import Sink
from opwatch.samples.source import show
from opwatch.samples.story import Story
from opwatch.sinks.jsonl import JsonLines
from opwatch.sinks.lines import Lines
from opwatch.sinks.plain.ink import is_wanted
from opwatch.sinks.terminal import data, say
from opwatch.times import parse_time
from opwatch.tools.arguments import add_color_argument, file_name, time_between
from opwatch.tools.commands.counters import add_catalogue_argument
from opwatch.tools.dashboard.choice import add_screen_arguments, shows_dashboard
from opwatch.tools.kept_audits import is_of_audit, show_audits
from opwatch.tools.kept_run import show_rest
from opwatch.tools.waf_outcome import is_of_waf, recorded_waf, show_run

_MOST_STEP_S = 86400
_DAY = timedelta(days=1)
# Header fields about the file layout, which users do not need.
_LAYOUT = ("format", "ops", "counters", "slots")


# Argument type of INTERVAL.
interval = time_between(0.01, _MOST_STEP_S)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "opwatch replay FILE [INTERVAL] [--from T] [--to T | --at T] [--speed X | --step] [options]"
    )
    add_part_arguments(parser)
    parser.add_argument("--at", metavar="T", help="show the interval that this moment lies in")
    pace = parser.add_mutually_exclusive_group()
    pace.add_argument(
        "--speed", type=_speed, metavar="X", help="as fast as it was (1), or so many times faster"
    )
    pace.add_argument(
        "--step",
        action="store_true",
        help="the next interval on Enter, N of them on N and Enter, the end on q",
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help='JSON lines, "schema":"opwatch/1"')
    add_screen_arguments(form)
    add_color_argument(parser)
    add_catalogue_argument(parser)
    parser.add_argument("-q", "--quiet", action="store_true", help="only the summary")
    parser.add_argument("-v", "--verbose", action="store_true", help="say what the file says of itself")


def add_part_arguments(parser: argparse.ArgumentParser) -> None:
    """Add arguments for the recording, the interval, and the part to show."""
    parser.add_argument("file", type=file_name, metavar="FILE", help="a recording")
    parser.add_argument(
        "interval",
        nargs="?",
        type=interval,
        metavar="INTERVAL",
        help="time between lines, as recorded or longer (as recorded)",
    )
    add_bounds_arguments(parser)


def add_bounds_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the bounds of the part to show."""
    parser.add_argument(
        "--from",
        dest="begin",
        metavar="T",
        help="begin here: a time since the begin (90, 10m), or of the clock (14:05, 14:05:30, "
        "2026-11-22T14:05:30)",
    )
    parser.add_argument("--to", dest="end", metavar="T", help="end here")


def _speed(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no number") from None
    if not 0.001 <= value <= 1e6:
        raise argparse.ArgumentTypeError("must be from 0.001 to 1000000")
    return value


class Replay:
    """A recording as a source."""

    def __init__(self, run: RecordedRun, args: argparse.Namespace) -> None:
        self._run, self._args = run, args
        self._recorded_ns = _interval_ns(run)
        if reason := made_without_intervals(run):
            raise NotEnoughData(f"{run.name}: {reason}: opwatch replay shows it, with --json for programs")
        # Events on a damaged file come before the first disk.
        first = next((entry for entry in run.entries() if not is_damage(entry)), None)
        if not isinstance(first, Began):
            raise NotEnoughData(f"{run.name}: nothing was watched yet when it ended")
        self._first = first
        self.step_ns = self._step_ns()

    def _step_ns(self) -> int:
        asked_ns = round((self._args.interval or 0) * 1e9)
        if asked_ns and asked_ns < self._recorded_ns:
            raise UsageError(
                f"{self._run.name} has a sample every {self._recorded_ns / 1e9:g} s: shorter intervals are "
                "not in it"
            )
        return asked_ns or self._recorded_ns

    def moment(self, text: str) -> int:
        """Return a time on the clock of the samples."""
        begin_ns = first_moment(self._first)
        try:
            return begin_ns + round(parse_time(text) * 1e9)
        except UsageError:
            pass
        anchor = self._first.sample.anchor
        begun = anchor.wall(begin_ns).astimezone()
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
                f"{text!r} is no moment: write a time since the begin (90, 10m), or one of the clock (14:05, "
                "14:05:30, 2026-11-22T14:05:30)"
            ) from None
        return begin_ns + (at - begun) // timedelta(microseconds=1) * 1000

    def entries(self) -> Iterator[RunEntry]:
        args = self._args
        begin_ns = self.moment(args.begin) if args.begin else None
        end_ns = self.moment(args.end) if args.end else None
        if begin_ns is not None and end_ns is not None and end_ns <= begin_ns:
            raise UsageError("--to lies before --from")
        if args.at:
            yield from self._around(self.moment(args.at))
            return
        steps = self._steps(begin_ns, end_ns)
        chosen: Iterator[RunEntry] = self._run.entries(begin_ns or 0, steps)
        if begin_ns is None and end_ns is None:
            chosen = ended(chosen)
        else:
            chosen = between(chosen, begin_ns or 0, end_ns)
        if steps:
            chosen = in_steps(chosen, steps)
        is_empty = True
        if args.step:
            chosen = ended(_stepped(chosen, sys.stdin))
        for entry in self._paced(chosen):
            is_empty = False
            yield entry
        if is_empty:
            raise NotEnoughData(f"{self._run.name} has nothing in that time")

    def _steps(self, *marks: int | None) -> Steps | None:
        """Return the intervals to show if longer than the recorded intervals."""
        if self.step_ns <= self._recorded_ns:
            return None
        return Steps(self.step_ns, self._recorded_ns, tuple(mark for mark in marks if mark is not None))

    def _around(self, at_ns: int) -> Iterator[RunEntry]:
        """Return the entries from the last samples before a time to the first samples after that time, or an
        interval later."""
        steps = self._steps(at_ns - 1)
        chosen = between(self._run.entries(at_ns - 1, steps), at_ns - 1, None)
        if steps:
            chosen = in_steps(chosen, steps)
        for entry in chosen:
            if isinstance(entry, Ended):
                break
            yield entry
            if isinstance(entry, Ticked):
                return
        raise NotEnoughData(f"{self._run.name} has no interval there")

    def _paced(self, entries: Iterator[RunEntry]) -> Iterator[RunEntry]:
        """Yield the entries, each at its time if a speed was given."""
        if not self._args.speed:
            yield from entries
            return
        begun, first_ns = time.monotonic(), 0
        for entry in entries:
            at_ns = first_moment(entry)
            first_ns = first_ns or at_ns
            due = begun + (at_ns - first_ns) / 1e9 / self._args.speed
            time.sleep(max(0.0, due - time.monotonic()))
            yield entry


def _stepped(entries: Iterator[RunEntry], keys: TextIO) -> Iterator[RunEntry]:
    """Yield the entries, but wait for the user before each interval except the first. End when the input
    ends."""
    asked = 1
    for entry in entries:
        if isinstance(entry, Ticked):
            while asked < 1:
                line = keys.readline()
                word = line.strip()
                if not line or word == "q":
                    return
                asked = whole(word, 9) or int(not word)
            asked -= 1
        yield entry


def _interval_ns(run: RecordedRun) -> int:
    value = run.header.get("interval_ns")
    return value if isinstance(value, int) and 0 < value <= _MOST_STEP_S * 10**9 else 10**9


def notes_of(run: RecordedRun, *, verbose: bool = False, with_damage: bool = True) -> list[str]:
    """Return messages to print before a recording is shown. Without `with_damage`, the damage that entries()
    reports is left out."""
    notes = []
    if verbose:
        notes = [f"{name}: {value}" for name, value in run.header.items() if name not in _LAYOUT]
        notes += [f"{event.kind}: {event.words}" for event in run.events if event.kind not in (FILE, NOTE)]
        notes += [f"file: {file.name}, {file.size} bytes" for file in kept_files(run)]
    notes += [note.line() for note in kept_notes(run)]
    if run.damage:
        notes += [run.damage] if with_damage else []
    elif run.missing:
        notes.append(f"{run.name}: its last {run.missing} bytes are missing")
    elif not run.trailer:
        notes.append(f"{run.name} has no end: its recorder was killed; what it kept until then is shown")
    elif run.trailer.left_out:
        notes.append(f"{run.name}: {run.trailer.left_out} entries were left out: its disk was too slow")
    return notes


def open_run(path: Path) -> RecordedRun:
    """Open a recording for reading."""
    try:
        return RecordedRun(path)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error


def _shown_whole(run: RecordedRun, args: argparse.Namespace) -> bool:
    """Show a recording without intervals: a measurement by `opwatch waf`, or trim audits. Return False if it
    has intervals."""
    is_waf = is_of_waf(run)
    if not is_waf and not is_of_audit(run):
        return False
    if args.interval or args.at or args.begin or args.end or args.step or args.speed:
        raise UsageError(f"{run.name}: {made_without_intervals(run)}: it is shown as a whole")
    if is_waf:
        show_run(recorded_waf(run, load_catalogue(args.counters)), as_json=args.json)
    else:
        show_audits(run, as_json=args.json, quiet=args.quiet)
    return True


def made_without_intervals(run: RecordedRun) -> str | None:
    """Return the reason why a recording has no intervals, or None if it has some."""
    if is_of_waf(run):
        return "it is of opwatch waf, which measures one interval"
    return "it is of opwatch trim audit, which has no intervals" if is_of_audit(run) else None


def _unless(args: argparse.Namespace) -> str | None:
    """Return an option that the dashboard does not support, as a sentence, or None."""
    if args.step:
        return "--step is for lines"
    return "--at shows one interval, as lines" if args.at else None


def run(args: argparse.Namespace) -> int:
    if args.at and (args.begin or args.end):
        raise UsageError("--at shows one interval: leave out --from and --to")
    kept = open_run(args.file)
    try:
        is_whole = made_without_intervals(kept) is not None
        for note in notes_of(kept, verbose=args.verbose, with_damage=is_whole):
            say(note)
        if _shown_whole(kept, args):
            return 0
        replay = Replay(kept, args)
        inked = is_wanted(args.color, sys.stdout)
        if shows_dashboard(args, unless=_unless(args)):
            # Imported here because it is slow.
            from opwatch.tools.dashboard.replaying import show_file

            show_file(replay, kept, interval_s=replay.step_ns / 1e9, is_coloured=inked)
            return 0
        sink: Sink = Lines(sys.stdout, quiet=args.quiet, every_s=replay.step_ns / 1e9, inked=inked)
        if args.json:
            sink = JsonLines(sys.stdout, quiet=args.quiet)
        show(replay, Story(), sink, say)
        if not (args.at or args.begin or args.end or args.step):
            # These figures cover whole jobs, and therefore the whole recording only.
            show_rest(kept, data().lines, as_json=args.json)
    finally:
        kept.close()
    return 0
