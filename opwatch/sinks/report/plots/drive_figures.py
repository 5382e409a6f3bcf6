"""Plots of what a drive's counters say: bytes of host and NAND, write amplification, temperature."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from opwatch.report.drive_course import MOST_ERROR, AmplifiedPart, DriveCourse
from opwatch.sinks.report.plots.figure import Figure
from opwatch.sinks.report.plots.markup import dots, line, uprights
from opwatch.sinks.report.plots.scales import EXTENT, AxisScale, capacities, linear
from opwatch.sinks.report.plots.traces import SINCE_BEGIN, Backdrop
from opwatch.waf.span import IntervalBytes

_MOST_POINTS = 600
_WAF_NOTE = f"A dot covers as much as its error (the upright line) takes to be no more than {MOST_ERROR:.0%}."


def drive_figures(courses: Sequence[tuple[str, str, DriveCourse, int]], back: Backdrop) -> Iterator[Figure]:
    """All of one drive, or of the drives of several runs: (kind, name, course, begin of the run)."""
    yield _amplification(courses, back)
    yield _by_bytes(courses)
    for kind, name, course, begin_ns in courses:
        yield _flows(name if len(courses) > 1 else "", kind, course, begin_ns, back)
    yield _temperature(courses, back)


def _parts(course: DriveCourse) -> list[AmplifiedPart]:
    """No more than can be told apart; the last of neighbours stands for them."""
    every = -(-len(course.parts) // _MOST_POINTS) or 1
    return list(course.parts[::every])


def _waf_scale(courses: Sequence[tuple[str, str, DriveCourse, int]]) -> AxisScale:
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


def _amplification(courses: Sequence[tuple[str, str, DriveCourse, int]], back: Backdrop) -> Figure:
    y = _waf_scale(courses)
    layers: list[str] = []
    for kind, _, course, begin_ns in courses:
        parts = _parts(course)
        middles = [(part.end_ns - begin_ns) / 1e9 - part.seconds / 2 for part in parts]
        layers += _waf_layers([back.time.at(middle) for middle in middles], parts, y, kind)
    return Figure(
        title="Write amplification over time",
        x=back.time,
        y=y,
        x_title=SINCE_BEGIN,
        y_title="NAND bytes for each byte of the host",
        layers=layers,
        legend=[(kind, name) for kind, name, *_ in courses] if len(courses) > 1 else (),
        note=_WAF_NOTE,
        shaded=back.shaded,
        flags=back.flags,
    )


def _by_bytes(courses: Sequence[tuple[str, str, DriveCourse, int]]) -> Figure:
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
        legend=[(kind, name) for kind, name, *_ in courses] if len(courses) > 1 else (),
        note=_WAF_NOTE,
    )


def _thinned(flows: Sequence[IntervalBytes]) -> list[IntervalBytes]:
    """Neighbours added up: no more than can be told apart."""
    together = -(-len(flows) // _MOST_POINTS) or 1
    groups = (flows[at : at + together] for at in range(0, len(flows), together))
    return [
        IntervalBytes(
            host_bytes=sum(flow.host_bytes for flow in group),
            nand_bytes=sum(flow.nand_bytes for flow in group),
            seconds=sum(flow.seconds for flow in group),
            end_ns=group[-1].end_ns,
        )
        for group in groups
    ]


def _flows(name: str, kind: str, course: DriveCourse, begin_ns: int, back: Backdrop) -> Figure:
    """What the host wrote, and what went to the flash."""
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
    return Figure(
        title=f"Writes of host and to NAND{f', {name}' if name else ''}",
        x=back.time,
        y=y,
        x_title=SINCE_BEGIN,
        y_title="MB/s",
        layers=layers,
        legend=(("host", "host"), ("nand", "NAND")),
        note="Between changes of the drive's counters.",
        shaded=back.shaded,
        flags=back.flags,
    )


def _temperature(courses: Sequence[tuple[str, str, DriveCourse, int]], back: Backdrop) -> Figure:
    known = [
        (kind, name, [(point.at_ns - begin_ns, point.temperature) for point in course.health], begin_ns)
        for kind, name, course, begin_ns in courses
    ]
    values = [value for _, _, points, _ in known for _, value in points if value is not None]
    low, high = min(values, default=0), max(values, default=1)
    y = linear(max(high, low + 4), " °C", min(low, high - 4))
    layers = []
    for kind, _, points, _ in known:
        every = -(-len(points) // _MOST_POINTS) or 1
        layers.append(
            line(
                [
                    None if value is None else (back.time.at(at / 1e9), EXTENT - y.at(value))
                    for at, value in points[::every]
                ],
                kind,
            )
        )
    return Figure(
        title="Temperature",
        x=back.time,
        y=y,
        x_title=SINCE_BEGIN,
        y_title="by the drive's own sensor",
        layers=layers,
        legend=[(kind, name) for kind, name, *_ in known] if len(known) > 1 else (),
        shaded=back.shaded,
        flags=back.flags,
    )
