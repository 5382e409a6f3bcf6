"""Common parts of a disk's plots: the traces, and the background."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from opwatch.report.bins import OpBin, RateRange, TimeBin, thinned
from opwatch.sinks.report.plots import amounts
from opwatch.sinks.report.plots.figure import Figure, Flag, Hover, Shaded
from opwatch.sinks.report.plots.markup import band, line
from opwatch.sinks.report.plots.scales import EXTENT, AxisScale, linear

_FEW = 200
# Maximum columns of a plot with tooltips.
_MOST_HOVERS = 120
SINCE_BEGIN = "time since the begin"


@dataclass(frozen=True, slots=True)
class OpTrace:
    """One operation of one run, with the line style and the name in the legend."""

    kind: str
    name: str
    op: str
    bins: Sequence[TimeBin]
    begin_ns: int

    def seconds(self, at_ns: int) -> float:
        return (at_ns - self.begin_ns) / 1e9

    @property
    def is_thinned(self) -> bool:
        return any(one.intervals > 1 for one in self.bins)

    @property
    def has_any(self) -> bool:
        return any(one.op(self.op).count for one in self.bins)


@dataclass(frozen=True, slots=True)
class Backdrop:
    """Background of all plots over time: axis, phases and events."""

    time: AxisScale
    shaded: Sequence[Shaded] = ()
    flags: Sequence[Flag] = ()

    def figure(
        self,
        title: str,
        y: AxisScale,
        *,
        y_title: str,
        layers: Sequence[str],
        legend: Sequence[tuple[str, str]] = (),
        note: str = "",
        x_title: str = SINCE_BEGIN,
    ) -> Figure:
        """Return a plot in front of this background."""
        return Figure(
            title=title,
            x=self.time,
            y=y,
            x_title=x_title,
            y_title=y_title,
            layers=layers,
            legend=legend,
            note=note,
            shaded=self.shaded,
            flags=self.flags,
        )


def thinning(traces: Sequence[OpTrace]) -> str:
    """Return a note if a point represents several intervals, else an empty string."""
    most = max((one.intervals for trace in traces for one in trace.bins), default=1)
    if most == 1:
        return ""
    return f"A point is the mean of {most} intervals, the band reaches from the least to the most of them."


def legend_of(traces: Sequence[OpTrace]) -> list[tuple[str, str]]:
    """Return a legend with the name of each trace."""
    return [(trace.kind, trace.name) for trace in traces]


def dot_kind(kind: str, count: int) -> str:
    """Return the style of dots, which are larger if there are few."""
    return f"big {kind}" if count <= _FEW else kind


@dataclass(frozen=True, slots=True)
class Quantity:
    """A quantity over time: its mean in a bin, and the range over the bin's intervals, or None if unknown."""

    title: str
    unit: str
    value: Callable[[TimeBin, str], float]
    extremes: Callable[[OpBin], RateRange] | None


def course_figure(quantity: Quantity, traces: Sequence[OpTrace], back: Backdrop) -> Figure:
    """Return a line for each trace, and tooltips with the values of all traces."""
    traces = [trace for trace in traces if any(quantity.value(one, trace.op) for one in trace.bins)]
    y = linear(max((_top(quantity, trace) for trace in traces), default=1.0))
    layers = list[str]()
    for trace in traces:
        if trace.is_thinned and quantity.extremes:
            layers.append(band(_ranges(quantity, trace, back, y), trace.kind))
    for trace in traces:
        points = [
            (back.time.at(trace.seconds(one.middle_ns)), EXTENT - y.at(quantity.value(one, trace.op)))
            for one in trace.bins
        ]
        layers.append(line(with_gaps(points, trace.bins), trace.kind))
    figure = back.figure(
        quantity.title,
        y,
        y_title=quantity.unit,
        layers=layers,
        legend=legend_of(traces),
        note=thinning(traces) if quantity.extremes else "",
    )
    return replace(figure, hover=hovers(traces, back, lambda one, op: amounts.rate(quantity.value(one, op))))


def with_gaps(
    points: Sequence[tuple[int, int] | None], bins: Sequence[TimeBin]
) -> list[tuple[int, int] | None]:
    """Return the points of neighbouring bins, with None at each gap in time."""
    joined = list[tuple[int, int] | None]()
    end_ns = bins[0].begin_ns if bins else 0
    for point, one in zip(points, bins, strict=True):
        if one.begin_ns - end_ns > one.end_ns - one.begin_ns:
            joined.append(None)
        joined.append(point)
        end_ns = one.end_ns
    return joined


def hovers(traces: Sequence[OpTrace], back: Backdrop, shown: Callable[[TimeBin, str], str]) -> list[Hover]:
    """Return the columns of a plot over time, each with its time and the value of each trace."""
    values = dict[int, list[str]]()
    widths = dict[int, tuple[int, str]]()
    for trace in traces:
        for one in thinned(trace.bins, _MOST_HOVERS):
            left, right = (back.time.at(trace.seconds(at)) for at in (one.begin_ns, one.end_ns))
            since = amounts.span(max(trace.seconds(one.begin_ns), 0.0))
            widths.setdefault(left, (right - left, since))
            values.setdefault(left, []).append(f"{trace.name}: {shown(one, trace.op)}")
    return [
        Hover(left, max(width, 1), "\n".join((since, *values[left])))
        for left, (width, since) in sorted(widths.items())
    ]


def _top(quantity: Quantity, trace: OpTrace) -> float:
    if quantity.extremes and trace.is_thinned:
        return max(quantity.extremes(one.op(trace.op)).most for one in trace.bins)
    return max(quantity.value(one, trace.op) for one in trace.bins)


def _ranges(
    quantity: Quantity, trace: OpTrace, back: Backdrop, y: AxisScale
) -> Iterator[tuple[int, int, int]]:
    assert quantity.extremes
    for one in trace.bins:
        extremes = quantity.extremes(one.op(trace.op))
        place = back.time.at(trace.seconds(one.middle_ns))
        yield place, EXTENT - y.at(extremes.least), EXTENT - y.at(extremes.most)
