"""What the plots of one disk have in common: which lines there are, and what lies behind all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from opwatch.frozen import frozen
from opwatch.report.bins import OpBin, RateRange, TimeBin
from opwatch.sinks.report.plots.figure import Figure, Flag, Shaded
from opwatch.sinks.report.plots.markup import dots, uprights
from opwatch.sinks.report.plots.scales import EXTENT, AxisScale, linear

_FEW = 200
SINCE_BEGIN = "time since the begin"


@frozen
class OpTrace:
    """One operation of one run, with the kind of line it is drawn in and its name in the legend."""

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


@frozen
class Backdrop:
    """What lies behind all plots against time: their axis, phases and events."""

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
        """A plot in front of this."""
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
    """Says so where a dot stands for more than one interval."""
    most = max((one.intervals for trace in traces for one in trace.bins), default=1)
    if most == 1:
        return ""
    return f"A dot is the mean of {most} intervals, its line reaches from the least to the most of them."


def legend_of(traces: Sequence[OpTrace]) -> list[tuple[str, str]]:
    """Each trace by its name."""
    return [(trace.kind, trace.name) for trace in traces]


def dot_kind(kind: str, count: int) -> str:
    """Dots are larger where there are few of them."""
    return f"big {kind}" if count <= _FEW else kind


@frozen
class Quantity:
    """What is plotted against time: its mean in a bin, and the least and the most of the bin's intervals;
    None where nobody kept those."""

    title: str
    unit: str
    value: Callable[[TimeBin, str], float]
    extremes: Callable[[OpBin], RateRange] | None


def scatter(quantity: Quantity, traces: Sequence[OpTrace], back: Backdrop) -> Figure:
    """A dot for each interval of each trace."""
    traces = [trace for trace in traces if any(quantity.value(one, trace.op) for one in trace.bins)]
    y = linear(max((_top(quantity, trace) for trace in traces), default=1.0))
    layers = []
    for trace in traces:
        places = [back.time.at(trace.seconds(one.middle_ns)) for one in trace.bins]
        values = [EXTENT - y.at(quantity.value(one, trace.op)) for one in trace.bins]
        if trace.is_thinned and quantity.extremes:
            layers.append(uprights(_ranges(quantity, trace, places, y), trace.kind))
        layers.append(dots(zip(places, values, strict=True), dot_kind(trace.kind, len(values))))
    return back.figure(
        quantity.title,
        y,
        y_title=quantity.unit,
        layers=layers,
        legend=legend_of(traces),
        note=thinning(traces) if quantity.extremes else "",
    )


def _top(quantity: Quantity, trace: OpTrace) -> float:
    if quantity.extremes and trace.is_thinned:
        return max(quantity.extremes(one.op(trace.op)).most for one in trace.bins)
    return max(quantity.value(one, trace.op) for one in trace.bins)


def _ranges(
    quantity: Quantity, trace: OpTrace, places: Sequence[int], y: AxisScale
) -> Iterator[tuple[int, int, int]]:
    assert quantity.extremes
    for place, one in zip(places, trace.bins, strict=True):
        extremes = quantity.extremes(one.op(trace.op))
        yield place, EXTENT - y.at(extremes.least), EXTENT - y.at(extremes.most)
