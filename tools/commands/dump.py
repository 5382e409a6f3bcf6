"""`opwatch dump FILE -O csv|jsonl`: what a recording kept, as a table for other programs."""

from __future__ import annotations

import argparse
import sys

from opwatch.samples.observation import Sink
from opwatch.samples.source import show
from opwatch.samples.story import Story
from opwatch.sinks.jsonl import JsonLines
from opwatch.sinks.rows import USUAL, CsvRows, JsonRows
from opwatch.sinks.terminal import say
from opwatch.tools.commands.replay import Replay, add_part_arguments, notes_of, open_run

FORMS = ("csv", "jsonl")
_MOST_FIELDS = 1000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "opwatch dump FILE [INTERVAL] -O csv|jsonl [-f FIELD,...] [--from T] [--to T]"
    add_part_arguments(parser)
    parser.add_argument(
        "-O",
        "--form",
        choices=FORMS,
        required=True,
        help="csv: a line of names, then a row for each interval of each device; jsonl: the lines of opwatch "
        "--json, or with -f the chosen fields alone",
    )
    parser.add_argument(
        "-f",
        "--fields",
        type=_fields,
        metavar="FIELD,...",
        help="paths in the JSON, such as time,device,ops.read.latency_ns.p99 (what people plot)",
    )
    parser.set_defaults(at=None, speed=None)


def _fields(text: str) -> tuple[str, ...]:
    fields = tuple(field.strip() for field in text.split(","))
    if not all(fields) or len(fields) > _MOST_FIELDS:
        raise argparse.ArgumentTypeError(f"{text!r}: write fields with commas between them")
    return fields


def _sink(args: argparse.Namespace) -> Sink:
    if args.form == "csv":
        return CsvRows(sys.stdout, args.fields or USUAL)
    return JsonRows(sys.stdout, args.fields) if args.fields else JsonLines(sys.stdout)


def run(args: argparse.Namespace) -> int:
    kept = open_run(args.file)
    try:
        for note in notes_of(kept):
            say(note)
        show(Replay(kept, args), Story(), _sink(args), say)
    finally:
        kept.close()
    return 0
