"""`opwatch flight dump -o FILE`: write the contents of the ring as a normal recording."""

from __future__ import annotations

import argparse
from contextlib import closing
from datetime import UTC, datetime

from opwatch import units
from opwatch.recording.reading.window import close_run, select_window
from opwatch.recording.ring.dumping import write_run
from opwatch.recording.ring.folder import RingFolder
from opwatch.recording.ring.joined import JoinedRun
from opwatch.samples.entry_parts import find_start_ns
from opwatch.sinks.terminal import print_message
from opwatch.tools.arguments import time_between
from opwatch.tools.commands.flight.keep import add_ring_argument
from opwatch.tools.runs.explaining import write_answer
from opwatch.tools.runs.live_watch import add_recording_argument
from opwatch.tools.runs.run_recorder import create_recording, remove_on_error


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "opwatch flight dump -o FILE [--last T] [--why] [--ring DIR]"
    add_recording_argument(parser)
    parser.add_argument(
        "--last",
        type=time_between(0.01, 86400 * 7),
        metavar="T",
        help="at most this time, up to now (all)",
    )
    add_ring_argument(parser)
    parser.add_argument(
        "--why", action="store_true", help="also write the answer of opwatch why into FILE.why"
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="print errors only")


def run(args: argparse.Namespace) -> int:
    with closing(RingFolder(args.ring)) as folder, folder.keep_segments():
        if folder.is_owned():
            folder.request_segment()
        with closing(JoinedRun(folder)) as joined:
            for problem in joined.lost:
                print_message(f"left out: {problem}")
            begin_ns = _find_last_ns(joined) - round(args.last * 1e9) if args.last else 0
            entries = (
                select_window(joined.iter_entries(), begin_ns, None)
                if args.last
                else close_run(joined.iter_entries())
            )
            headline = joined.header | {"dumped": datetime.now(UTC).isoformat(timespec="seconds")}
            target = create_recording(args.output, headline)
            with remove_on_error(target):
                write_run(entries, [event for event in joined.events if event.mono_ns >= begin_ns], target)
    if args.why:
        write_answer(args.output)
    if not args.quiet:
        print_message(f"{args.output}: {units.format_capacity(args.output.stat().st_size)}")
    return 0


def _find_last_ns(joined: JoinedRun) -> int:
    return max((find_start_ns(entry) for entry in joined.iter_entries(last_only=True)), default=0)
