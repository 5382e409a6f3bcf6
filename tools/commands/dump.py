"""`opwatch dump FILE... -O csv|jsonl|openmetrics|parquet`: recordings as tables for other programs."""

from __future__ import annotations

import argparse
import copy
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING

from opwatch.errors import UsageError
from opwatch.recording.reading.drives import list_drives
from opwatch.recording.reading.reader import RecordedRun
from opwatch.samples.drive_status import DriveStatuses
from opwatch.samples.entries import CountersRead, RunEntry
from opwatch.samples.observation import Sink
from opwatch.samples.presenter import RunPresenter
from opwatch.samples.source import Source, present_run
from opwatch.sinks.export.openmetrics import OpenMetrics
from opwatch.sinks.export.parquet import ParquetRows, ParquetSet
from opwatch.sinks.export.table import read_origin
from opwatch.sinks.export.writes_rows import format_writes_csv, format_writes_openmetrics
from opwatch.sinks.jsonl import JsonLines
from opwatch.sinks.rows import DEFAULT_FIELDS, SLOW_FIELDS, CsvRows, JsonRows
from opwatch.sinks.terminal import open_stdout, print_message
from opwatch.tools.arguments import parse_file_name
from opwatch.tools.runs.replay import (
    Replay,
    add_bounds_arguments,
    choose_row_interval,
    explain_no_intervals,
    interval,
    list_notes,
    open_run,
)
from opwatch.tools.runs.run_recorder import show_notes_and_fio
from opwatch.tools.runs.writes_recorder import is_writes_recording, read_writes, show_writes

if TYPE_CHECKING:
    from opwatch.counters.looks.sample import FirmwareSample
    from opwatch.metrics.drive_reading import DriveReading

FORMS = ("csv", "jsonl", "openmetrics", "parquet")
_MAX_FIELDS = 1000
# The default interval of a data set: recorded at 1 s, minutes take a sixteenth of the space.
_MINUTE_S = 60.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "opwatch dump FILE... [INTERVAL] -O csv|jsonl|openmetrics|parquet [-o FOLDER] [-f FIELD,...] "
        "[--as-recorded] [--slow] [--from T] [--to T]"
    )
    parser.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="one or more recordings; a duration after them is the INTERVAL between rows (as recorded; "
        "parquet: 1m)",
    )
    add_bounds_arguments(parser)
    parser.add_argument(
        "-O",
        "--form",
        choices=FORMS,
        required=True,
        help="csv: a line of names, then a row per interval and device; jsonl: the lines of opwatch replay "
        "--json, or with -f only the chosen fields; openmetrics: text for Prometheus, of one FILE; parquet: "
        "a data set in a new folder",
    )
    parser.add_argument(
        "-o",
        "--output",
        type=parse_file_name,
        metavar="FOLDER",
        help="the new folder of the data set (parquet)",
    )
    parser.add_argument(
        "--as-recorded",
        action="store_true",
        help="parquet: a row per recorded interval instead of a row per minute",
    )
    parser.add_argument(
        "-f",
        "--fields",
        type=_parse_fields,
        metavar="FIELD,...",
        help="the fields, by their path in the JSON, e.g. time,device,ops.read.latency_ns.p99 (rates, bytes, "
        "latency and write amplification)",
    )
    parser.add_argument(
        "--slow",
        action="store_true",
        help="print a row for each slow request instead (csv or jsonl), from a recording made with --slow",
    )
    parser.set_defaults(at=None, speed=None, step=False)


def _parse_fields(text: str) -> tuple[str, ...]:
    fields = tuple(field.strip() for field in text.split(","))
    if not all(fields) or len(fields) > _MAX_FIELDS:
        raise argparse.ArgumentTypeError(f"{text!r}: write fields separated by commas")
    return fields


def _choose_files(args: argparse.Namespace) -> list[Path]:
    """Return the recordings. The last argument is the interval unless a file of that name exists."""
    names: list[str] = args.files
    args.interval = None
    if len(names) > 1 and not Path(names[-1]).exists():
        try:
            args.interval = interval(names[-1])
            names = names[:-1]
        except argparse.ArgumentTypeError as error:
            raise UsageError(f"there is no file {names[-1]}, and as INTERVAL {error}") from error
    return [parse_file_name(name) for name in names]


def _check_options(args: argparse.Namespace, files: list[Path]) -> None:
    if args.fields and args.form not in ("csv", "jsonl"):
        raise UsageError(f"-f works with csv and jsonl only; {args.form} has fixed fields")
    if args.slow and args.form not in ("csv", "jsonl"):
        raise UsageError(f"--slow works with csv and jsonl only; {args.form} has a row per interval")
    if args.form == "openmetrics" and len(files) > 1:
        raise UsageError("openmetrics takes a single FILE; use parquet for several")
    if args.form == "parquet" and not args.output:
        raise UsageError("parquet needs a new folder: name it with -o")
    if args.as_recorded and args.form != "parquet":
        raise UsageError(
            f"--as-recorded works with parquet only; {args.form} has the recorded intervals anyway"
        )
    if args.as_recorded and args.interval:
        raise UsageError("--as-recorded and an INTERVAL contradict each other: give one of them")
    if args.output and args.form != "parquet":
        raise UsageError(
            f"-o works with parquet only; {args.form} goes to standard output (redirect it with >)"
        )


