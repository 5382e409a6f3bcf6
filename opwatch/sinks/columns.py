"""The columns of a row: one operation of a disk in one interval.

Lines, dashboard, exports and the manual's test read this table. The JSON document of an operation defines
the values, and a null in it is a dash in every view.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from opwatch import units
from opwatch.sinks.tones import OP_TONES, Span, Tone
from opwatch.trace.hist import Histogram

# Values by their path in the JSON document of an operation.
Figures = Mapping[str, Any]
SHORT_OP_NAMES = {"write_zeroes": "wzeroes", "secure_erase": "serase"}
_NAME_WIDTH = 7
# Terminals of these widths show more columns.
WIDE, WIDER = 120, 132
_LATENCY, _QUEUE = "latency_ns", "queue_ns"
# Rows of the waits before the queue, which have no quantiles.
_WAITS = {" throttled": "throttle_ns", " admission": "admission_ns"}
_BY_UNIT = {"n": Tone.FAINT, "u": Tone.PLAIN, "m": Tone.SLOW, "s": Tone.SLOWEST}
_BARS = " ▁▂▃▄▅▆▇█"
# One character per octave: 1 us, 1 ms and 1 s are ten characters apart.
_LOWEST, _OCTAVES = 10, 24
_RULER = "1u        1m        1s".ljust(_OCTAVES)


def _choose_time_tone(text: str) -> Tone:
    return _BY_UNIT.get(text[-1:], Tone.PLAIN)


def _choose_error_tone(text: str) -> Tone:
    return Tone.PLAIN if text in ("0", "-") else Tone.ALARM


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column of `width` characters after `gap` blanks.

    `cell` formats the values at `paths`, of which the first names the column in exports and is a dash if it
    is None. `room` is for a mark before the value. `least` is the width of a terminal that shows the column.
    `is_usual`: `opwatch dump` exports it unless fields are selected.
    """

    name: str
    width: int
    paths: tuple[str, ...]
    cell: Callable[..., str]
    tone: Callable[[str], Tone] | None = None
    is_usual: bool = False
    heading: str = ""
    gap: int = 1
    room: int = 0
    least: int = 0

    def format_spans(self, figures: Figures) -> list[Span]:
        """Return the blanks and the text of the cell."""
        values = [figures[path] for path in self.paths]
        text = "-" if values[0] is None else self.cell(*values)
        blanks = " " * (self.gap + max(self.width + self.room - len(text), 0))
        return [(blanks, Tone.PLAIN), (text, self.tone(text) if self.tone else Tone.PLAIN)]


def _format_maximum(ns: float, slack_ns: float) -> str:
    """Return the maximum, with `<` if it is an upper bound: it is only known to its histogram slot."""
    return ("<" if slack_ns else "") + units.format_ns(ns)


def _format_size(n_bytes: float, count: float = 1) -> str:
    return units.format_size(round(n_bytes / count) if count else None)


def _format_percent(ratio: float) -> str:
    return f"{ratio * 100:.0f}"


def _format_errors(errors: float) -> str:
    """Return an error count in at most 4 characters. The summary has exact counts per status."""
    count = int(errors)
    if count < 1000:
        return str(count)
    return f"{count // 1000}k" if count < 100_000 else "many"


def _make_time_column(name: str, key: str, *, is_usual: bool = False) -> TableColumn:
    paths = (f"{_LATENCY}.{key}",)
    return TableColumn(name, 5, paths, units.format_ns, tone=_choose_time_tone, is_usual=is_usual)


