"""Plots of the latency and size distributions of one disk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from opwatch.sinks.report.plots import amounts
from opwatch.sinks.report.plots.figure import Figure
from opwatch.sinks.report.plots.markup import draw_boxes, draw_line
from opwatch.sinks.report.plots.scales import (
    EXTENT,
    AxisScale,
    make_linear_axis,
    make_log_axis,
    make_nines_axis,
)
from opwatch.trace.hist import Histogram


@dataclass(frozen=True, slots=True)
class Latencies:
    """All latencies of one operation of one run."""

    kind: str
    name: str
    histogram: Histogram


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of one operation of one run as (min, max, count), in bytes."""

    kind: str
    name: str
    octaves: Sequence[tuple[int, int, int]]


def _compute_curve(latencies: Latencies, x: AxisScale, y: AxisScale) -> list[tuple[int, int] | None]:
    histogram, running = latencies.histogram, 0
    points: list[tuple[int, int] | None] = []
    total = histogram.total
    for slot, count in histogram.list_hits():
        low, high = histogram.scale.find_edges(slot)
        points.append((x.place_value(max(low, 1)), EXTENT - y.place_value(running / total)))
        running += count
        points.append((x.place_value(high + 1), EXTENT - y.place_value(running / total)))
    return points


def plot_latency_curve(spreads: Sequence[Latencies]) -> Figure | None:
    """Return the share of requests below each latency, or None if no latency is known."""
    known = [one for one in spreads if one.histogram.total]
    if not known:
        return None
    edges = [one.histogram.scale.find_edges(slot) for one in known for slot, _ in one.histogram.list_hits()]
    x = make_log_axis(
        max(min(low for low, _ in edges), 1), max(high + 1 for _, high in edges), amounts.format_latency
    )
    y = make_nines_axis(max(one.histogram.total for one in known))
    return Figure(
        title="Latency distribution",
        x=x,
        y=y,
        x_title="latency",
        y_title="share of faster requests",
        layers=[draw_line(_compute_curve(one, x, y), one.kind) for one in known],
        legend=[(one.kind, one.name) for one in known],
        note="Each additional nine takes the same space, so that the slowest requests are visible.",
    )


def plot_sizes(spreads: Sequence[Sizes]) -> Figure | None:
    """Return the distribution of request sizes, or None if it is unknown."""
    known = [one for one in spreads if one.octaves]
    if not known:
        return None
    lows = sorted({low for one in known for low, _, _ in one.octaves})
    first, last = lows[0].bit_length(), lows[-1].bit_length()
    count = last - first + 1
    every = -(-count // 6)
    names = [1 << (first + place - 1) if first + place else 0 for place in range(count)]
    x = AxisScale(
        lambda value: value / count,
        tuple((place + 0.5, amounts.format_size(names[place])) for place in range(0, count, every)),
    )
    tops = [n / sum(all_ for *_, all_ in one.octaves) for one in known for *_, n in one.octaves]
    y = make_linear_axis(100 * max(tops), " %")
    layers = []
    width = EXTENT / count * 0.8 / len(known)
    for place, one in enumerate(known):
        total = sum(n for *_, n in one.octaves)
        bars = []
        for low, _, n in one.octaves:
            left = round(EXTENT * (low.bit_length() - first + 0.1) / count + place * width)
            height = max(y.place_value(100 * n / total), 1)
            bars.append((left, EXTENT - height, round(width), height))
        layers.append(draw_boxes(bars, f"bar {one.kind}"))
    return Figure(
        title="Request sizes",
        x=x,
        y=y,
        x_title="request size, up to the next power of two",
        y_title="share of the operation's requests",
        layers=layers,
        legend=[(one.kind, one.name) for one in known],
    )
