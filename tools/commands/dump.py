"""`opwatch dump FILE... -O csv|jsonl|openmetrics|parquet`: recordings as tables for other programs."""

from __future__ import annotations

import argparse
import copy
import sys
from contextlib import ExitStack, closing
from pathlib import Path

from opwatch.errors import UsageError
from opwatch.recording.reading.models import models_of
from opwatch.recording.reading.reader import RecordedRun
from opwatch.samples.observation import Sink
from opwatch.samples.source import show
from opwatch.samples.story import Story
from opwatch.sinks.export.openmetrics import OpenMetrics
from opwatch.sinks.export.parquet import ParquetRows, ParquetSet
from opwatch.sinks.jsonl import JsonLines
from opwatch.sinks.rows import SLOW, USUAL, CsvRows, JsonRows
from opwatch.sinks.terminal import data, say
from opwatch.tools.arguments import file_name
from opwatch.tools.commands.replay import (
    Replay,
    add_bounds_arguments,
    interval,
    notes_of,
    open_run,
)
from opwatch.tools.kept_run import show_rest

FORMS = ("csv", "jsonl", "openmetrics", "parquet")
_MOST_FIELDS = 1000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "opwatch dump FILE... [INTERVAL] -O csv|jsonl|openmetrics|parquet [-o FOLDER] [-f FIELD,...] "
        "[--slow] [--from T] [--to T]"
    )
    parser.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="recordings; a time behind them is the INTERVAL between rows (as recorded)",
    )
    add_bounds_arguments(parser)
    parser.add_argument(
        "-O",
        "--form",
        choices=FORMS,
        required=True,
        help="csv: a line of names, then a row for each interval of each device; jsonl: the lines of opwatch "
        "--json, or with -f the chosen fields alone; openmetrics: text for Prometheus, of one FILE; parquet: "
        "a data set in a new folder",
    )
    parser.add_argument(
        "-o", "--output", type=file_name, metavar="FOLDER", help="a new folder for the data set (parquet)"
    )
    parser.add_argument(
        "-f",
        "--fields",
        type=_fields,
        metavar="FIELD,...",
        help="paths in the JSON, such as time,device,ops.read.latency_ns.p99 (what people plot)",
    )
    parser.add_argument(
        "--slow",
        action="store_true",
        help="a row for each slow request instead (csv, jsonl), of a recording that was made with --slow",
    )
    parser.set_defaults(at=None, speed=None, step=False)


def _fields(text: str) -> tuple[str, ...]:
    fields = tuple(field.strip() for field in text.split(","))
    if not all(fields) or len(fields) > _MOST_FIELDS:
        raise argparse.ArgumentTypeError(f"{text!r}: write fields with commas between them")
    return fields


def _files(args: argparse.Namespace) -> list[Path]:
    """Return the recordings. The last argument is the interval unless a file of that name exists."""
    names: list[str] = args.files
    args.interval = None
    if len(names) > 1 and not Path(names[-1]).exists():
        try:
            args.interval = interval(names[-1])
            names = names[:-1]
        except argparse.ArgumentTypeError as error:
            raise UsageError(f"{names[-1]} is no file, and as INTERVAL {error}") from error
    return [file_name(name) for name in names]


def _check(args: argparse.Namespace, files: list[Path]) -> None:
    if args.fields and args.form not in ("csv", "jsonl"):
        raise UsageError(f"{args.form} has its own names: -f chooses fields of csv and jsonl")
    if args.slow and args.form not in ("csv", "jsonl"):
        raise UsageError(f"{args.form} has a row for each interval: --slow is for csv and jsonl")
    if args.form == "openmetrics" and len(files) > 1:
        raise UsageError("openmetrics has one line of time: dump one FILE, or all of them as parquet")
    if args.form == "parquet" and not args.output:
        raise UsageError("parquet is a folder of files: name a new one with -o")
    if args.output and args.form != "parquet":
        raise UsageError(f"{args.form} goes to standard output: write it to a file with >")


def _text_sink(args: argparse.Namespace) -> Sink:
    usual = SLOW if args.slow else USUAL
    if args.form == "csv":
        return CsvRows(sys.stdout, args.fields or usual, slow=args.slow)
    if args.slow:
        return JsonRows(sys.stdout, args.fields or usual, slow=True)
    return JsonRows(sys.stdout, args.fields) if args.fields else JsonLines(sys.stdout)


def _show(kept: RecordedRun, args: argparse.Namespace, sink: Sink) -> None:
    for note in notes_of(kept, with_damage=False):
        say(note)
    show(Replay(kept, args), Story(), sink, say)


def run(args: argparse.Namespace) -> int:
    files = _files(args)
    _check(args, files)
    with ExitStack() as stack:
        # Check that all recordings open before anything is written.
        for path in files:
            open_run(path).close()
        target = stack.enter_context(closing(ParquetSet(args.output))) if args.form == "parquet" else None
        text = None if target or args.form == "openmetrics" else _text_sink(args)
        for path in files:
            with closing(open_run(path)) as kept:
                of_this = copy.copy(args)
                if text:
                    _show(kept, of_this, text)
                    if isinstance(text, JsonLines) and not (args.begin or args.end):
                        show_rest(kept, data().lines, as_json=True)
                    continue
                whole = ParquetRows(target, path.name, models_of(kept)) if target else OpenMetrics(sys.stdout)
                _show(kept, of_this, whole)
                whole.end()
        if target:
            target.commit()
    return 0
