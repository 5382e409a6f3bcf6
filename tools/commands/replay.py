"""`opwatch replay FILE [INTERVAL]`: show a recording as it was shown live."""

from __future__ import annotations

import argparse
import sys

from opwatch.counters.catalogue.families import load_catalogue
from opwatch.errors import UsageError
from opwatch.recording.reading.reader import RecordedRun
from opwatch.samples.observation import Sink
from opwatch.samples.presenter import RunPresenter
from opwatch.samples.source import present_run
from opwatch.sinks.jsonl import JsonLines
from opwatch.sinks.lines import TextLines
from opwatch.sinks.terminal import open_stdout, print_message
from opwatch.sinks.tones import is_colour_wanted
from opwatch.tools.arguments import add_catalogue_argument, add_color_argument, parse_file_name
from opwatch.tools.dashboard.choice import add_screen_arguments, is_dashboard_chosen
from opwatch.tools.runs.audit_recorder import show_audits
from opwatch.tools.runs.replay import (
    Replay,
    add_bounds_arguments,
    explain_no_intervals,
    interval,
    list_notes,
    open_run,
)
from opwatch.tools.runs.run_recorder import show_notes_and_fio
from opwatch.tools.runs.waf_outcome import is_waf_recording, read_waf, show_waf
from opwatch.tools.runs.writes_recorder import is_writes_recording, show_writes


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "opwatch replay FILE [INTERVAL] [--from T] [--to T | --at T] [--speed X | --step] [options]"
    )
    add_part_arguments(parser)
    parser.add_argument("--at", metavar="T", help="show the one interval that contains this moment")
    pace = parser.add_mutually_exclusive_group()
    pace.add_argument(
        "--speed",
        type=_parse_speed,
        metavar="X",
        help="show each interval at its time: 1 is real time, 10 is ten times faster",
    )
    pace.add_argument(
        "--step",
        action="store_true",
        help="wait after each interval: Enter shows the next one, N and Enter the next N, q and Enter ends",
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help='print JSON lines, "schema":"opwatch/1"')
    add_screen_arguments(form)
    add_color_argument(parser)
    add_catalogue_argument(parser)
    parser.add_argument("-q", "--quiet", action="store_true", help="print the summary only")
    parser.add_argument(
        "-v",
        "--verbose",
        action="store_true",
        help="print where and how the recording was made, and the events during it",
    )


def add_part_arguments(parser: argparse.ArgumentParser) -> None:
    """Add arguments for the recording, the interval, and the part to show."""
    parser.add_argument("file", type=parse_file_name, metavar="FILE", help="the recording")
    parser.add_argument(
        "interval",
        nargs="?",
        type=interval,
        metavar="INTERVAL",
        help="time between lines, that of the recording or longer (as recorded)",
    )
    add_bounds_arguments(parser)


def _parse_speed(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
    if not 0.001 <= value <= 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is out of range (0.001 to 1000000)")
    return value


def _show_whole(run: RecordedRun, args: argparse.Namespace) -> bool:
    """Show a recording without a watch: by `opwatch waf`, `opwatch writes` or `opwatch trim audit`. Return
    False if it has a watch."""
    if not explain_no_intervals(run):
        return False
    if args.interval or args.at or args.begin or args.end or args.step or args.speed:
        raise UsageError(f"{run.name}: {explain_no_intervals(run)}; it can only be shown as a whole")
    if is_waf_recording(run):
        show_waf(read_waf(run, load_catalogue(args.counters)), as_json=args.json)
    elif is_writes_recording(run):
        show_writes(run, as_json=args.json, quiet=args.quiet)
    else:
        show_audits(run, as_json=args.json, quiet=args.quiet)
    return True


def _find_conflict(args: argparse.Namespace) -> str | None:
    """Return an option that the dashboard does not support, as a sentence, or None."""
    if args.step:
        return "--step works with lines only"
    return "--at works with lines only" if args.at else None


def run(args: argparse.Namespace) -> int:
    if args.at and (args.begin or args.end):
        raise UsageError("--at shows one interval: leave out --from and --to")
    kept = open_run(args.file)
    try:
        is_whole = explain_no_intervals(kept) is not None
        for note in list_notes(kept, verbose=args.verbose, with_damage=is_whole):
            print_message(note)
        if _show_whole(kept, args):
            return 0
        replay = Replay(kept, args)
        inked = is_colour_wanted(args.color, sys.stdout)
        if is_dashboard_chosen(args, unless=_find_conflict(args)):
            # Imported here because it is slow.
            from opwatch.tools.dashboard.replaying import show_file

            show_file(replay, kept, interval_s=replay.step_ns / 1e9, is_coloured=inked)
            return 0
        sink: Sink = TextLines(sys.stdout, quiet=args.quiet, every_s=replay.step_ns / 1e9, inked=inked)
        if args.json:
            sink = JsonLines(sys.stdout, quiet=args.quiet)
        present_run(replay, RunPresenter(), sink, print_message)
        if not (args.at or args.begin or args.end or args.step):
            # These figures cover whole jobs, and therefore the whole recording only.
            show_notes_and_fio(kept, open_stdout().write_lines, as_json=args.json)
    finally:
        kept.close()
    return 0
