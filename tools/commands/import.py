"""`opwatch import FILE... -o RECORDING`: convert another program's measurements into a recording."""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Callable
from pathlib import Path

from opwatch import units
from opwatch.errors import BadInput, UsageError
from opwatch.fio.logs import is_log_name
from opwatch.foreign import read_bytes
from opwatch.imports.blkparse import is_blkparse, parse_blkparse
from opwatch.imports.fio import parse_fio
from opwatch.imports.fio_logs import parse_fio_logs
from opwatch.imports.iostat import is_iostat, parse_iostat
from opwatch.imports.source import ImportedFile
from opwatch.recording.schema import NOTE
from opwatch.sinks.terminal import print_message
from opwatch.tools.arguments import count_between, parse_file_name
from opwatch.tools.runs.run_recorder import create_recording, make_header, remove_on_error

READERS: dict[str, Callable[[bytes, str], ImportedFile]] = {
    "fio": parse_fio,
    "iostat": parse_iostat,
    "blkparse": parse_blkparse,
}
_HEAD = 4096
# Magic numbers of a binary blktrace file in both byte orders.
_BLKTRACE = (b"\x07tae", b"eat\x07")
# First words of a fio report, or of the warnings before it.
_FIO = re.compile(rb"^(\{|fio: |fio-[0-9]|[0-9];fio-|[^\n]{1,200}: \(g=[0-9]+\): )", re.MULTILINE)
_TOGETHER = 256


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "opwatch import FILE... -o RECORDING [--from-program P]"
    parser.add_argument(
        "files",
        nargs="+",
        type=Path,
        metavar="FILE",
        help="fio JSON or JSON+, iostat -x -t (text, JSON), blkparse text; or logs of a fio run and its JSON",
    )
    parser.add_argument(
        "-o",
        "--output",
        required=True,
        type=parse_file_name,
        metavar="RECORDING",
        help="the new recording, for opwatch replay, dump and compare",
    )
    parser.add_argument(
        "--from-program",
        choices=READERS,
        help="the program that made the file (recognized from its start)",
    )
    parser.add_argument(
        "--log-avg-msec",
        type=count_between(1, 86_400_000),
        metavar="MS",
        help="log_avg_msec of fio's logs, if the JSON report is not given with them",
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="print errors only")


def _detect_program(raw: bytes, path: Path) -> str:
    if is_iostat(raw):
        return "iostat"
    if raw.startswith(_BLKTRACE):
        raise BadInput(f"{path} is a binary trace: import the output of blkparse -i {path.name:.60}")
    if is_blkparse(raw):
        return "blkparse"
    if _FIO.search(raw, 0, _HEAD) or b"\n{" in raw:
        return "fio"
    raise BadInput(
        f"{path} has an unknown format: import the output of fio --output-format=json+, of "
        "S_TIME_FORMAT=ISO iostat -x -t [-o JSON] or of blkparse -i TRACE, or fio's logs under their names"
    )


def _read_file(path: Path) -> bytes:
    try:
        return read_bytes(path)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error


def _import_files(args: argparse.Namespace) -> ImportedFile:
    """Return the contents of the files. fio's logs are recognised by their names, which state the
    contents."""
    is_of_fio = args.from_program in (None, "fio")
    logs = [path for path in args.files if is_of_fio and is_log_name(path.name)]
    others = [path for path in args.files if path not in logs]
    if len(set(args.files)) < len(args.files):
        raise UsageError("a FILE is given twice")
    if len(others) > 1:
        raise UsageError(
            "several FILEs must be the logs of one fio run (PREFIX_bw.1.log and so on) and at most one "
            "report: import other files one by one"
        )
    raws = {path: _read_file(path) for path in args.files}
    if logs:
        report = next(((str(path), raws[path]) for path in others), None)
        return parse_fio_logs([(path.name, raws[path]) for path in logs], report, args.log_avg_msec)
    if args.log_avg_msec:
        raise UsageError("--log-avg-msec is for fio's logs (PREFIX_bw.1.log and so on), and no FILE is one")
    [(path, raw)] = raws.items()
    if not raw.strip():
        raise BadInput(f"{path} is empty")
    return READERS[args.from_program or _detect_program(raw, path)](raw, str(path))


def run(args: argparse.Namespace) -> int:
    imported = _import_files(args)
    # Everything has been read before the output is created, so that an invalid file leaves nothing behind.
    words = make_header(imported.interval_ns / 1e9) | {"imported": imported.program}
    target = create_recording(args.output, words)
    with remove_on_error(target):
        target.begin_transaction()
        for note in imported.notes:
            target.add_event(NOTE, note, 0)
        for name, raw in imported.files:
            target.add_file(name, raw, 0)
        for number, entry in enumerate(imported.entries, 1):
            target.add_entry(entry)
            if number % _TOGETHER == 0:
                target.commit()
                target.begin_transaction()
        target.commit()
        target.end_recording(f"imported from {imported.program}", time.monotonic_ns(), 0)
    if not args.quiet:
        for note in imported.notes:
            print_message(note)
        print_message(f"{args.output}: {units.format_capacity(args.output.stat().st_size)}")
    return 0
