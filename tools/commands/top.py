"""`opwatch top [--dev D]... [INTERVAL [COUNT]]`: owners of the requests on all disks, largest first."""

from __future__ import annotations

import argparse
import shutil
import sys
import threading
from collections.abc import Sequence
from contextlib import ExitStack

from opwatch.owners.cells import By
from opwatch.owners.sample import together
from opwatch.samples.observation import Event, Observation
from opwatch.samples.story import Story
from opwatch.sinks.jsonl import JsonLines
from opwatch.sinks.owners.table import Sort, table_lines
from opwatch.sinks.owners.words import full_table_lines
from opwatch.sinks.plain.ink import Ink, Span, is_wanted
from opwatch.sinks.terminal import COLUMNS, Writer, data, say
from opwatch.tools.arguments import add_color_argument, count_between
from opwatch.tools.commands.watch import add_device_argument, add_interval_arguments, attached
from opwatch.tools.keys.keyboard import Keyboard, has_keyboard
from opwatch.tools.keys.owner_keys import OwnerKeys

_ROWS = 20
# Other lines of the screen: title and header above the owners; others, total and unexplained requests below.
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
        choices=[sort.value for sort in Sort],
        metavar="|".join(sort.value for sort in Sort),
        default=Sort.BYTES.value,
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
    """Prints a table for all disks per interval, in place of the previous one on a terminal.

    `has_keys` is true if the user can change the order and the filter by keys.
    """

    def __init__(self, args: argparse.Namespace, *, has_keys: bool) -> None:
        self._writer: Writer = data()
        self._by, self._rows = By(args.by), args.rows
        self._choice, self._has_keys = OwnerKeys(Sort(args.sort)), has_keys
        self._is_inked = is_wanted(args.color, sys.stdout)
        self._shown: Sequence[Observation] = ()
        # Keys arrive on a separate thread.
        self._lock = threading.Lock()

    def press(self, key: str) -> bool:
        """Apply a key, and redraw the last table. Return True to end the run."""
        with self._lock:
            self._choice.press(key)
            if self._shown and not self._choice.is_over:
                self._page(self._shown)
            return self._choice.is_over

    def write(self, observations: Sequence[Observation]) -> None:
        """Show the intervals, or the summaries, of all disks at one time."""
        if not observations:
            return
        with self._lock:
            if self._writer.width is None or observations[-1].final:
                # Ignore keys from here on.
                self._shown = ()
                self._writer.inked([*self._lines(observations), []])
            else:
                self._shown = observations
                self._page(observations)

    def _page(self, observations: Sequence[Observation]) -> None:
        lines = self._lines(observations)
        self._writer.page([*lines, self._inked(self._choice.spans())] if self._has_keys else lines)

    def _inked(self, spans: Sequence[Span]) -> list[Span]:
        return [(text, ink if self._is_inked else Ink.PLAIN) for text, ink in spans]

    def _most(self, below: Sequence[str]) -> int:
        """Return the number of owners with space on the screen, given the lines below the table."""
        width = self._writer.width
        if self._rows or width is None:
            return self._rows or _ROWS
        folded = sum(-(-len(line) // width) for line in below)
        return max(shutil.get_terminal_size().lines - _AROUND - self._has_keys - max(folded - 1, 0), 1)

    def _lines(self, observations: Sequence[Observation]) -> list[list[Span]]:
        last, choice = observations[-1], self._choice
        alarms = [f"! {one.label}: {'; '.join(one.unexplained)}" for one in observations if one.unexplained]
        seconds = max(one.interval.seconds for one in observations)
        disks = f"{len(observations)} disk" + ("s" if len(observations) != 1 else "")
        head = "== " if last.final else ""
        owners = together((one.owners for one in observations if one.owners), self._by)
        width = max(self._writer.width or COLUMNS, COLUMNS)
        table = table_lines(
            owners,
            seconds,
            choice.sort,
            self._most([*alarms, *full_table_lines(owners.no_room)]),
            width,
            choice.words,
        )
        title = f"{head}{last.at.astimezone():%H:%M:%S} {disks}, {seconds:.1f} s, MB/s"
        title += f", only owners with {choice.words!r}" if choice.words else ""
        lines = [
            *((text, Ink.STRONG) for text in (title, table[0])),
            *((text, Ink.PLAIN) for text in table[1:-1]),
            (table[-1], Ink.STRONG),
            *((alarm, Ink.ALARM) for alarm in alarms),
        ]
        return [self._inked([line]) for line in lines]


def run(args: argparse.Namespace) -> int:
    with ExitStack() as stack:
        has_keys = not args.json and sys.stdout.isatty() and has_keyboard()
        live, story, tables = attached(args, stack), Story(), _Tables(args, has_keys=has_keys)
        sink = JsonLines(sys.stdout) if args.json else None
        if has_keys:
            stack.enter_context(Keyboard(lambda key: live.stop() if tables.press(key) else None))
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