def _make_text_sink(args: argparse.Namespace) -> Sink:
    usual = SLOW_FIELDS if args.slow else DEFAULT_FIELDS
    if args.form == "csv":
        return CsvRows(sys.stdout, args.fields or usual, slow=args.slow)
    if args.slow:
        return JsonRows(sys.stdout, args.fields or usual, slow=True)
    return JsonRows(sys.stdout, args.fields) if args.fields else JsonLines(sys.stdout)


class _OverheardRun:
    """A source whose entries are given to `listen`, too, before they are shown."""

    def __init__(self, source: Source, listen: Callable[[RunEntry], None]) -> None:
        self._source, self._listen = source, listen

    def iter_entries(self) -> Iterator[RunEntry]:
        for entry in self._source.iter_entries():
            self._listen(entry)
            yield entry


class _ReadingMetrics:
    """Writes the readings of drives in a recording as metrics."""

    def __init__(self, kept: RecordedRun, metrics: OpenMetrics) -> None:
        self._kept, self._metrics = kept, metrics
        self._readings: dict[str, DriveReading] = {}

    def process_entry(self, entry: RunEntry) -> None:
        if isinstance(entry, CountersRead):
            self._add_reading(entry.sample)

    def _add_reading(self, sample: FirmwareSample) -> None:
        # Import on demand, because most recordings have no readings and the import takes long.
        from opwatch.counters.catalogue.families import load_standard_catalogue
        from opwatch.metrics.drive_polls import update_reading

        at = self._kept.to_wall_time(sample.end_ns)
        if at is None:
            return
        before = self._readings.get(sample.disk)
        reading = update_reading(before, sample, load_standard_catalogue(), at.timestamp())
        self._readings[sample.disk] = reading
        self._metrics.write_reading(at, reading)


def _show_recording(kept: RecordedRun, args: argparse.Namespace, sink: Sink) -> None:
    for note in list_notes(kept, with_damage=False):
        print_message(note)
    source: Source = Replay(kept, args)
    if isinstance(sink, OpenMetrics):
        source = _OverheardRun(source, _ReadingMetrics(kept, sink).process_entry)
    present_run(source, RunPresenter(), sink, print_message)


def _add_rows(kept: RecordedRun, name: str, args: argparse.Namespace, target: ParquetSet) -> None:
    """Add a recording to a data set, by default in intervals of a minute."""
    drives = DriveStatuses(list_drives(kept).items())
    args.interval = args.interval or (None if args.as_recorded else choose_row_interval(kept, _MINUTE_S))
    for note in list_notes(kept, with_damage=False):
        print_message(note)
    rows = ParquetRows(target, read_origin(name, kept.header), drives)
    source = _OverheardRun(Replay(kept, args), drives.process_entry)
    present_run(source, RunPresenter(), rows, print_message)
    rows.finish_output()


def _dump_writes(kept: RecordedRun, args: argparse.Namespace) -> None:
    """Print a recording of opwatch writes."""
    if args.form == "parquet":
        raise UsageError(f"{kept.name}: {explain_no_intervals(kept)}; use csv, jsonl or openmetrics")
    if args.interval or args.begin or args.end or args.fields or args.slow:
        raise UsageError(f"{kept.name}: {explain_no_intervals(kept)}; it has fixed rows, and is shown whole")
    for note in list_notes(kept):
        print_message(note)
    if args.form == "jsonl":
        show_writes(kept, as_json=True, quiet=False)
    else:
        form = format_writes_csv if args.form == "csv" else format_writes_openmetrics
        open_stdout().write_lines(form(read_writes(kept)))


def run(args: argparse.Namespace) -> int:
    files = _choose_files(args)
    _check_options(args, files)
    if len(files) == 1:
        with closing(open_run(files[0])) as kept:
            if is_writes_recording(kept):
                _dump_writes(kept, args)
                return 0
    with ExitStack() as stack:
        # Check that all recordings open before anything is written. A single one opens first anyway.
        for path in files if len(files) > 1 else ():
            open_run(path).close()
        target = stack.enter_context(closing(ParquetSet(args.output))) if args.form == "parquet" else None
        text = None if target or args.form == "openmetrics" else _make_text_sink(args)
        for path in files:
            with closing(open_run(path)) as kept:
                of_this = copy.copy(args)
                if text:
                    _show_recording(kept, of_this, text)
                    if isinstance(text, JsonLines) and not (args.begin or args.end):
                        show_notes_and_fio(kept, open_stdout().write_lines, as_json=True)
                elif target:
                    _add_rows(kept, path.name, of_this, target)
                else:
                    metrics = OpenMetrics(sys.stdout)
                    _show_recording(kept, of_this, metrics)
                    metrics.finish_output()
        if target:
            target.commit()
    return 0
