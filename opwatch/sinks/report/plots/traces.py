"""Common parts of a disk's plots: the traces, and the background."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from opwatch.report.bins import OpBin, RateRange, TimeBin, thin_bins
from opwatch.sinks.report.plots import amounts
from opwatch.sinks.report.plots.figure import Figure, Flag, Hover, ShadedRange
from opwatch.sinks.report.plots.markup import draw_band, draw_line
from opwatch.sinks.report.plots.scales import EXTENT, AxisScale, make_linear_axis

_MAX_LARGE_DOTS = 200
# Maximum columns of a plot with tooltips.
_MAX_HOVERS = 120
TIME_SINCE_START = "time since start"


@dataclass(frozen=True, slots=True)
class OpTrace:
    """One operation of one run, with the line style and the name in the legend."""

    kind: str
    name: str
    op: str
    bins: Sequence[TimeBin]
    begin_ns: int

    def to_seconds(self, at_ns: int) -> float:
        return (at_ns - self.begin_ns) / 1e9

    @property
    def is_thinned(self) -> bool:
        return any(one.intervals > 1 for one in self.bins)

    @property
    def has_requests(self) -> bool:
        return any(one.find_op(self.op).count for one in self.bins)


@dataclass(frozen=True, slots=True)
class Backdrop:
    """Background of all plots over time: axis, phases and events."""

    time: AxisScale
    shaded: Sequence[ShadedRange] = ()
    flags: Sequence[Flag] = ()

    def make_figure(
        self,
        title: str,
        y: AxisScale,
        *,
        y_title: str,
        layers: Sequence[str],
        legend: Sequence[tuple[str, str]] = (),
        note: str = "",
        x_title: str = TIME_SINCE_START,
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


def describe_thinning(traces: Sequence[OpTrace]) -> str:
    """Return a note if a point represents several intervals, else an empty string."""
    most = max((one.intervals for trace in traces for one in trace.bins), default=1)
    if most == 1:
        return ""
    return f"Each point is the mean of {most} intervals; the band shows their minimum and maximum."


def make_legend(traces: Sequence[OpTrace]) -> list[tuple[str, str]]:
    """Return a legend with the name of each trace."""
    return [(trace.kind, trace.name) for trace in traces]


def choose_dot_style(kind: str, count: int) -> str:
    """Return the style of dots, which are larger if there are few."""
    return f"big {kind}" if count <= _MAX_LARGE_DOTS else kind


@dataclass(frozen=True, slots=True)
class Quantity:
    """A quantity over time: its mean in a bin, and the range over the bin's intervals, or None if unknown."""

    title: str
    unit: str
    value: Callable[[TimeBin, str], float]
    extremes: Callable[[OpBin], RateRange] | None


def plot_quantity(quantity: Quantity, traces: Sequence[OpTrace], back: Backdrop) -> Figure:
    """Return a line for each trace, and tooltips with the values of all traces."""
    traces = [trace for trace in traces if any(quantity.value(one, trace.op) for one in trace.bins)]
    y = make_linear_axis(max((_find_top(quantity, trace) for trace in traces), default=1.0))
    layers = list[str]()
    for trace in traces:
        if trace.is_thinned and quantity.extremes:
            layers.append(draw_band(_place_ranges(quantity, trace, back, y), trace.kind))
    for trace in traces:
        points = [
            (
                back.time.place_value(trace.to_seconds(one.middle_ns)),
                EXTENT - y.place_value(quantity.value(one, trace.op)),
            )
            for one in trace.bins
        ]
        layers.append(draw_line(insert_gaps(points, trace.bins), trace.kind))
    figure = back.make_figure(
        quantity.title,
        y,
        y_title=quantity.unit,
        layers=layers,
        legend=make_legend(traces),
        note=describe_thinning(traces) if quantity.extremes else "",
    )
    return replace(
        figure, hover=make_hovers(traces, back, lambda one, op: amounts.format_rate(quantity.value(one, op)))
    )


def insert_gaps(
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


def make_hovers(
    traces: Sequence[OpTrace], back: Backdrop, shown: Callable[[TimeBin, str], str]
) -> list[Hover]:
    """Return the columns of a plot over time, each with its time and the value of each trace."""
    values = dict[int, list[str]]()
    widths = dict[int, tuple[int, str]]()
    for trace in traces:
        for one in thin_bins(trace.bins, _MAX_HOVERS):
            left, right = (back.time.place_value(trace.to_seconds(at)) for at in (one.begin_ns, one.end_ns))
            since = amounts.format_duration(max(trace.to_seconds(one.begin_ns), 0.0))
            widths.setdefault(left, (right - left, since))
            values.setdefault(left, []).append(f"{trace.name}: {shown(one, trace.op)}")
    return [
        Hover(left, max(width, 1), "\n".join((since, *values[left])))
        for left, (width, since) in sorted(widths.items())
    ]


def _find_top(quantity: Quantity, trace: OpTrace) -> float:
    if quantity.extremes and trace.is_thinned:
        return max(quantity.extremes(one.find_op(trace.op)).most for one in trace.bins)
    return max(quantity.value(one, trace.op) for one in trace.bins)


def _place_ranges(
    quantity: Quantity, trace: OpTrace, back: Backdrop, y: AxisScale
) -> Iterator[tuple[int, int, int]]:
    assert quantity.extremes
    for one in trace.bins:
        extremes = quantity.extremes(one.find_op(trace.op))
        place = back.time.place_value(trace.to_seconds(one.middle_ns))
        yield place, EXTENT - y.place_value(extremes.least), EXTENT - y.place_value(extremes.most)
