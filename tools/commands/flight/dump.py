"""`opwatch flight dump -o FILE`: write the contents of the ring as a normal recording."""

from __future__ import annotations

import argparse
from contextlib import closing
from datetime import UTC, datetime

from opwatch import units
from opwatch.recording.reading.window import between, ended
from opwatch.recording.ring.dumping import write_run
from opwatch.recording.ring.folder import RingFolder
from opwatch.recording.ring.joined import JoinedRun
from opwatch.samples.entry_parts import first_moment
from opwatch.sinks.terminal import say
from opwatch.tools.arguments import time_between
from opwatch.tools.commands.flight.keep import add_ring_argument
from opwatch.tools.commands.record import add_recording_argument
from opwatch.tools.kept_run import made, whole


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "opwatch flight dump -o FILE [--last T] [--ring DIR]"
    add_recording_argument(parser)
    parser.add_argument(
        "--last",
        type=time_between(0.01, 86400 * 7),
        metavar="T",
        help="no more than this (all that is there)",
    )
    add_ring_argument(parser)
    parser.add_argument("-q", "--quiet", action="store_true", help="say nothing but what went wrong")


def run(args: argparse.Namespace) -> int:
    with closing(RingFolder(args.ring)) as folder, folder.kept():
        if folder.is_owned():
            folder.request()
        with closing(JoinedRun(folder)) as joined:
            for problem in joined.lost:
                say(f"left out: {problem}")
            begin_ns = _last_moment(joined) - round(args.last * 1e9) if args.last else 0
            entries = between(joined.entries(), begin_ns, None) if args.last else ended(joined.entries())
            headline = joined.header | {"dumped": datetime.now(UTC).isoformat(timespec="seconds")}
            target = made(args.output, headline)
            with whole(target):
                write_run(entries, [event for event in joined.events if event.mono_ns >= begin_ns], target)
    if not args.quiet:
        say(f"{args.output}: {units.capacity(args.output.stat().st_size)}")
    return 0


def _last_moment(joined: JoinedRun) -> int:
    return max((first_moment(entry) for entry in joined.entries(last_only=True)), default=0)