def draw_latency_shape(histogram: Histogram) -> str:
    """Return the latency distribution as one bar per octave.

    Latencies below a microsecond are in the first bar, latencies above ten seconds in the last. Heights are
    relative to the highest bar, and an octave with requests is never blank.
    """
    counts = [0] * _OCTAVES
    for low, _, count in histogram.list_octaves():
        counts[min(max(low.bit_length() - 1 - _LOWEST, 0), _OCTAVES - 1)] += count
    most = max(counts)
    return "".join(_BARS[-(-count * (len(_BARS) - 1) // most)] if count else " " for count in counts)


RATE = TableColumn("/s", 6, ("per_s",), units.format_rate, is_usual=True)
MEGABYTES = TableColumn("MB/s", 6, ("bytes_per_s",), units.format_megabytes, is_usual=True)
P99 = _make_time_column("p99", "p99", is_usual=True)
TIMES = (
    _make_time_column("mean", "mean", is_usual=True),
    _make_time_column("p50", "p50", is_usual=True),
    _make_time_column("p90", "p90"),
    P99,
    _make_time_column("p99.9", "p99_9"),
    replace(
        _make_time_column("max", "max", is_usual=True),
        paths=(f"{_LATENCY}.max", f"{_LATENCY}.max_slack"),
        cell=_format_maximum,
        room=1,
    ),
)
# In the first row of a disk only.
BUSY = TableColumn("%util", 5, ("busy_ratio",), _format_percent, least=WIDER)
COLUMNS = (
    RATE,
    MEGABYTES,
    *TIMES,
    TableColumn("qd", 6, ("queue_depth",), "{:.1f}".format, gap=0),
    TableColumn("size", 4, ("size_bytes.p50",), _format_size),
    TableColumn("seq%", 4, ("sequential_ratio",), _format_percent),
    TableColumn("err", 3, ("errors",), _format_errors, tone=_choose_error_tone),
    TableColumn("mean size", 9, ("bytes", "count"), _format_size, gap=2, least=WIDE),
    TableColumn("bars", _OCTAVES, ("latency_shape",), str, heading=_RULER, gap=2, least=WIDE),
    TableColumn("await", 6, ("await_ns",), units.format_ns, tone=_choose_time_tone, least=WIDER),
    BUSY,
)
# Meaning of each column, in the words of the manual.
HELP = {
    "/s": "Completions per second.",
    "MB/s": "Megabytes (10^6 bytes) per second.",
    **dict.fromkeys(
        (column.name for column in TIMES),
        "Latency from the first issue to the last completion, in nano- (n), micro- (u) and milliseconds (m) "
        "or seconds (s).",
    ),
    "qd": "Mean number of requests in flight, exactly: the integral of their number over time.",
    "size": "Median size of the requests issued, in powers of 1024.",
    "seq%": "Share of requests that started where the last request of their kind on the same CPU ended.",
    "err": "Completions with an error.",
    "mean size": "bytes per request",
    "bars": "the number of requests by latency, an octave per bar, from 1 us to 10 s.",
    "await": "Mean time from a request's allocation to its completion, so it includes the time in the queue.",
    "%util": "In the first row of a disk: the share of time in which any request was in progress.",
}
_QUEUE_PATHS = {path: path.replace(_LATENCY, _QUEUE) for column in TIMES for path in column.paths}
# Values that lines add, because an operation's document does not have them.
_ADDED = ("latency_shape", "await_ns", "busy_ratio")
_OWN_PATHS = [path for column in COLUMNS for path in column.paths if path not in _ADDED]
# Values that every view reads, the number of requests first.
_WAIT_PATHS = [f"{wait}.{key}" for wait in _WAITS.values() for key in ("mean", "max", "max_limit")]
PATHS = tuple(dict.fromkeys(["count", "bytes", *_OWN_PATHS, *_QUEUE_PATHS.values(), *_WAIT_PATHS]))
_SPLIT_PATHS = [(path, *path.split(".")) for path in PATHS]
_IDLE = {"per_s": 0.0, "bytes_per_s": 0.0}
_NONE: Mapping[str, Any] = {}


def read_figures(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of an operation's JSON document by path. A value that is absent is None."""
    return {
        path: (document.get(outer) or _NONE).get(inner[0]) if inner else document[outer]
        for path, outer, *inner in _SPLIT_PATHS
    }


@cache
def _select_columns(width: int) -> list[TableColumn]:
    return [column for column in COLUMNS if column.least <= width]


def format_header(width: int = 0) -> str:
    """Return the headings for a terminal of this width.

    The cells of a row are to the left of their headings by the room for a mark.
    """
    columns = _select_columns(width)
    name_width = _NAME_WIDTH + sum(column.room for column in columns)
    cells = "".join(
        " " * column.gap + f"{column.heading or column.name:>{column.width}}" for column in columns
    )
    return (f"{'op':<{name_width}}" + cells).rstrip()


HEADER = format_header()


def format_row(
    name: str, figures: Figures, width: int = 0, *, is_first: bool = True, tone: Tone | None = None
) -> list[Span]:
    """Return an operation's row. `tone` is that of its name, by default the operation's."""
    row = [_format_name(name, tone)]
    for column in _select_columns(width):
        row += column.format_spans(figures) if is_first or column is not BUSY else []
    while not row[-1][0].strip():
        row.pop()
    return [*row[:-1], (row[-1][0].rstrip(), row[-1][1])]


def format_wait_rows(figures: Figures) -> list[list[Span]]:
    """Return a row for each measured time before the issue, in the order of a request's path."""
    rows = [_format_times_row(head, _read_wait(figures, wait)) for head, wait in _WAITS.items()]
    rows.append(_format_times_row(" in queue", {path: figures[of] for path, of in _QUEUE_PATHS.items()}))
    return [row for row in rows if row]


def _read_wait(figures: Figures, wait: str) -> dict[str, Any]:
    """Return a wait in the columns of latencies. Its maximum may be known only as a limit."""
    return dict.fromkeys(_QUEUE_PATHS) | {
        f"{_LATENCY}.mean": figures[f"{wait}.mean"],
        f"{_LATENCY}.max": figures[f"{wait}.max_limit"],
        f"{_LATENCY}.max_slack": figures[f"{wait}.max"] is None,
    }


def _format_times_row(head: str, times: Figures) -> list[Span]:
    """Return a row with times only, empty without a mean."""
    if times[f"{_LATENCY}.mean"] is None:
        return []
    width = _NAME_WIDTH + sum(one.gap + one.width for one in (RATE, MEGABYTES))
    row = [(head, Tone.FAINT), (" " * (width - len(head)), Tone.PLAIN)]
    for column in TIMES:
        row += column.format_spans(times)
    return row


def format_idle_row(name: str, tone: Tone | None) -> list[Span]:
    """Return the row of an operation without requests."""
    rates = (text for column in (RATE, MEGABYTES) for text, _ in column.format_spans(_IDLE))
    return [_format_name(name, tone), ("".join(rates), Tone.FAINT)]


def _format_name(name: str, tone: Tone | None) -> Span:
    return f"{SHORT_OP_NAMES.get(name, name):<{_NAME_WIDTH}}", tone or OP_TONES.get(name, Tone.STRONG)
