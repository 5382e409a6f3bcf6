"""`opwatch note FILE TEXT...`: add a note to a recording that is being written."""

from __future__ import annotations

import argparse

from opwatch.errors import UsageError
from opwatch.recording.reading.write_ahead_log import is_being_written, open_regular
from opwatch.recording.writing.notes import send_note
from opwatch.tools.arguments import parse_file_name


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "opwatch note FILE TEXT..."
    parser.add_argument(
        "file", type=parse_file_name, metavar="FILE", help="a recording that is being written"
    )
    parser.add_argument("words", nargs="+", metavar="TEXT", help="what to note; words are joined by blanks")


def run(args: argparse.Namespace) -> int:
    try:
        if args.file.is_dir():
            raise UsageError(
                f"{args.file} is a folder: a note into the ring of a flight recorder is written by opwatch "
                "flight note TEXT --ring DIR"
            )
        with open_regular(args.file) as descriptor:
            if not is_being_written(descriptor):
                raise UsageError(
                    f"{args.file} is not being written: notes are for a recording that goes on, and --note "
                    "for one that begins"
                )
            send_note(descriptor, str(args.file), " ".join(args.words))
    except OSError as error:
        raise UsageError(f"{args.file}: {error.strerror}") from error
    return 0
