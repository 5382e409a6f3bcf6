"""Plots of a drive's counters: host and NAND bytes, write amplification, temperature."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from opwatch.report.bins import group_neighbours
from opwatch.report.drive_timeline import MAX_ERROR, DriveTimeline, WafPart
from opwatch.sinks.report.plots.figure import Figure
from opwatch.sinks.report.plots.markup import draw_dots, draw_line, draw_vertical_lines
from opwatch.sinks.report.plots.scales import EXTENT, AxisScale, make_capacity_axis, make_linear_axis
from opwatch.sinks.report.plots.traces import Backdrop
from opwatch.waf.span import IntervalBytes

# Line style, name and timeline of a drive, and the start of the run.
NamedTimeline: TypeAlias = tuple[str, str, DriveTimeline, int]

_MAX_POINTS = 600
_WAF_NOTE = f"Each dot covers enough writes for an error (vertical line) of at most {MAX_ERROR:.0%}."


def plot_drives(courses: Sequence[NamedTimeline], back: Backdrop) -> Iterator[Figure]:
    """Yield all plots of one drive, or of the drives of several runs."""
    yield _plot_waf(courses, back)
    yield _plot_waf_by_bytes(courses)
    for kind, name, course, begin_ns in courses:
        yield _plot_writes(name if len(courses) > 1 else "", kind, course, begin_ns, back)
    yield _plot_temperature(courses, back)


def _make_legend(courses: Sequence[NamedTimeline]) -> list[tuple[str, str]]:
    """Return a legend with the name of each drive, if there are several."""
    return [(kind, name) for kind, name, *_ in courses] if len(courses) > 1 else []


def _select_parts(course: DriveTimeline) -> list[WafPart]:
    """Return at most as many parts as a plot can resolve. The first of neighbouring parts represents them."""
    return [part for part, *_ in group_neighbours(course.parts, _MAX_POINTS)]


def _make_waf_axis(courses: Sequence[NamedTimeline]) -> AxisScale:
    tops = [(part.waf or 0.0) + part.error for _, _, course, _ in courses for part in _select_parts(course)]
    return make_linear_axis(max(tops, default=1.0))


def _draw_waf(places: Sequence[int], parts: Sequence[WafPart], y: AxisScale, kind: str) -> Iterator[str]:
    values = [part.waf or 0.0 for part in parts]
    both = list(zip(places, values, parts, strict=True))
    yield draw_vertical_lines(
        (
            (x, EXTENT - y.place_value(waf - part.error), EXTENT - y.place_value(waf + part.error))
            for x, waf, part in both
        ),
        kind,
    )
    yield draw_dots(((x, EXTENT - y.place_value(waf)) for x, waf, _ in both), f"big {kind}")


def _plot_waf(courses: Sequence[NamedTimeline], back: Backdrop) -> Figure:
    y = _make_waf_axis(courses)
    layers: list[str] = []
    for kind, _, course, begin_ns in courses:
        parts = _select_parts(course)
        middles = [(part.end_ns - begin_ns) / 1e9 - part.seconds / 2 for part in parts]
        layers += _draw_waf([back.time.place_value(middle) for middle in middles], parts, y, kind)
    return back.make_figure(
        "Write amplification over time",
        y,
        y_title="NAND bytes per host byte",
        layers=layers,
        legend=_make_legend(courses),
        note=_WAF_NOTE,
    )


def _plot_waf_by_bytes(courses: Sequence[NamedTimeline]) -> Figure:
    most = max((part.written for _, _, course, _ in courses for part in course.parts), default=1)
    x = make_capacity_axis(most)
    y = _make_waf_axis(courses)
    layers: list[str] = []
    for kind, _, course, _ in courses:
        parts = _select_parts(course)
        places = [x.place_value(part.written - part.host_bytes / 2) for part in parts]
        layers += _draw_waf(places, parts, y, kind)
    return Figure(
        title="Write amplification against bytes written",
        x=x,
        y=y,
        x_title="host bytes written since the first poll of the counters",
        y_title="NAND bytes per host byte",
        layers=layers,
        legend=_make_legend(courses),
        note=_WAF_NOTE,
    )


def _merge_flows(flows: Sequence[IntervalBytes]) -> list[IntervalBytes]:
    """Return the flows, with neighbours merged to at most as many as a plot can resolve."""
    return [
        IntervalBytes(
            host_bytes=sum(flow.host_bytes for flow in group),
            nand_bytes=sum(flow.nand_bytes for flow in group),
            seconds=sum(flow.seconds for flow in group),
            end_ns=group[-1].end_ns,
        )
        for group in group_neighbours(flows, _MAX_POINTS)
    ]


def _plot_writes(name: str, kind: str, course: DriveTimeline, begin_ns: int, back: Backdrop) -> Figure:
    """Return a plot of the host writes and the NAND writes."""
    flows = [flow for flow in _merge_flows(course.flows) if flow.seconds]
    rates = [(flow.host_bytes / flow.seconds / 1e6, flow.nand_bytes / flow.seconds / 1e6) for flow in flows]
    y = make_linear_axis(max((max(both) for both in rates), default=1.0))
    places = [back.time.place_value((flow.end_ns - begin_ns) / 1e9 - flow.seconds / 2) for flow in flows]
    layers = [
        draw_line(
            [(x, EXTENT - y.place_value(both[which])) for x, both in zip(places, rates, strict=True)],
            ("host", "nand")[which],
        )
        for which in (0, 1)
    ]
    return back.make_figure(
        f"Host and NAND writes{f', {name}' if name else ''}",
        y,
        y_title="MB/s",
        layers=layers,
        legend=(("host", "host"), ("nand", "NAND")),
        note="Mean rates between changes of the drive's counters.",
    )


def _plot_temperature(courses: Sequence[NamedTimeline], back: Backdrop) -> Figure:
    values = [
        point.temperature
        for _, _, course, _ in courses
        for point in course.health
        if point.temperature is not None
    ]
    low, high = min(values, default=0), max(values, default=1)
    y = make_linear_axis(max(high, low + 4), " °C", min(low, high - 4))
    layers = []
    for kind, _, course, begin_ns in courses:
        places = [
            None
            if point.temperature is None
            else (
                back.time.place_value((point.at_ns - begin_ns) / 1e9),
                EXTENT - y.place_value(point.temperature),
            )
            for point, *_ in group_neighbours(course.health, _MAX_POINTS)
        ]
        layers.append(draw_line(places, kind))
    return back.make_figure(
        "Temperature",
        y,
        y_title="temperature of the drive's sensor",
        layers=layers,
        legend=_make_legend(courses),
    )
