"""A Grafana dashboard as a page of a report: panels as plots and tables."""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from opwatch import units
from opwatch.report.heat import SHADES
from opwatch.sinks.report.page import render_page
from opwatch.sinks.report.plots import amounts
from opwatch.sinks.report.plots.figure import Figure
from opwatch.sinks.report.plots.markup import draw_boxes, draw_line, escape_text, render_table
from opwatch.sinks.report.plots.scales import (
    EXTENT,
    AxisScale,
    make_capacity_axis,
    make_linear_axis,
    make_log_axis,
    make_time_axis,
)
from tests.fleet.scrape.engines import Server
from tests.fleet.scrape.expressions import insert_variables

Json = Mapping[str, Any]
# Points of a series: seconds since the start, and the value.
Points = Sequence[tuple[float, float]]

_MAX_NAMES, _MAX_NAME, _MAX_ROWS, _STYLES = 6, 36, 5, 6
_STYLE = (
    "<style>.plots{grid-template-columns:repeat(3,minmax(0,1fr))}.frame{grid-template-rows:140px 20px}"
    ".plot{padding:8px}.tables table{font-size:12px}figcaption{margin-bottom:4px}"
    "footer,.axes span:empty{display:none}h2{margin:16px 0 8px}</style>"
)


@dataclass(frozen=True, slots=True)
class Board:
    """A dashboard, the server that answers its queries, the values of its variables, and the shown time."""

    content: Json
    server: Server
    values: Mapping[str, str]
    begin_s: int
    end_s: int
    step_s: int

    def query_range(self, target: Json) -> list[tuple[str, Json, Points]]:
        """Return (legend, labels, points) of each series of a target."""
        expression = insert_variables(target["expr"], self.values)
        found = self.server.query_range(expression, self.begin_s, self.end_s, self.step_s)
        return [
            (
                format_legend(target["legendFormat"], series["metric"]),
                series["metric"],
                [(moment - self.begin_s, float(value)) for moment, value in series["values"]],
            )
            for series in found
        ]

    def query_end(self, target: Json) -> list[tuple[str, Json, float]]:
        """Return (legend, labels, value) of each series of a target at the end of the shown time."""
        found = self.server.query(insert_variables(target["expr"], self.values), self.end_s)
        return [
            (
                format_legend(target["legendFormat"], series["metric"]),
                series["metric"],
                float(series["value"][1]),
            )
            for series in found
        ]


def format_legend(template: str, labels: Json) -> str:
    """Return the name of a series, as Grafana makes it from the template."""
    if template == "__auto":
        return ", ".join(value for name, value in labels.items() if name not in ("__name__", "job"))
    return re.sub(r"{{(\w+)}}", lambda match: labels.get(match[1], ""), template)


def format_value(value: float, unit: str, now_s: float) -> str:
    """Return a value with its unit."""
    if unit == "s":
        if value == 0:
            return "0 s"
        return amounts.format_latency(value * 1e9) if value < 100 else amounts.format_duration(value)
    if unit == "dateTimeFromNow":
        return f"in {amounts.format_duration(value / 1000 - now_s)}"
    if unit == "bytes":
        return units.format_capacity(round(value))
    if unit == "bool_yes_no":
        return "Yes" if value else "No"
    if unit == "celsius":
        return f"{value:.0f} °C"
    if unit == "percentunit":
        return f"{100 * value:.3g} %"
    return f"{value:,.0f}" if value == int(value) else f"{value:.3g}"


def make_axis(high: float, unit: str) -> tuple[AxisScale, str, float]:
    """Return the vertical axis up to a value, its title, and the factor of values on it."""
    if unit == "bytes":
        return make_capacity_axis(high), "bytes", 1.0
    title, factor = {
        "s": ("ms", 1e3),
        "Bps": ("MB/s", 1e-6),
        "iops": ("requests per second", 1.0),
        "celsius": ("°C", 1.0),
        "percentunit": ("%", 100.0),
    }.get(unit, ("", 1.0))
    return make_linear_axis(high * factor, most=5), title, factor


def place_points(points: Points, x: AxisScale, y: AxisScale, factor: float, step_s: float) -> Iterator[Any]:
    """Yield the places of points, with None where the series has a gap."""
    last_s = points[0][0] if points else 0.0
    for moment, value in points:
        if moment - last_s > 1.5 * step_s or not math.isfinite(value):
            yield None
        if math.isfinite(value):
            yield x.place_value(moment), EXTENT - y.place_value(value * factor)
        last_s = moment


def draw_series(board: Board, panel: Json) -> Figure:
    """Return a panel of lines."""
    series = [one for target in panel["targets"] for one in board.query_range(target)]
    high = max((value for *_, points in series for _, value in points if math.isfinite(value)), default=1.0)
    y, title, factor = make_axis(high, panel["fieldConfig"]["defaults"]["unit"])
    x = make_time_axis(board.end_s - board.begin_s)
    layers = [
        draw_line(place_points(points, x, y, factor, board.step_s), f"run{number % _STYLES}")
        for number, (_, _, points) in enumerate(series)
    ]
    legend = [
        (f"run{number % _STYLES}", name if len(name) <= _MAX_NAME else f"…{name[-_MAX_NAME:]}")
        for number, (name, *_) in enumerate(series[:_MAX_NAMES])
    ]
    if len(series) > _MAX_NAMES:
        legend.append(("", f"and {len(series) - _MAX_NAMES} more"))
    return Figure(panel["title"], x, y, "", title, layers, legend)


