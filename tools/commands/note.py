"""`opwatch note FILE TEXT...`: add a note to a recording that is being written."""

from __future__ import annotations

import argparse

from opwatch.errors import UsageError
from opwatch.recording.reading.write_ahead_log import is_being_written, open_regular
from opwatch.recording.writing.notes import send_note
from opwatch.tools.arguments import parse_file_name


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "opwatch note FILE TEXT..."
    parser.add_argument("file", type=parse_file_name, metavar="FILE", help="a running recording")
    parser.add_argument(
        "words", nargs="+", metavar="TEXT", help="the text of the note; words are joined by spaces"
    )


def run(args: argparse.Namespace) -> int:
    try:
        if args.file.is_dir():
            raise UsageError(
                f"{args.file} is a folder; for the ring of a flight recorder use: "
                "opwatch flight note TEXT --ring DIR"
            )
        with open_regular(args.file) as descriptor:
            if not is_being_written(descriptor):
                raise UsageError(
                    f"{args.file} is not being written: add notes while a recording runs, or with --note "
                    "when it starts"
                )
            send_note(descriptor, str(args.file), " ".join(args.words))
    except OSError as error:
        raise UsageError(f"{args.file}: {error.strerror}") from error
    return 0
