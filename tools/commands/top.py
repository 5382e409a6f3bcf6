"""`opwatch top [--dev D]... [INTERVAL [COUNT]]`: owners of the requests on all disks, largest first."""

from __future__ import annotations

import argparse
import shutil
import sys
import threading
from collections.abc import Sequence
from contextlib import ExitStack

from opwatch.owners.cells import OwnerGrouping
from opwatch.owners.sample import merge_owners
from opwatch.samples.observation import Event, Observation
from opwatch.samples.presenter import RunPresenter
from opwatch.sinks.jsonl import JsonLines
from opwatch.sinks.owners.labels import format_full_table
from opwatch.sinks.owners.table import Sort, format_owner_table
from opwatch.sinks.terminal import COLUMNS, Writer, open_stdout, print_message
from opwatch.sinks.tones import Span, Tone, is_colour_wanted
from opwatch.tools.arguments import add_color_argument, count_between
from opwatch.tools.keys.keyboard import Keyboard, has_keyboard
from opwatch.tools.keys.owner_keys import OwnerKeys
from opwatch.tools.runs.live_watch import add_device_argument, add_interval_arguments, attach_watch

_ROWS = 20
# Other lines of the screen: title and header above the owners; others, total and unexplained requests below.
_OTHER_LINES = 6


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "opwatch top [--dev D]... [options] [INTERVAL [COUNT]]"
    add_device_argument(parser)
    add_interval_arguments(parser, 2.0, between="tables", counted="tables")
    parser.add_argument(
        "--by",
        choices=[by.value for by in OwnerGrouping],
        default=OwnerGrouping.PROCESS.value,
        help="the owners: processes (the default), or the control groups that the kernel charges",
    )
    parser.add_argument(
        "--sort",
        choices=[sort.value for sort in Sort],
        metavar="|".join(sort.value for sort in Sort),
        default=Sort.BYTES.value,
        help="the sort key (bytes); time is the total time of an owner's requests in the device",
    )
    parser.add_argument(
        "-n",
        "--rows",
        type=count_between(1, 10000),
        metavar="N",
        help=f"show at most this many owners (as many as the terminal has room for, else {_ROWS})",
    )
    parser.add_argument(
        "--json", action="store_true", help="print JSON lines like opwatch watch, one per disk"
    )
    add_color_argument(parser)
    parser.set_defaults(
        **{"queue": False, "slow": 0.0, "discards": False, "waf": 0.0, "verbose": False},
        backend="libbpf",
        hooks="auto",
    )


class _TablePrinter:
    """Prints a table for all disks per interval, in place of the previous one on a terminal.

    `has_keys` is true if the user can change the order and the filter by keys.
    """

    def __init__(self, args: argparse.Namespace, *, has_keys: bool) -> None:
        self._writer: Writer = open_stdout()
        self._by, self._rows = OwnerGrouping(args.by), args.rows
        self._choice, self._has_keys = OwnerKeys(Sort(args.sort)), has_keys
        self._is_inked = is_colour_wanted(args.color, sys.stdout)
        self._shown: Sequence[Observation] = ()
        # Keys arrive on a separate thread.
        self._lock = threading.Lock()

    def handle_key(self, key: str) -> bool:
        """Apply a key, and redraw the last table. Return True to end the run."""
        with self._lock:
            self._choice.handle_key(key)
            if self._shown and not self._choice.is_over:
                self._draw_page(self._shown)
            return self._choice.is_over

    def write_table(self, observations: Sequence[Observation]) -> None:
        """Show the intervals, or the summaries, of all disks at one time."""
        if not observations:
            return
        with self._lock:
            if self._writer.width is None or observations[-1].final:
                # Ignore keys from here on.
                self._shown = ()
                self._writer.write_spans([*self._build_lines(observations), []])
            else:
                self._shown = observations
                self._draw_page(observations)

    def _draw_page(self, observations: Sequence[Observation]) -> None:
        lines = self._build_lines(observations)
        self._writer.draw_page(
            [*lines, self._colour_spans(self._choice.build_spans())] if self._has_keys else lines
        )

    def _colour_spans(self, spans: Sequence[Span]) -> list[Span]:
        return [(text, tone if self._is_inked else Tone.PLAIN) for text, tone in spans]

    def _count_owner_rows(self, below: Sequence[str]) -> int:
        """Return the number of owners with space on the screen, given the lines below the table."""
        width = self._writer.width
        if self._rows or width is None:
            return self._rows or _ROWS
        folded = sum(-(-len(line) // width) for line in below)
        return max(shutil.get_terminal_size().lines - _OTHER_LINES - self._has_keys - max(folded - 1, 0), 1)

    def _build_lines(self, observations: Sequence[Observation]) -> list[list[Span]]:
        last, choice = observations[-1], self._choice
        alarms = [f"! {one.label}: {'; '.join(one.unexplained)}" for one in observations if one.unexplained]
        seconds = max(one.interval.seconds for one in observations)
        disks = f"{len(observations)} disk" + ("s" if len(observations) != 1 else "")
        head = "== " if last.final else ""
        owners = merge_owners((one.owners for one in observations if one.owners), self._by)
        width = max(self._writer.width or COLUMNS, COLUMNS)
        table = format_owner_table(
            owners,
            seconds,
            choice.sort,
            self._count_owner_rows([*alarms, *format_full_table(owners.no_room)]),
            width,
            choice.words,
        )
        title = f"{head}{last.at.astimezone():%H:%M:%S} {disks}, {seconds:.1f} s, MB/s"
        title += f", only owners with {choice.words!r}" if choice.words else ""
        lines = [
            *((text, Tone.STRONG) for text in (title, table[0])),
            *((text, Tone.PLAIN) for text in table[1:-1]),
            (table[-1], Tone.STRONG),
            *((alarm, Tone.ALARM) for alarm in alarms),
        ]
        return [self._colour_spans([line]) for line in lines]


def run(args: argparse.Namespace) -> int:
    with ExitStack() as stack:
        has_keys = not args.json and sys.stdout.isatty() and has_keyboard()
        live, story, tables = (
            attach_watch(args, stack),
            RunPresenter(),
            _TablePrinter(args, has_keys=has_keys),
        )
        sink = JsonLines(sys.stdout) if args.json else None
        if has_keys:
            stack.enter_context(Keyboard(lambda key: live.stop() if tables.handle_key(key) else None))
        live.start_command(quiet_stdout=False)
        for entry in live.iter_entries():
            shown: dict[bool, list[Observation]] = {False: [], True: []}
            for news in story.process_entry(entry):
                if isinstance(news, Event):
                    print_message(news.text)
                    if sink:
                        sink.write_event(news)
                elif sink:
                    sink.write_observation(news)
                else:
                    shown[news.final].append(news)
            tables.write_table(shown[False])
            tables.write_table(shown[True])
    if live.gone:
        print_message(f"{live.gone} is gone; the summary ends there")
        return 1
    return 0
