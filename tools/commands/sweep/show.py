"""`opwatch sweep show FILE`: the table of a sweep or test that was stored as JSON by -o or --json."""

from __future__ import annotations

import argparse
from pathlib import Path

from opwatch.errors import UsageError
from opwatch.foreign import parse_json, read_bytes, require_table
from opwatch.sinks.sweep.pts_table import format_pts
from opwatch.sinks.sweep.scenario_document import TYPE
from opwatch.sinks.sweep.scenario_section import format_experiment
from opwatch.sinks.sweep.table import format_sweep
from opwatch.sinks.terminal import open_stdout
from opwatch.tools.arguments import parse_file_name


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file",
        metavar="FILE",
        type=parse_file_name,
        help="the JSON document of sweep run (--json, or --virtual -o)",
    )
    parser.add_argument("--json", action="store_true", help="print the document itself, if it is valid")


def run(args: argparse.Namespace) -> int:
    path: Path = args.file
    try:
        raw = read_bytes(path)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    document = require_table(parse_json(raw, str(path)), str(path))
    # Read the whole document before printing, because a partial table would look complete.
    of_type = {"sweep-test": format_pts, TYPE: format_experiment}
    shown = list(of_type.get(str(document.get("type")), format_sweep)(document))
    if args.json:
        open_stdout().write_json(document)
    else:
        open_stdout().write_lines(shown)
    return 0
