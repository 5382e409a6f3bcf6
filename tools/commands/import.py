"""`opwatch import FILE -o RECORDING`: what another program measured, as a recording."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

from opwatch import units
from opwatch.errors import BadInput, UsageError
from opwatch.foreign import read_bytes
from opwatch.imports.blkparse import is_blkparse, read_blkparse
from opwatch.imports.fio import read_fio
from opwatch.imports.iostat import read_iostat
from opwatch.imports.source import ImportedFile
from opwatch.recording.schema import NOTE
from opwatch.sinks.terminal import say
from opwatch.tools.arguments import file_name
from opwatch.tools.kept_run import header, made

READERS: dict[str, Callable[[bytes, str], ImportedFile]] = {
    "fio": read_fio,
    "iostat": read_iostat,
    "blkparse": read_blkparse,
}
_SYSSTAT = b'"sysstat"'
_HEAD = 256
_TOGETHER = 256


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "opwatch import FILE -o RECORDING [--from-program P]"
    parser.add_argument(
        "file", type=Path, metavar="FILE", help="fio JSON or JSON+, iostat -x -t -o JSON, or text of blkparse"
    )
    parser.add_argument(
        "-o",
        "--output",
        required=True,
        type=file_name,
        metavar="RECORDING",
        help="a new file, for opwatch replay, dump and compare",
    )
    parser.add_argument(
        "--from-program",
        choices=READERS,
        help="which program made it (told from its begin)",
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="say nothing but what went wrong")


def _program_of(raw: bytes) -> str:
    if _SYSSTAT in raw[:_HEAD]:
        return "iostat"
    return "blkparse" if is_blkparse(raw) else "fio"


def run(args: argparse.Namespace) -> int:
    try:
        raw = read_bytes(args.file)
    except OSError as error:
        raise UsageError(f"{args.file}: {error.strerror}") from error
    if not raw.strip():
        raise BadInput(f"{args.file} is empty")
    imported = READERS[args.from_program or _program_of(raw)](raw, str(args.file))
    # All of it has been read before anything is made: a file that is none leaves nothing behind.
    words = header(imported.interval_ns / 1e9) | {"imported": imported.program}
    target = made(args.output, words)
    try:
        target.begin()
        for note in imported.notes:
            target.event(NOTE, note, 0)
        for number, entry in enumerate(imported.entries, 1):
            target.put(entry)
            if number % _TOGETHER == 0:
                target.commit()
                target.begin()
        target.commit()
        target.end(f"imported from {imported.program}", time.monotonic_ns(), 0)
    except BaseException:
        target.abandon()
        raise
    if not args.quiet:
        for note in imported.notes:
            say(note)
        say(f"{args.output}: {units.capacity(args.output.stat().st_size)}")
    return 0
