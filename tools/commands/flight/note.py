"""`opwatch flight note TEXT...`: add a note to the ring of a running flight recorder."""

from __future__ import annotations

import argparse
from contextlib import closing

from opwatch.errors import UsageError
from opwatch.recording.ring.folder import RingFolder
from opwatch.recording.writing.notes import send_note
from opwatch.tools.commands.flight.keep import add_ring_argument


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "opwatch flight note TEXT... [--ring DIR]"
    parser.add_argument(
        "words", nargs="+", metavar="TEXT", help="the text of the note; words are joined by spaces"
    )
    add_ring_argument(parser)


def run(args: argparse.Namespace) -> int:
    with closing(RingFolder(args.ring)) as folder:
        if not folder.is_owned():
            raise UsageError(f"no flight recorder writes to {args.ring}: start one with opwatch flight")
        send_note(folder.descriptor, str(args.ring), " ".join(args.words))
    return 0
