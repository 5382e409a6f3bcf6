"""`opwatch [--dev D]... [INTERVAL [COUNT]] [-o FILE] [-- CMD...]`: trace and show, interval by interval."""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING

from opwatch.errors import UsageError
from opwatch.owners.cells import OwnerGrouping
from opwatch.samples.observation import Sink
from opwatch.samples.presenter import RunPresenter
from opwatch.samples.source import present_run
from opwatch.sinks.jsonl import JsonLines
from opwatch.sinks.lines import TextLines
from opwatch.sinks.terminal import open_stdout, print_message
from opwatch.sinks.tones import is_colour_wanted
from opwatch.tools.arguments import Options, add_color_argument, parse_file_name
from opwatch.tools.dashboard.choice import add_screen_arguments, is_dashboard_chosen
from opwatch.tools.runs.live_watch import (
    add_device_argument,
    add_interval_arguments,
    add_keeping_arguments,
    add_measuring_arguments,
    add_tracing_arguments,
    attach_watch,
    make_run_recorder,
)
from opwatch.tools.runs.waiting import LiveRun

if TYPE_CHECKING:
    from opwatch.tools.runs.run_recorder import RunRecorder


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "opwatch [--dev D]... [options] [INTERVAL [COUNT]] [-- CMD...]"
    what = parser.add_argument_group("what to watch, and for how long")
    add_device_argument(what)
    add_interval_arguments(what, 1.0, between="lines", counted="intervals")
    add_measuring_arguments(parser.add_argument_group("what else to measure"))
    _add_form_arguments(parser.add_argument_group("output"))
    kept = parser.add_argument_group("recording")
    kept.add_argument(
        "-o",
        "--output",
        type=parse_file_name,
        metavar="FILE",
        help="also record into a new file; opwatch replay FILE shows the same output",
    )
    add_keeping_arguments(kept)
    add_tracing_arguments(parser.add_argument_group("tracing"))


def _add_form_arguments(parser: Options) -> None:
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help='print JSON lines, "schema":"opwatch/1"')
    add_screen_arguments(form)
    add_color_argument(parser)
    parser.add_argument("-q", "--quiet", action="store_true", help="print the summary only")
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="print which programs are attached, and how"
    )
    parser.add_argument(
        "--strict",
        action="store_true",
        help="exit with status 1 if the trust line reports anything unexplained",
    )


def run(args: argparse.Namespace) -> int:
    inked = is_colour_wanted(args.color, sys.stdout)
    sink: Sink = TextLines(sys.stdout, quiet=args.quiet, every_s=args.interval, inked=inked)
    if args.json:
        sink = JsonLines(sys.stdout, quiet=args.quiet)
    kept: RunRecorder | None = None
    if args.note and not args.output:
        raise UsageError("--note needs a recording: add -o FILE")
    if is_dashboard_chosen(args, unless=_find_conflict(args)):
        return _run_dashboard(args, sink, inked=inked)
    with ExitStack() as stack:
        live, story = attach_watch(args, stack), RunPresenter()
        if args.output:
            kept = stack.enter_context(make_run_recorder(live, args, quiet_stdout=args.json))
        live.start_command(quiet_stdout=args.json)
        try:
            present_run(kept or live, story, sink, print_message)
        except BrokenPipeError:
            if live.end:
                raise
            # The reader is gone, but the command must not suffer.
            return live.wait_for_command()
    if kept:
        kept.show_notes_and_fio(open_stdout().write_lines, as_json=args.json)
    return _choose_exit_status(args, live, story, kept)


def _find_conflict(args: argparse.Namespace) -> str | None:
    """Return a reason against the dashboard, as a sentence, or None."""
    if args.command:
        return "the command after -- uses the terminal; record it with -o FILE, and replay the recording"
    return "COUNT works with lines only" if args.count else None


def _run_dashboard(args: argparse.Namespace, sink: Sink, *, inked: bool) -> int:
    # Imported here because it is slow.
    from opwatch.tools.dashboard.showing import LiveScreen

    story = RunPresenter()
    with ExitStack() as stack:
        screen = stack.enter_context(LiveScreen(is_coloured=inked))
        live = attach_watch(args, stack, OwnerGrouping.CGROUP)
        kept = stack.enter_context(make_run_recorder(live, args)) if args.output else None
        screen.show_run(live, kept, story, sink, args.interval)
    return _choose_exit_status(args, live, story, kept)


def _choose_exit_status(
    args: argparse.Namespace, live: LiveRun, story: RunPresenter, kept: RunRecorder | None
) -> int:
    if live.gone:
        print_message(f"{live.gone} is gone; the summary ends there")
        return 1
    failed = 1 if kept and kept.problem else 0
    if args.strict and story.unexplained:
        print_message("--strict: " + "; ".join(story.unexplained))
        failed = 1
    return live.status or failed
