"""`opwatch top [--dev D]... [INTERVAL [COUNT]]`: whose the requests are, on all disks, the largest first."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence
from contextlib import ExitStack

from opwatch.owners.cells import By
from opwatch.owners.sample import together
from opwatch.samples.observation import Event, Observation
from opwatch.samples.story import Story
from opwatch.sinks.jsonl import JsonLines
from opwatch.sinks.owners.table import Sort, table_lines
from opwatch.sinks.plain.ink import Ink, Span, is_wanted
from opwatch.sinks.terminal import COLUMNS, Writer, data, say
from opwatch.tools.arguments import add_color_argument, count_between
from opwatch.tools.commands.watch import add_device_argument, add_interval_arguments, attached

_ROWS = 20
# Above the owners stand a title and the header, below them the others, all, and what is unexplained.
_AROUND = 6


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "opwatch top [--dev D]... [options] [INTERVAL [COUNT]]"
    add_device_argument(parser)
    add_interval_arguments(parser, 2.0, between="tables", counted="tables")
    parser.add_argument(
        "--by",
        choices=[by.value for by in By],
        default=By.PROCESS.value,
        help="what owners are: processes (the default), or control groups as the kernel accounts them",
    )
    parser.add_argument(
        "--sort",
        type=Sort,
        choices=list(Sort),
        metavar="|".join(sort.value for sort in Sort),
        default=Sort.BYTES,
        help="what the first of them has most of; time is that of all its requests in the device",
    )
    parser.add_argument(
        "-n",
        "--rows",
        type=count_between(1, 10000),
        metavar="N",
        help=f"at most so many owners (what a terminal has room for, else {_ROWS})",
    )
    parser.add_argument("--json", action="store_true", help="JSON lines as of a watch, a line a disk")
    add_color_argument(parser)
    parser.set_defaults(
        **{"queue": False, "slow": 0.0, "discards": False, "waf": 0.0, "verbose": False},
        backend="libbpf",
        hooks="auto",
    )


class _Tables:
    """Prints a table for all disks of an interval: over the one before it on a terminal."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._writer: Writer = data()
        self._by, self._sort, self._rows = By(args.by), args.sort, args.rows
        self._is_inked = is_wanted(args.color, sys.stdout)

    def write(self, observations: Sequence[Observation]) -> None:
        """Show intervals, or the summaries, of disks at one time."""
        if not observations:
            return
        last = observations[-1]
        width = self._writer.width
        most = self._rows or (_ROWS if width is None else max(shutil.get_terminal_size().lines - _AROUND, 1))
        seconds = max(one.interval.seconds for one in observations)
        disks = f"{len(observations)} disk" + ("s" if len(observations) != 1 else "")
        head = "== " if last.final else ""
        owners = together((one.owners for one in observations if one.owners), self._by)
        table = table_lines(owners, seconds, self._sort, most, max(width or COLUMNS, COLUMNS))
        title = f"{head}{last.at.astimezone():%H:%M:%S} {disks}, {seconds:.1f} s, MB/s"
        lines = [
            *((text, Ink.STRONG) for text in (title, table[0])),
            *((text, Ink.PLAIN) for text in table[1:-1]),
            (table[-1], Ink.STRONG),
            *(
                (f"! {one.label}: {'; '.join(one.unexplained)}", Ink.ALARM)
                for one in observations
                if one.unexplained
            ),
        ]
        spans: list[list[Span]] = [[(text, ink if self._is_inked else Ink.PLAIN)] for text, ink in lines]
        if width is None or last.final:
            self._writer.inked([*spans, []])
        else:
            self._writer.page(spans)


def run(args: argparse.Namespace) -> int:
    with ExitStack() as stack:
        live, story, tables = attached(args, stack), Story(), _Tables(args)
        sink = JsonLines(sys.stdout) if args.json else None
        live.start(quiet_stdout=False)
        for entry in live.entries():
            shown: dict[bool, list[Observation]] = {False: [], True: []}
            for news in story.take(entry):
                if isinstance(news, Event):
                    say(news.text)
                    if sink:
                        sink.tell(news)
                elif sink:
                    sink.write(news)
                else:
                    shown[news.final].append(news)
            tables.write(shown[False])
            tables.write(shown[True])
    if live.gone:
        say(f"{live.gone} has gone; the summary ends there")
        return 1
    return 0
