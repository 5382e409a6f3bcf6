"""Plots of a drive's counters: host and NAND bytes, write amplification, temperature."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from opwatch.report.bins import grouped
from opwatch.report.drive_course import MOST_ERROR, AmplifiedPart, DriveCourse
from opwatch.sinks.report.plots.figure import Figure
from opwatch.sinks.report.plots.markup import dots, line, uprights
from opwatch.sinks.report.plots.scales import EXTENT, AxisScale, capacities, linear
from opwatch.sinks.report.plots.traces import Backdrop
from opwatch.waf.span import IntervalBytes

# Line style, name and timeline of a drive, and the start of the run.
NamedCourse: TypeAlias = tuple[str, str, DriveCourse, int]

_MOST_POINTS = 600
_WAF_NOTE = f"A dot covers as much as its error (the upright line) takes to be no more than {MOST_ERROR:.0%}."


def drive_figures(courses: Sequence[NamedCourse], back: Backdrop) -> Iterator[Figure]:
    """Yield all plots of one drive, or of the drives of several runs."""
    yield _amplification(courses, back)
    yield _by_bytes(courses)
    for kind, name, course, begin_ns in courses:
        yield _flows(name if len(courses) > 1 else "", kind, course, begin_ns, back)
    yield _temperature(courses, back)


def _legend(courses: Sequence[NamedCourse]) -> list[tuple[str, str]]:
    """Return a legend with the name of each drive, if there are several."""
    return [(kind, name) for kind, name, *_ in courses] if len(courses) > 1 else []


def _parts(course: DriveCourse) -> list[AmplifiedPart]:
    """Return at most as many parts as a plot can resolve. The first of neighbouring parts represents them."""
    return [part for part, *_ in grouped(course.parts, _MOST_POINTS)]


def _waf_scale(courses: Sequence[NamedCourse]) -> AxisScale:
    tops = [(part.waf or 0.0) + part.error for _, _, course, _ in courses for part in _parts(course)]
    return linear(max(tops, default=1.0))


def _waf_layers(
    places: Sequence[int], parts: Sequence[AmplifiedPart], y: AxisScale, kind: str
) -> Iterator[str]:
    values = [part.waf or 0.0 for part in parts]
    both = list(zip(places, values, parts, strict=True))
    yield uprights(
        ((x, EXTENT - y.at(waf - part.error), EXTENT - y.at(waf + part.error)) for x, waf, part in both), kind
    )
    yield dots(((x, EXTENT - y.at(waf)) for x, waf, _ in both), f"big {kind}")


def _amplification(courses: Sequence[NamedCourse], back: Backdrop) -> Figure:
    y = _waf_scale(courses)
    layers: list[str] = []
    for kind, _, course, begin_ns in courses:
        parts = _parts(course)
        middles = [(part.end_ns - begin_ns) / 1e9 - part.seconds / 2 for part in parts]
        layers += _waf_layers([back.time.at(middle) for middle in middles], parts, y, kind)
    return back.figure(
        "Write amplification over time",
        y,
        y_title="NAND bytes for each byte of the host",
        layers=layers,
        legend=_legend(courses),
        note=_WAF_NOTE,
    )


def _by_bytes(courses: Sequence[NamedCourse]) -> Figure:
    most = max((part.written for _, _, course, _ in courses for part in course.parts), default=1)
    x = capacities(most)
    y = _waf_scale(courses)
    layers: list[str] = []
    for kind, _, course, _ in courses:
        parts = _parts(course)
        places = [x.at(part.written - part.host_bytes / 2) for part in parts]
        layers += _waf_layers(places, parts, y, kind)
    return Figure(
        title="Write amplification against bytes written",
        x=x,
        y=y,
        x_title="bytes that the host has written since the first look at the drive",
        y_title="NAND bytes for each byte of the host",
        layers=layers,
        legend=_legend(courses),
        note=_WAF_NOTE,
    )


def _thinned(flows: Sequence[IntervalBytes]) -> list[IntervalBytes]:
    """Return the flows, with neighbours merged to at most as many as a plot can resolve."""
    return [
        IntervalBytes(
            host_bytes=sum(flow.host_bytes for flow in group),
            nand_bytes=sum(flow.nand_bytes for flow in group),
            seconds=sum(flow.seconds for flow in group),
            end_ns=group[-1].end_ns,
        )
        for group in grouped(flows, _MOST_POINTS)
    ]


def _flows(name: str, kind: str, course: DriveCourse, begin_ns: int, back: Backdrop) -> Figure:
    """Return a plot of the host writes and the NAND writes."""
    flows = [flow for flow in _thinned(course.flows) if flow.seconds]
    rates = [(flow.host_bytes / flow.seconds / 1e6, flow.nand_bytes / flow.seconds / 1e6) for flow in flows]
    y = linear(max((max(both) for both in rates), default=1.0))
    places = [back.time.at((flow.end_ns - begin_ns) / 1e9 - flow.seconds / 2) for flow in flows]
    layers = [
        line(
            [(x, EXTENT - y.at(both[which])) for x, both in zip(places, rates, strict=True)],
            ("host", "nand")[which],
        )
        for which in (0, 1)
    ]
    return back.figure(
        f"Writes of host and to NAND{f', {name}' if name else ''}",
        y,
        y_title="MB/s",
        layers=layers,
        legend=(("host", "host"), ("nand", "NAND")),
        note="Between changes of the drive's counters.",
    )


def _temperature(courses: Sequence[NamedCourse], back: Backdrop) -> Figure:
    values = [
        point.temperature
        for _, _, course, _ in courses
        for point in course.health
        if point.temperature is not None
    ]
    low, high = min(values, default=0), max(values, default=1)
    y = linear(max(high, low + 4), " °C", min(low, high - 4))
    layers = []
    for kind, _, course, begin_ns in courses:
        places = [
            None
            if point.temperature is None
            else (back.time.at((point.at_ns - begin_ns) / 1e9), EXTENT - y.at(point.temperature))
            for point, *_ in grouped(course.health, _MOST_POINTS)
        ]
        layers.append(line(places, kind))
    return back.figure(
        "Temperature", y, y_title="by the drive's own sensor", layers=layers, legend=_legend(courses)
    )
