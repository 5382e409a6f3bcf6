"""A whole screen of any size: the visible part of a past, as rows."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from opwatch import units
from opwatch.sinks.dashboard.compact_interval import CompactInterval
from opwatch.sinks.dashboard.heat import CURSOR, HeatMap, build_column, draw_axis, draw_heat_map, draw_legend
from opwatch.sinks.dashboard.history import DiskHistory, EventMark, WatchHistory
from opwatch.sinks.dashboard.owners import build_owner_rows, count_needed_rows
from opwatch.sinks.dashboard.panels import (
    build_disk_rows,
    build_drive_rows,
    build_message_rows,
    build_op_table,
    build_trust_row,
)
from opwatch.sinks.dashboard.rows import (
    Piece,
    Row,
    fit_row,
    join_side_by_side,
    justify_row,
    measure_row,
    remove_control_characters,
)
from opwatch.sinks.dashboard.spark import draw_spark_rows
from opwatch.sinks.dashboard.view import View
from opwatch.sinks.tones import OP_TONES, Tone

# Columns before a map or bars.
MARGIN = 13
_MIN_HEAT = 4
_MIN_OWNERS = 4
_WIDE = 150
_TALL = 40
# Distance of clock times below the map, in columns.
_CLOCK_DISTANCE = 20
# Show an interval's real length if different by more than this share.
_MAX_DEVIATION = 0.1
KEYS = "q quit  space {pause}  ←→ time  +- zoom  ↑↓ disk  rwdf op{keep}  ? help"
HELP = (
    ("map", "one or more intervals per column, higher is slower; brighter"),
    ("", "cells have more requests; ━ median, ┅ 99th percentile"),
    ("table", "the interval at the cursor, or the newest: requests and MB per"),
    ("", "second, latency in the device, qd mean requests in the device,"),
    ("", "median size, seq% sequential requests, err errors"),
    ("owners", "who issued the requests, most bytes first; other: all the rest"),
    ("n u m s", "nano-, micro-, milliseconds, seconds; <: at most this"),
    ("trust", "green: tracer and kernel agree; red: unexplained differences"),
    ("", ""),
    ("space", "pause the screen, or return to live; counting continues"),
    ("← → PgUp PgDn", "move the cursor through the last hour; Home oldest, End newest"),
    ("+ -", "fewer or more intervals per column"),
    ("↑ ↓ Tab", "another disk; the busiest is shown first"),
    ("r w d f x a", "reads, writes, discards, flushes, other operations in the map;"),
    ("", "a: the busiest operation"),
    ("o  Esc", "save the kept history as a recording; close a message"),
    ("q Ctrl-C", "quit and print the summary"),
)


@dataclass(frozen=True, slots=True)
class Frame:
    """Size of a terminal, and the source it shows: a live watch or a file. `interval_s` is the nominal
    interval length, None if unknown."""

    width: int
    height: int
    title: str = "live"
    is_file: bool = False
    interval_s: float | None = None


def draw_screen(past: WatchHistory, view: View, frame: Frame) -> list[Row]:
    """Return exactly `frame.height` rows of `frame.width` columns."""
    disk = view.find_disk(past)
    if view.is_help:
        rows = _build_help_rows()
    elif disk is None:
        rows = [
            [("opwatch", Tone.STRONG), (f"  {remove_control_characters(frame.title)}", Tone.FAINT)],
            [("waiting", Tone.FAINT)],
        ]
    else:
        rows = _ScreenComposer(past, view, frame, disk).compose_rows()
    blank: Row = []
    shown = [*rows, *[blank] * frame.height][: frame.height]
    if disk is not None or view.is_help:
        shown[-1] = [(_format_keys(view, frame), Tone.FAINT)]
        # A message never covers the keys, and the map keeps its height.
        message = _build_message_rows(past, frame)
        shown[len(shown) - 1 - len(message) : -1] = message
    return [fit_row(row, frame.width) for row in shown]


def _build_message_rows(past: WatchHistory, frame: Frame) -> list[Row]:
    """Return the rows of the last message, at most a quarter of the screen. They overlay the rows above the
    keys."""
    note = past.find_message()
    lines = textwrap.wrap(remove_control_characters(note), max(frame.width, 20)) if note else []
    most = min(max(frame.height // 4, 1), frame.height - 1)
    return [[(line, Tone.MARK)] for line in lines[:most]]


def _format_keys(view: View, frame: Frame) -> str:
    pause = "resume" if view.is_paused else "pause"
    return KEYS.format(pause=pause, keep="" if frame.is_file else "  o record")


def _build_help_rows() -> list[Row]:
    rows: list[Row] = [[("opwatch: screen and keys", Tone.STRONG)], []]
    for head, text in HELP:
        rows.append([(f"{head:<15}", Tone.STRONG), (text, Tone.PLAIN)])
    return rows


class _ScreenComposer:
    """Composes the screen of one disk."""

    def __init__(self, past: WatchHistory, view: View, frame: Frame, disk: DiskHistory) -> None:
        self._past, self._view, self._frame, self._disk = past, view, frame, disk
        self._width = max(frame.width - MARGIN - 1, 10)
        self._moment = view.find_moment(past)
        self._columns = view.build_columns(disk, self._width)
        self._cursor = view.find_cursor_column(disk, self._columns)
        self._op = view.choose_op(self._columns)
        self._marks = self._group_marks()

    def compose_rows(self) -> list[Row]:
        head = self._build_head()
        # Title, rule and times of the map. The last rows hold the time bar and the keys, live and paused.
        room = self._frame.height - len(head) - 5
        least = min(_MIN_HEAT, max(room, 0))
        below = self._build_lower_rows(room, least)
        tall = room - len(below)
        heat = self._draw_heat(tall) if tall >= least and tall > 0 else []
        blank: Row = []
        rows = [*head, *heat, *below]
        rows += [blank] * (self._frame.height - 2 - len(rows))
        return [*rows[: max(self._frame.height - 2, 0)], self._build_time_bar()]

    def _build_head(self) -> list[Row]:
        disk, moment, frame = self._disk, self._moment, self._frame
        at = f"{moment.at.astimezone():%H:%M:%S}" if moment else ""
        state: Piece = (
            (" PAUSED ", Tone.CHOSEN)
            if self._view.is_paused
            else (f" {remove_control_characters(frame.title)} ", Tone.GOOD)
        )
        left: Row = [("opwatch ", Tone.STRONG), (remove_control_characters(disk.label), Tone.STRONG)]
        others = self._past.list_disks()
        if len(others) > 1:
            place = next(number for number, other in enumerate(others, 1) if other is disk)
            left.append((f"  disk {place} of {len(others)}", Tone.FAINT))
        left.append((f"  {remove_control_characters(disk.level)}", Tone.FAINT))
        every = f"{self._describe_length(moment)}  " if moment else ""
        rows = [
            justify_row(left, [(every, Tone.FAINT), (at, Tone.STRONG), (" ", Tone.PLAIN), state], frame.width)
        ]
        rows.append(build_trust_row(disk, moment))
        rows += build_disk_rows(
            self._past, disk, self._view.cursor_ns, max(frame.height // 6, 1), frame.width
        )
        return [*rows, *self._build_drive_rows()]

    def _build_drive_rows(self) -> list[Row]:
        """Return the drive's report, padded to the largest number of rows in view to keep the map's height
        constant."""
        in_view = [
            build_drive_rows(self._past, self._disk, column[-1], self._frame.width)
            for column in self._columns
        ]
        rows, blank = build_drive_rows(self._past, self._disk, self._moment, self._frame.width), list[Piece]()
        return [*rows, *[blank] * (max(map(len, in_view), default=0) - len(rows))]

    def _describe_length(self, moment: CompactInterval) -> str:
        """Return the nominal interval length, or the real length if very different."""
        meant_s = self._frame.interval_s or moment.seconds
        is_even = abs(moment.seconds - meant_s) <= _MAX_DEVIATION * meant_s
        return _format_length(meant_s if is_even else moment.seconds)

    def _draw_heat(self, tall: int) -> list[Row]:
        columns = [build_column(moments, self._op) for moments in self._columns]
        shown = draw_heat_map(columns, self._width, tall, self._cursor)
        rows = shown.rows
        if shown.scale is None:
            rows[tall // 2] = self._build_empty_row()
        pad = " " * (MARGIN - 8)
        labels = draw_axis(shown.scale, tall)
        heat = [[(pad, Tone.PLAIN), label, *row] for label, row in zip(labels, rows, strict=True)]
        return [self._build_heat_title(shown), *heat, self._draw_ruler(), self._build_clock_row()]

    def _build_empty_row(self) -> Row:
        text = f"no {self._op} requests in view" if self._columns else "no interval yet"
        if self._view.chosen_op:
            text += "; a shows the busiest operation"
        return [(f"{text:^{self._width}}", Tone.FAINT)]

    def _build_heat_title(self, shown: HeatMap) -> Row:
        moment, op = self._moment, self._moment.find_op(self._op) if self._moment else None
        left: Row = [(f"{self._op} latency", OP_TONES.get(self._op, Tone.STRONG))]
        if moment:
            column_s = (self._frame.interval_s or moment.seconds) * self._view.zoom_factor
            left.append((f", {_format_length(column_s)} per column", Tone.FAINT))
        p50, p99 = (op.figures[path] if op else None for path in ("latency_ns.p50", "latency_ns.p99"))
        right = f"━ p50 {units.format_ns(p50)}  ┅ p99 {units.format_ns(p99)}"
        width = self._frame.width - 1
        for unit in (" requests per cell", " per cell", ""):
            colours = draw_legend(shown.hottest, unit)
            if measure_row(left) + measure_row(colours) + len(right) + 4 <= width:
                left += [("  ", Tone.PLAIN), *colours]
                break
        return justify_row(left, [(right, Tone.PLAIN)], width)

    def _draw_ruler(self) -> Row:
        """Return the bottom line of the map, with event marks and the cursor."""
        empty = self._width - len(self._columns)
        row: Row = [(" " * (MARGIN - 1) + "└", Tone.FAINT), ("─" * empty, Tone.FAINT)]
        for place in range(len(self._columns)):
            is_cursor = place == self._cursor
            if place in self._marks:
                row.append(("▲", Tone.CHOSEN if is_cursor else Tone.MARK))
            else:
                row.append(("┴", Tone.CURSOR) if is_cursor else ("─", Tone.FAINT))
        return row

    def _build_clock_row(self) -> Row:
        """Return the clock times below the map: at the cursor, and at regular columns."""
        wide, first = self._width + MARGIN + 1, MARGIN + self._width - len(self._columns)
        places = range(len(self._columns) - 1, -1, -_CLOCK_DISTANCE)
        texts = [(first + place, self._format_clock_at(place)) for place in places]
        labels = [(at - len(text) + 1, text) for at, text in texts]
        chosen: list[tuple[int, str]] = []
        if self._cursor is not None and self._moment:
            text = f"{self._moment.at.astimezone():%H:%M:%S}"
            chosen = [(min(max(first + self._cursor - len(text) // 2, 0), wide - len(text)), text)]
            begin, end = chosen[0][0], chosen[0][0] + len(text)
            labels = [(at, text) for at, text in labels if at + len(text) < begin or at > end]
        row, at = list[Piece](), 0
        for begin, text in sorted([*labels, *chosen]):
            if begin < max(MARGIN - 1, at) and (begin, text) not in chosen:
                continue
            row.append((" " * (begin - at), Tone.FAINT))
            row.append((text, Tone.CHOSEN if (begin, text) in chosen else Tone.FAINT))
            at = begin + len(text)
        return row

    def _format_clock_at(self, place: int) -> str:
        return f"{self._columns[place][-1].at.astimezone():%H:%M:%S}"

    def _group_marks(self) -> dict[int, list[EventMark]]:
        """Return the events of each column."""
        if not self._columns:
            return {}
        begin_ns, end_ns = self._columns[0][0].begin_ns, self._columns[-1][-1].end_ns
        marks: dict[int, list[EventMark]] = {}
        for mark in self._past.find_marks_between(begin_ns, end_ns):
            place = next(
                number for number, moments in enumerate(self._columns) if mark.at_ns <= moments[-1].end_ns
            )
            marks.setdefault(place, []).append(mark)
        return marks

    def _build_lower_rows(self, room: int, least: int) -> list[Row]:
        """Return the rows below the map, which share `room` rows with it."""
        shown = [moment for moments in self._columns for moment in moments]
        numbers, sparks = build_op_table(self._moment, self._op, shown), self._build_spark_rows()
        marks = [mark for place in sorted(self._marks) for mark in self._marks[place]]
        owners = count_needed_rows(moment.owners for moment in shown) or self._count_reason_rows()
        few = min(owners, max(self._frame.height // 6, _MIN_OWNERS))
        if self._frame.width < _WIDE:
            most = self._count_rows_below(room, least, len(numbers) + len(sparks) + few, owners)
            panel = self._build_owner_rows(min(few, most - len(numbers)), self._frame.width)
            return [
                *numbers,
                *panel,
                *sparks,
                *build_message_rows(shown, marks, self._moment, self._frame.width),
            ][:most]
        most = self._count_rows_below(room, least, len(sparks) + max(len(numbers), few), owners)
        left, right = numbers, build_message_rows(shown, marks, self._moment, self._frame.width // 2 - 1)
        if owners:
            half = self._frame.width - self._frame.width // 2 - 2
            left, right = [*left, *right], self._build_owner_rows(min(owners, most - len(sparks)), half)
        return [*sparks, *join_side_by_side(left, right, self._frame.width)][:most]

    def _count_rows_below(self, room: int, least: int, needed: int, owners: int) -> int:
        """Return the number of rows below the map.

        Messages give way to the map up to a third of the screen. Owners do not, unless the map is at its
        minimum.
        """
        wanted = self._frame.height // 3
        if owners:
            wanted = min(wanted, room - needed)
        return max(room - max(least, wanted), 0)

    def _count_reason_rows(self) -> int:
        return int(bool(self._moment and self._moment.no_owners))

    def _build_owner_rows(self, most: int, width: int) -> list[Row]:
        """Return the owners of the interval, with as many rows as any interval in view needs."""
        moment, rows = self._moment, list[Row]()
        if moment and moment.no_owners and most:
            rows = [[(remove_control_characters(f"owners unknown: {moment.no_owners}"), Tone.FAINT)]]
        elif moment:
            rows = build_owner_rows(moment.owners, moment.seconds, most, width)
        blank: Row = []
        return [*rows, *[blank] * (most - len(rows))]

    def _build_spark_rows(self) -> list[Row]:
        """Return the rates of all operations combined, aligned with the map's columns."""
        height = 2 if self._frame.height >= _TALL else 1
        totals = [_compute_mean_totals(moments) for moments in self._columns]
        requests, bytes_, depths = ([total[number] for total in totals] for number in range(3))
        newest = _compute_mean_totals([self._moment]) if self._moment else (0.0, 0.0, 0.0)
        kinds = (
            (f"{units.format_rate(newest[0]):>6} IO/s ", requests, Tone.READ),
            (f"{units.format_megabytes(newest[1]):>6} MB/s ", bytes_, Tone.WRITE),
            (f"{newest[2]:>6.1f} qd   ", depths, Tone.BAR),
        )
        rows: list[Row] = []
        for label, values, tone in kinds:
            bars = draw_spark_rows(values, self._width, height, tone)
            labels = [*[""] * (height - 1), label]
            rows += [
                [(f"{text:<{MARGIN}}", Tone.PLAIN), *self._mark_cursor(bar)]
                for text, bar in zip(labels, bars, strict=True)
            ]
        return rows

    def _mark_cursor(self, bars: Row) -> Row:
        """Return bars below the map, with the cursor's column marked."""
        if self._cursor is None:
            return bars
        [(text, tone)] = bars
        at = self._width - len(self._columns) + self._cursor
        return [(text[:at], tone), (text[at].replace(" ", CURSOR), Tone.CURSOR), (text[at + 1 :], tone)]

    def _build_time_bar(self) -> Row:
        """Return the position of the map and the cursor in the kept history."""
        begin_ns, end_ns = self._past.span_ns
        if not self._columns or end_ns <= begin_ns or self._moment is None:
            return []
        first, last = self._columns[0][0], self._columns[-1][-1]
        begin, end = (_format_clock(last, at_ns) for at_ns in (begin_ns, end_ns))
        room = max(self._frame.width - len(begin) - len(end) - 4, 1)
        left, right, cursor = (
            round((moment.end_ns - begin_ns) * (room - 1) / (end_ns - begin_ns))
            for moment in (first, last, self._moment)
        )
        return [
            (f"{begin} ", Tone.FAINT),
            ("─" * left, Tone.FAINT),
            ("▬" * (cursor - left), Tone.BAR),
            ("█", Tone.CURSOR),
            ("▬" * (right - cursor), Tone.BAR),
            ("─" * (room - 1 - right), Tone.FAINT),
            (f" {end}", Tone.FAINT),
        ]


def _format_length(seconds: float) -> str:
    """Return an interval length, rounded because intervals are off by milliseconds."""
    return f"{round(seconds, 2):g} s"


def _format_clock(known: CompactInterval, at_ns: int) -> str:
    """Return a wall-clock time, computed from a known moment."""
    at: datetime = known.at + timedelta(microseconds=(at_ns - known.end_ns) / 1000)
    return f"{at.astimezone():%H:%M:%S}"


def _compute_mean_totals(moments: Sequence[CompactInterval]) -> tuple[float, float, float]:
    """Return requests and bytes per second and the mean queue depth over some moments."""
    seconds = sum(moment.seconds for moment in moments)
    if not seconds:
        return 0.0, 0.0, 0.0
    totals = [moment.sum_ops() for moment in moments]
    depth = sum(total[2] * moment.seconds for total, moment in zip(totals, moments, strict=True))
    return sum(t[0] for t in totals) / seconds, sum(t[1] for t in totals) / seconds, depth / seconds