def list_cells(series: Sequence[tuple[str, Json, Points]]) -> Iterator[tuple[float, float, float, float]]:
    """Yield (moment, low, high, share) of each bucket with requests. The series are cumulative."""
    columns = dict[float, dict[float, float]]()
    for _, labels, points in series:
        for moment, value in points:
            columns.setdefault(moment, {})[float(labels["le"])] = value
    for moment, column in columns.items():
        total, below, low = max(column.values()), 0.0, 0.0
        for high, value in sorted(column.items()):
            if total > 0 and value > below and math.isfinite(high):
                yield moment, low or high / math.sqrt(2), high, (value - below) / total
            below, low = value, high


def draw_heat(board: Board, panel: Json) -> Figure:
    """Return a panel of latencies: the share of each bucket over time."""
    cells = list(list_cells(board.query_range(panel["targets"][0])))
    y = make_log_axis(
        min((low for _, low, _, _ in cells), default=1e-6),
        max((high for _, _, high, _ in cells), default=1.0),
        lambda value: amounts.format_latency(value * 1e9),
    )
    x = make_time_axis(board.end_s - board.begin_s)
    boxes: list[list[tuple[int, int, int, int]]] = [[] for _ in SHADES]
    for moment, low, high, share in cells:
        left, right = x.place_value(moment - board.step_s), x.place_value(moment)
        top, bottom = EXTENT - y.place_value(high), EXTENT - y.place_value(low)
        boxes[bisect_left(SHADES, min(share, 1.0))].append((left, top, right - left, bottom - top))
    layers = [draw_boxes(places, f"heat{shade}") for shade, places in enumerate(boxes)]
    return Figure(panel["title"], x, y, "", "latency", layers)


def tabulate_panel(board: Board, panel: Json) -> tuple[list[str], list[list[str]]]:
    """Return the head and the first rows of a table panel."""
    options = panel["transformations"][0]["options"]
    hidden, names = set(options["excludeByName"]), options["renameByName"]
    unit = panel["fieldConfig"]["defaults"]["unit"]
    found = [one for target in panel["targets"] for one in board.query_end(target)]
    found.sort(key=lambda one: one[2], reverse=unit != "dateTimeFromNow")
    labels = list(dict.fromkeys(name for _, metric, _ in found for name in metric if name not in hidden))
    head = [names.get(name, name) for name in labels] + ([] if "Value" in hidden else ["Value"])
    rows = [
        [
            *(metric.get(name, "") for name in labels),
            *([] if "Value" in hidden else [format_value(value, unit, board.end_s)]),
        ]
        for _, metric, value in found[:_MAX_ROWS]
    ]
    return head, rows


def format_stat(board: Board, panel: Json) -> str:
    """Return the value of a panel with a single value, or its values with their names."""
    defaults = panel["fieldConfig"]["defaults"]
    found = [one for target in panel["targets"] for one in board.query_end(target)]
    if panel["options"]["textMode"] == "name":
        return ", ".join(name for name, *_ in found)
    values = [format_value(value, defaults["unit"], board.end_s) for *_, value in found]
    if len(found) == 1:
        return values[0]
    names = [name for name, *_ in found]
    pairs = ", ".join(f"{name} {value}" for name, value in zip(names, values, strict=True))
    return pairs or defaults.get("noValue", "none")


def render_section(board: Board, panels: Sequence[Json]) -> str:
    """Return the panels of a row of a dashboard."""
    stats = [panel for panel in panels if panel["type"] == "stat"]
    body = ""
    if stats:
        body += render_table(
            [panel["title"] for panel in stats], [[format_stat(board, panel) for panel in stats]], len(stats)
        )
    draw = {"timeseries": draw_series, "heatmap": draw_heat}
    plots = [draw[panel["type"]](board, panel).render_html() for panel in panels if panel["type"] in draw]
    if any(plots):
        body += f"<div class=plots>{''.join(plots)}</div>"
    for panel in panels:
        if panel["type"] == "table":
            head, rows = tabulate_panel(board, panel)
            body += f"<h3>{escape_text(panel['title'])}</h3>"
            body += render_table(head, rows, len(head)) if rows else "<p>no data</p>"
    return body


def render_board(board: Board) -> str:
    """Return the page of a dashboard."""
    sections = list[tuple[str, list[Json]]]()
    for panel in board.content["panels"]:
        if panel["type"] == "row":
            sections.append((panel["title"], []))
        else:
            sections[-1][1].append(panel)
    title = board.content["title"]
    body = (
        f"{_STYLE}<h1>{escape_text(title)}</h1><p class=lead>A simulated day, answered by Prometheus, "
        "drawn by opwatch from the dashboard's queries. Grafana draws it differently. No alert rules ran.</p>"
    )
    for name, panels in sections:
        body += f"<h2>{escape_text(name)}</h2><div class=tables>{render_section(board, panels)}</div>"
    return render_page(title, body)
