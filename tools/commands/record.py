"""`opwatch record -o FILE [--dev D]... [--for T | -- CMD...]`: record a watch without showing it."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from contextlib import ExitStack

from opwatch import units
from opwatch.errors import UsageError
from opwatch.host.privilege import drop_privileges
from opwatch.samples.end import End
from opwatch.sinks.terminal import print_message
from opwatch.tools.arguments import time_between
from opwatch.tools.runs.live_watch import (
    add_device_argument,
    add_every_argument,
    add_keeping_arguments,
    add_recording_argument,
    add_unseen_watch_arguments,
    attach_watch,
    make_run_recorder,
)
from opwatch.tools.runs.run_recorder import RunRecorder

INTERRUPTED = 7


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "opwatch record -o FILE [--dev D]... [--every T] [--for T] [options] [-- CMD...]"
    add_recording_argument(parser)
    add_device_argument(parser)
    add_every_argument(parser)
    parser.add_argument(
        "--for",
        dest="seconds",
        type=time_between(0.01, 86400 * 366),
        metavar="T",
        help="end after this time (when the command ends, or on Ctrl-C)",
    )
    add_keeping_arguments(parser)
    add_unseen_watch_arguments(parser)


def run(args: argparse.Namespace) -> int:
    if args.seconds and args.command:
        raise UsageError(
            "--for and a command after -- exclude each other: the recording ends with the command"
        )
    args.count = None
    if not args.command:  # a command may need what we do not
        drop_privileges()
    if args.seconds:
        args.interval = min(args.interval, args.seconds)
    with ExitStack() as stack:
        live = attach_watch(args, stack, for_s=args.seconds)
        with make_run_recorder(live, args) as kept:
            if not args.quiet:
                ends = "" if args.command or args.seconds else "; Ctrl-C ends it"
                print_message(f"recording into {args.output}{ends}")
            live.start_command(quiet_stdout=False)
            for _ in kept.iter_entries():
                if kept.problem and not args.command:
                    # Without a command, stop when the recording fails; a command continues without it.
                    break
    if not args.quiet:
        # Standard output belongs to the command.
        kept.show_notes_and_fio(_print_lines, as_json=False)
    if live.gone:
        print_message(f"{live.gone} is gone; the recording ends there")
        return 1
    return _choose_exit_status(args, kept, live.end, live.status)


def _print_lines(texts: Iterable[str]) -> None:
    for text in texts:
        print_message(text, head="")


def _choose_exit_status(args: argparse.Namespace, kept: RunRecorder, end: End | None, status: int) -> int:
    """Return the exit status of a recording: 7 if a signal ended an incomplete recording."""
    if kept.problem:
        return status or 1
    if not args.quiet:
        lost = (
            f"; {kept.left_out} entries were left out, because its disk was too slow" if kept.left_out else ""
        )
        print_message(f"{kept.path}: {units.format_capacity(kept.path.stat().st_size)}{lost}")
    if end is End.SIGNAL and (args.command or args.seconds):
        return INTERRUPTED
    return 0 if end is End.SIGNAL else status
