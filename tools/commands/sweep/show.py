"""`opwatch sweep show FILE`: the table of a sweep or test that was stored as JSON by -o or --json."""

from __future__ import annotations

import argparse
from pathlib import Path

from opwatch.errors import UsageError
from opwatch.foreign import parse_json, read_bytes, table_of
from opwatch.sinks.scenario.document import TYPE
from opwatch.sinks.scenario.table import experiment_lines
from opwatch.sinks.sweep.pts_table import pts_lines
from opwatch.sinks.sweep.table import lines
from opwatch.sinks.terminal import data
from opwatch.tools.arguments import file_name


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", type=file_name, help="what sweep run -o FILE has kept")
    parser.add_argument("--json", action="store_true", help="the document itself, once it proves sound")


def run(args: argparse.Namespace) -> int:
    path: Path = args.file
    try:
        raw = read_bytes(path)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    document = table_of(parse_json(raw, str(path)), str(path))
    # Read the whole document before printing, because a partial table would look complete.
    of_type = {"sweep-test": pts_lines, TYPE: experiment_lines}
    shown = list(of_type.get(str(document.get("type")), lines)(document))
    if args.json:
        data().json(document)
    else:
        data().lines(shown)
    return 0
