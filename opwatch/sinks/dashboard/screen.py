"""A whole screen, of any size: what is shown of a past to somebody who looks at a part of it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from opwatch import units
from opwatch.frozen import frozen
from opwatch.sinks.dashboard.heat import axis, column_of, heat_rows
from opwatch.sinks.dashboard.moment import DiskMoment
from opwatch.sinks.dashboard.owners import owner_rows, rows_wanted
from opwatch.sinks.dashboard.panels import disk_rows, drive_rows, table, trust_row, words
from opwatch.sinks.dashboard.past import DiskPast, EventMark, Past
from opwatch.sinks.dashboard.rows import OPS, Piece, Row, Tone, apart, beside, clean, fit
from opwatch.sinks.dashboard.spark import spark_rows
from opwatch.sinks.dashboard.view import View

# What stands before a map and bars.
MARGIN = 13
_LEAST_HEAT = 4
_LEAST_OWNERS = 4
_WIDE = 150
_TALL = 40
# A time of the clock stands below every so many columns.
_EVERY = 20
KEYS = "q quit  space pause  ←→ time  +- zoom  ↑↓ disk  rwdf op  o record  ? help"
HELP = (
    ("the map", "a column is an interval, latencies grow upwards; the brighter,"),
    ("", "the more requests took so long; ━ median, ┅ 99th of a hundred"),
    ("the table", "the interval at the right end of the map: requests and MB a"),
    ("", "second, latency in the device, qd mean requests in the device,"),
    ("", "median size, seq% of them sequential, err errors"),
    ("owners", "whose they were, the most bytes first; other closes the sum"),
    ("n u m s", "nano-, micro-, milliseconds, seconds; <: at most this"),
    ("trust", "green: tracer and kernel agree on all; red: what nothing explains"),
    ("", ""),
    ("space", "stop, and go on where it is live"),
    ("← → PgUp PgDn", "back and forth in time, an hour at most; Home oldest, End newest"),
    ("+ -", "more or less to a column"),
    ("↑ ↓ Tab", "another disk"),
    ("r w d f x a", "reads, writes, discards, flushes, all other in the map;"),
    ("", "a: whatever is busiest"),
    ("o", "write all that is kept into a recording: opwatch replay shows it"),
    ("q Ctrl-C", "end, with the summary"),
)


@frozen
class Frame:
    """How a screen stands in its terminal. `title` says what is shown: a live watch, or a file. `is_file`: a
    time bar is always there, and the end is none of a watch that goes on."""

    width: int
    height: int
    title: str = "live"
    is_file: bool = False


def screen(past: Past, view: View, frame: Frame) -> list[Row]:
    """Exactly so many rows of exactly so many columns."""
    disk = view.disk(past)
    if view.is_help:
        rows = _help()
    elif disk is None:
        rows = [
            [("opwatch", Tone.STRONG), (f"  {clean(frame.title)}", Tone.FAINT)],
            [("waiting", Tone.FAINT)],
        ]
    else:
        rows = _Composed(past, view, frame, disk).rows()
    blank: Row = []
    shown = [*rows, *[blank] * frame.height][: frame.height]
    if disk is not None or view.is_help:
        note = past.note()
        shown[-1] = [(clean(note), Tone.MARK)] if note else [(KEYS, Tone.FAINT)]
    return [fit(row, frame.width) for row in shown]


def _help() -> list[Row]:
    rows: list[Row] = [[("opwatch: what is shown, and keys", Tone.STRONG)], []]
    for head, text in HELP:
        rows.append([(f"{head:<15}", Tone.STRONG), (text, Tone.PLAIN)])
    return rows


class _Composed:
    """A screen of one disk while it is put together."""

    def __init__(self, past: Past, view: View, frame: Frame, disk: DiskPast) -> None:
        self._past, self._view, self._frame, self._disk = past, view, frame, disk
        self._width = max(frame.width - MARGIN - 1, 10)
        self._moment = view.moment(past)
        self._op = view.op(disk)
        self._columns = view.columns(disk, self._width)
        self._marks = self._marks_in_view()

    def rows(self) -> list[Row]:
        frame, head = self._frame, self._head()
        bar = self._time_bar() if frame.is_file or self._view.is_paused else []
        # Title, rule and times of the map; the last row has the keys.
        room = frame.height - len(head) - len(bar) - 4
        least = min(_LEAST_HEAT, max(room, 0))
        below = self._below(room, least)
        tall = room - len(below)
        heat = self._heat(tall) if tall >= least and tall > 0 else []
        return [*head, *heat, *below, *bar]

    def _head(self) -> list[Row]:
        disk, moment, frame = self._disk, self._moment, self._frame
        at = f"{moment.at.astimezone():%H:%M:%S}" if moment else ""
        state: Piece = (
            (" PAUSED ", Tone.CHOSEN) if self._view.is_paused else (f" {clean(frame.title)} ", Tone.GOOD)
        )
        left: Row = [("opwatch ", Tone.STRONG), (clean(disk.label), Tone.STRONG)]
        left.append((f"  {clean(disk.level)}", Tone.FAINT))
        every = f"{_length(moment.seconds)}  " if moment else ""
        rows = [apart(left, [(every, Tone.FAINT), (at, Tone.STRONG), (" ", Tone.PLAIN), state], frame.width)]
        rows.append(trust_row(disk, moment))
        rows += disk_rows(self._past, disk, self._view.until_ns, max(frame.height // 6, 1), frame.width)
        return [*rows, *drive_rows(self._past, disk, moment, frame.width)]

    def _heat(self, tall: int) -> list[Row]:
        columns = [column_of(moments, self._op) for moments in self._columns]
        rows, scale = heat_rows(columns, self._width, tall)
        pad = " " * (MARGIN - 8)
        heat = [[(pad, Tone.PLAIN), label, *row] for label, row in zip(axis(scale, tall), rows, strict=True)]
        return [self._heat_title(), *heat, self._rule(), self._times()]

    def _heat_title(self) -> Row:
        moment, op = self._moment, self._moment.op(self._op) if self._moment else None
        zoom = self._view.zoom
        column = f"a column is {_length(moment.seconds * zoom)}" if moment else ""
        left: Row = [(f"{self._op} latency", OPS.get(self._op, Tone.STRONG)), (f"  {column}", Tone.FAINT)]
        quantiles = op.latency if op else None
        right = f"━ p50 {units.duration(quantiles and quantiles.p50)}  ┅ p99 "
        right += units.duration(quantiles and quantiles.p99)
        return apart(left, [(right, Tone.PLAIN)], self._frame.width - 1)

    def _rule(self) -> Row:
        """The foot of the map, with marks where something happened."""
        marked = set(self._marks)
        empty = self._width - len(self._columns)
        row: Row = [(" " * (MARGIN - 1) + "└", Tone.FAINT), ("─" * empty, Tone.FAINT)]
        for place in range(len(self._columns)):
            row.append(("▲", Tone.MARK) if place in marked else ("─", Tone.FAINT))
        return row

    def _times(self) -> Row:
        text = [" "] * (self._width + MARGIN + 1)
        empty = self._width - len(self._columns)
        for place in range(len(self._columns) - 1, -1, -_EVERY):
            label = f"{self._columns[place][-1].at.astimezone():%H:%M:%S}"
            begin = MARGIN + empty + place - len(label) + 1
            if begin >= MARGIN - 1 and empty + place >= len(label) - 1:
                text[begin : begin + len(label)] = label
        return [("".join(text), Tone.FAINT)]

    def _marks_in_view(self) -> dict[int, list[EventMark]]:
        """What happened in each column."""
        if not self._columns:
            return {}
        begin_ns, end_ns = self._columns[0][0].begin_ns, self._columns[-1][-1].end_ns
        marks: dict[int, list[EventMark]] = {}
        for mark in self._past.marks_between(begin_ns, end_ns):
            place = next(
                number for number, moments in enumerate(self._columns) if mark.at_ns <= moments[-1].end_ns
            )
            marks.setdefault(place, []).append(mark)
        return marks

    def _below(self, room: int, least: int) -> list[Row]:
        """What stands below the map, in so many rows with it."""
        numbers, sparks = table(self._moment, self._op), self._sparks()
        shown = [moment for moments in self._columns for moment in moments]
        marks = [mark for place in sorted(self._marks) for mark in self._marks[place]]
        owners = rows_wanted(moment.owners for moment in shown) or self._reason_rows()
        few = min(owners, max(self._frame.height // 6, _LEAST_OWNERS))
        if self._frame.width < _WIDE:
            most = self._most_below(room, least, len(numbers) + len(sparks) + few, owners)
            panel = self._owners(min(few, most - len(numbers)), self._frame.width)
            return [*numbers, *panel, *sparks, *words(shown, marks, self._frame.width)][:most]
        most = self._most_below(room, least, len(sparks) + max(len(numbers), few), owners)
        left, right = numbers, words(shown, marks, self._frame.width // 2 - 1)
        if owners:
            half = self._frame.width - self._frame.width // 2 - 2
            left, right = [*left, *right], self._owners(min(owners, most - len(sparks)), half)
        return [*sparks, *beside(left, right, self._frame.width)][:most]

    def _most_below(self, room: int, least: int, needed: int, owners: int) -> int:
        """Rows below the map. What is said in words gives way to it, down to a third of the screen; owners
        do not, unless the map has the least already."""
        wanted = self._frame.height // 3
        if owners:
            wanted = min(wanted, room - needed)
        return max(room - max(least, wanted), 0)

    def _reason_rows(self) -> int:
        return int(bool(self._moment and self._moment.no_owners))

    def _owners(self, most: int, width: int) -> list[Row]:
        """Whose the requests of the interval were, in as many rows as there are for any interval in view."""
        moment, rows = self._moment, list[Row]()
        if moment and moment.no_owners and most:
            rows = [[(clean(f"owners are not known: {moment.no_owners}"), Tone.FAINT)]]
        elif moment:
            rows = owner_rows(moment.owners, moment.seconds, most, width)
        blank: Row = []
        return [*rows, *[blank] * (most - len(rows))]

    def _sparks(self) -> list[Row]:
        """Rates of all operations together, below the columns of the map."""
        height = 2 if self._frame.height >= _TALL else 1
        totals = [_mean_totals(moments) for moments in self._columns]
        requests, bytes_, depths = ([total[number] for total in totals] for number in range(3))
        newest = _mean_totals([self._moment]) if self._moment else (0.0, 0.0, 0.0)
        kinds = (
            (f"{units.rate(newest[0]):>6} IO/s ", requests, Tone.READ),
            (f"{units.megabytes(newest[1]):>6} MB/s ", bytes_, Tone.WRITE),
            (f"{newest[2]:>6.1f} qd   ", depths, Tone.BAR),
        )
        rows: list[Row] = []
        for label, values, tone in kinds:
            bars = spark_rows(values, self._width, height, tone)
            labels = [*[""] * (height - 1), label]
            rows += [
                [(f"{text:<{MARGIN}}", Tone.PLAIN), *bar] for text, bar in zip(labels, bars, strict=True)
            ]
        return rows

    def _time_bar(self) -> list[Row]:
        """Where what is seen lies in all that is kept."""
        begin_ns, end_ns = self._past.span_ns
        if not self._columns or end_ns <= begin_ns:
            return []
        first, last = self._columns[0][0], self._columns[-1][-1]
        begin, end = (_clock(last, at_ns) for at_ns in (begin_ns, end_ns))
        room = max(self._frame.width - len(begin) - len(end) - 4, 1)
        span = end_ns - begin_ns
        left, right = ((moment.end_ns - begin_ns) * (room - 1) // span for moment in (first, last))
        return [
            [
                (f"{begin} ", Tone.FAINT),
                ("─" * left, Tone.FAINT),
                ("▬" * (right - left), Tone.BAR),
                ("█", Tone.CHOSEN),
                ("─" * (room - 1 - right), Tone.FAINT),
                (f" {end}", Tone.FAINT),
            ]
        ]


def _length(seconds: float) -> str:
    """How long it is, as it was meant: an interval is off by a millisecond."""
    return f"{round(seconds, 2):g} s"


def _clock(known: DiskMoment, at_ns: int) -> str:
    """A moment by the clock of the wall, reckoned from one that is known."""
    at: datetime = known.at + timedelta(microseconds=(at_ns - known.end_ns) / 1000)
    return f"{at.astimezone():%H:%M:%S}"


def _mean_totals(moments: Sequence[DiskMoment]) -> tuple[float, float, float]:
    """Requests and bytes a second, and requests in the device, over some moments."""
    seconds = sum(moment.seconds for moment in moments)
    if not seconds:
        return 0.0, 0.0, 0.0
    totals = [moment.totals() for moment in moments]
    depth = sum(total[2] * moment.seconds for total, moment in zip(totals, moments, strict=True))
    return sum(t[0] for t in totals) / seconds, sum(t[1] for t in totals) / seconds, depth / seconds
