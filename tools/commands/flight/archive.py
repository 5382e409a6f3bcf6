"""`opwatch flight archive -o DIR`: write the rows that wait in a ring's folder into an archive."""

from __future__ import annotations

import argparse
from contextlib import closing
from pathlib import Path

from opwatch.errors import OpwatchError
from opwatch.recording.ring.folder import RingFolder
from opwatch.sinks.export.archive import convert_spool, make_archive_folder
from opwatch.sinks.export.duckdb_writer import require_duckdb
from opwatch.sinks.export.spool import close_leftovers, lock_spool
from opwatch.sinks.terminal import print_message
from opwatch.tools.commands.flight.archiving import SPOOL
from opwatch.tools.commands.flight.keep import add_ring_argument


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "opwatch flight archive -o DIR [--ring DIR]"
    parser.add_argument(
        "-o", "--output", required=True, type=Path, metavar="DIR", help="the archive's folder"
    )
    add_ring_argument(parser)
    parser.add_argument("-q", "--quiet", action="store_true", help="print errors only")


def run(args: argparse.Namespace) -> int:
    require_duckdb()
    with closing(RingFolder(args.ring)) as folder:
        spool = args.ring / SPOOL
        if not spool.is_dir():
            raise OpwatchError(
                f"{args.ring} has no rows for an archive: start opwatch flight with --archive {args.output}"
            )
        if not folder.is_owned():
            folder.lock_as_recorder()
            close_leftovers(spool)
        with lock_spool(spool) as is_ours:
            if not is_ours:
                print_message(f"another process writes the rows of {args.ring} into an archive")
                return 0
            make_archive_folder(args.output)
            added, messages = convert_spool(spool, args.output)
            for message in messages:
                print_message(message)
    if not args.quiet:
        waiting = "" if added else ", because no rows were waiting"
        print_message(f"{args.output}: {len(added)} new files{waiting}")
        for path in added:
            print_message(str(path))
    return 0
