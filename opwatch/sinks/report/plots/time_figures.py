"""Plots of one disk over time: rates, queue depth, latencies, slow requests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from opwatch.report.bins import OpBin, RateRange, TimeBin, thinned
from opwatch.report.heat import SHADES, HeatCell, heat_cells
from opwatch.samples.slow import SlowRequest
from opwatch.sinks.report.plots import amounts
from opwatch.sinks.report.plots.figure import Figure
from opwatch.sinks.report.plots.markup import boxes, dots, line, text
from opwatch.sinks.report.plots.scales import EXTENT, AxisScale, logarithmic
from opwatch.sinks.report.plots.traces import (
    SINCE_BEGIN,
    Backdrop,
    OpTrace,
    Quantity,
    course_figure,
    dot_kind,
    hovers,
    legend_of,
)

DISCARDS = ("discard", "write_zeroes", "secure_erase")
_MOST_COLUMNS = 240


def _megabytes(one: TimeBin, op: str) -> float:
    return one.bytes_per_s(op) / 1e6


def _megabyte_range(op: OpBin) -> RateRange:
    return RateRange(op.bytes_per_s.least / 1e6, op.bytes_per_s.most / 1e6)


_IOPS = Quantity("Requests", "requests a second", TimeBin.per_s, lambda op: op.per_s)
_MBPS = Quantity("Throughput", "MB/s", _megabytes, _megabyte_range)
_DISCARDED = Quantity("Discards", "MB/s that were discarded", _megabytes, _megabyte_range)
_DEPTH = Quantity("Queue depth", "requests in the device, on the average", TimeBin.depth, None)


def rate_figures(traces: Sequence[OpTrace], back: Backdrop) -> Iterator[Figure]:
    """Yield requests and bytes per second. Discards have a separate plot, because they transfer no data but
    cover many bytes."""
    yield course_figure(_IOPS, traces, back)
    yield course_figure(_MBPS, [trace for trace in traces if trace.op not in DISCARDS], back)
    yield course_figure(_DISCARDED, [trace for trace in traces if trace.op in DISCARDS], back)
    yield course_figure(_DEPTH, traces, back)


def _latency_scale(lows: Sequence[float], highs: Sequence[float]) -> AxisScale:
    return logarithmic(min(lows, default=1.0), max(highs, default=10.0), amounts.latency)


def _quantile_line(trace: OpTrace, share: float, back: Backdrop, y: AxisScale, kind: str) -> str:
    points: list[tuple[int, int] | None] = []
    for one in trace.bins:
        value = one.op(trace.op).quantile_ns(share)
        at = back.time.at(trace.seconds(one.middle_ns))
        points.append(None if value is None else (at, EXTENT - y.at(value)))
    return line(points, kind)


def _cell_boxes(
    cells: Sequence[HeatCell], trace: OpTrace, back: Backdrop, y: AxisScale
) -> Iterator[tuple[int, int, int, int]]:
    for cell in cells:
        left, right = (back.time.at(trace.seconds(at)) for at in (cell.begin_ns, cell.end_ns))
        top, bottom = EXTENT - y.at(cell.high_ns), EXTENT - y.at(cell.low_ns)
        yield left, top, max(right - left, 1), max(bottom - top, 1)


def heat_figure(trace: OpTrace, back: Backdrop) -> Figure | None:
    """Return the latencies of one operation over time, with p50 and p99, or None if none is known."""
    few = replace(trace, bins=thinned(trace.bins, _MOST_COLUMNS))
    cells = list(heat_cells(few.bins, trace.op))
    if not cells:
        return None
    y = _latency_scale([max(cell.low_ns, 1) for cell in cells], [cell.high_ns for cell in cells])
    layers = [
        boxes(_cell_boxes([cell for cell in cells if cell.shade == shade], few, back, y), f"heat{shade}")
        for shade in range(len(SHADES))
    ]
    layers += [_quantile_line(few, 0.5, back, y, "p50"), _quantile_line(few, 0.99, back, y, "p99")]
    together = max(one.intervals for one in few.bins)
    note = f"A column is {together} intervals. " if together > 1 else ""
    figure = back.figure(
        f"Latency of {trace.name}",
        y,
        y_title="latency",
        layers=layers,
        legend=[("p50", "p50"), ("p99", "p99")],
        note=note + "Shades: the share of a column's requests that took so long.",
    )
    hover = hovers([few], back, _quantile_words)
    return replace(figure, hover=hover, is_wide=True, extra=_shades())


def _quantile_words(one: TimeBin, op: str) -> str:
    p50, p99 = (amounts.latency(one.op(op).quantile_ns(share)) for share in (0.5, 0.99))
    return f"p50 {p50}, p99 {p99}"


def _shades() -> str:
    names = [f"to {100 * share:g} %" for share in SHADES[:-1]] + [f"over {100 * SHADES[-2]:g} %"]
    cells = "".join(f"<li><i class=heat{shade}></i>{text(name)}</li>" for shade, name in enumerate(names))
    return f"<ul class='legend shades'>{cells}</ul>"


def quantile_figures(traces: Sequence[OpTrace], back: Backdrop) -> Iterator[Figure]:
    """Yield p50 and p99 of several runs, because heat maps cannot be overlaid."""
    for name, share in (("p50", 0.5), ("p99", 0.99)):
        values = [
            value
            for trace in traces
            for one in trace.bins
            if (value := one.op(trace.op).quantile_ns(share)) is not None
        ]
        y = _latency_scale([max(value, 1) for value in values], values)
        figure = back.figure(
            f"{name} of latency",
            y,
            y_title="latency",
            layers=[_quantile_line(trace, share, back, y, trace.kind) for trace in traces],
            legend=legend_of(traces),
        )
        yield replace(figure, hover=hovers(traces, back, _quantile_words))


def slow_figure(
    requests: Sequence[SlowRequest], count: int, limit_ns: int, begin_ns: int, back: Backdrop
) -> Figure | None:
    """Return the requests over the latency limit as dots, or None without any."""
    if not requests:
        return None
    latencies = [request.latency_ns for request in requests]
    y = _latency_scale([limit_ns], latencies)
    ops = list(dict.fromkeys(request.op for request in requests))
    layers = []
    for op in ops:
        places = (
            (back.time.at((one.end_ns - begin_ns) / 1e9), EXTENT - y.at(one.latency_ns))
            for one in requests
            if one.op == op
        )
        layers.append(dots(places, dot_kind(f"op-{op}", len(requests))))
    shown = "" if count == len(requests) else f"{len(requests)} of {count} are drawn. "
    return back.figure(
        "Slow requests",
        y,
        y_title="latency",
        layers=layers,
        legend=[(f"op-{op}", op) for op in ops],
        note=f"{shown}Slower than {amounts.latency(limit_ns)}.",
        x_title=f"{SINCE_BEGIN}, at which it ended",
    )
