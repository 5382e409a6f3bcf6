"""Plots of one disk over time: rates, queue depth, latencies, slow requests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from opwatch.report.bins import OpBin, RateRange, TimeBin, thin_bins
from opwatch.report.heat import SHADES, HeatCell, find_heat_cells
from opwatch.samples.slow import SlowRequest
from opwatch.sinks.report.plots import amounts
from opwatch.sinks.report.plots.figure import Figure
from opwatch.sinks.report.plots.markup import draw_boxes, draw_dots, draw_line, escape_text
from opwatch.sinks.report.plots.scales import EXTENT, AxisScale, make_log_axis
from opwatch.sinks.report.plots.traces import (
    TIME_SINCE_START,
    Backdrop,
    OpTrace,
    Quantity,
    choose_dot_style,
    make_hovers,
    make_legend,
    plot_quantity,
)

DISCARDS = ("discard", "write_zeroes", "secure_erase")
_MAX_COLUMNS = 240


def _get_mb_per_s(one: TimeBin, op: str) -> float:
    return one.bytes_per_s(op) / 1e6


def _get_mb_per_s_range(op: OpBin) -> RateRange:
    return RateRange(op.bytes_per_s.least / 1e6, op.bytes_per_s.most / 1e6)


_IOPS = Quantity("Requests", "requests per second", TimeBin.per_s, lambda op: op.per_s)
_MBPS = Quantity("Throughput", "MB/s", _get_mb_per_s, _get_mb_per_s_range)
_DISCARDED = Quantity("Discards", "MB/s discarded", _get_mb_per_s, _get_mb_per_s_range)
_DEPTH = Quantity("Queue depth", "mean number of requests in the device", TimeBin.mean_depth, None)


def plot_rates(traces: Sequence[OpTrace], back: Backdrop) -> Iterator[Figure]:
    """Yield requests and bytes per second. Discards have a separate plot, because they transfer no data but
    cover many bytes."""
    yield plot_quantity(_IOPS, traces, back)
    yield plot_quantity(_MBPS, [trace for trace in traces if trace.op not in DISCARDS], back)
    yield plot_quantity(_DISCARDED, [trace for trace in traces if trace.op in DISCARDS], back)
    yield plot_quantity(_DEPTH, traces, back)


def _make_latency_axis(lows: Sequence[float], highs: Sequence[float]) -> AxisScale:
    return make_log_axis(min(lows, default=1.0), max(highs, default=10.0), amounts.format_latency)


def _draw_quantile(trace: OpTrace, share: float, back: Backdrop, y: AxisScale, kind: str) -> str:
    points: list[tuple[int, int] | None] = []
    for one in trace.bins:
        value = one.find_op(trace.op).find_quantile_ns(share)
        at = back.time.place_value(trace.to_seconds(one.middle_ns))
        points.append(None if value is None else (at, EXTENT - y.place_value(value)))
    return draw_line(points, kind)


def _place_cells(
    cells: Sequence[HeatCell], trace: OpTrace, back: Backdrop, y: AxisScale
) -> Iterator[tuple[int, int, int, int]]:
    for cell in cells:
        left, right = (back.time.place_value(trace.to_seconds(at)) for at in (cell.begin_ns, cell.end_ns))
        top, bottom = EXTENT - y.place_value(cell.high_ns), EXTENT - y.place_value(cell.low_ns)
        yield left, top, max(right - left, 1), max(bottom - top, 1)


def plot_heat(trace: OpTrace, back: Backdrop) -> Figure | None:
    """Return the latencies of one operation over time, with p50 and p99, or None if none is known."""
    few = replace(trace, bins=thin_bins(trace.bins, _MAX_COLUMNS))
    cells = list(find_heat_cells(few.bins, trace.op))
    if not cells:
        return None
    y = _make_latency_axis([max(cell.low_ns, 1) for cell in cells], [cell.high_ns for cell in cells])
    layers = [
        draw_boxes(
            _place_cells([cell for cell in cells if cell.shade == shade], few, back, y), f"heat{shade}"
        )
        for shade in range(len(SHADES))
    ]
    layers += [_draw_quantile(few, 0.5, back, y, "p50"), _draw_quantile(few, 0.99, back, y, "p99")]
    together = max(one.intervals for one in few.bins)
    note = f"Each column covers {together} intervals. " if together > 1 else ""
    figure = back.make_figure(
        f"Latency of {trace.name}",
        y,
        y_title="latency",
        layers=layers,
        legend=[("p50", "p50"), ("p99", "p99")],
        note=note + "Shade: share of the column's requests with this latency.",
    )
    hover = make_hovers([few], back, _format_quantiles)
    return replace(figure, hover=hover, is_wide=True, extra=_render_shade_legend())


def _format_quantiles(one: TimeBin, op: str) -> str:
    p50, p99 = (amounts.format_latency(one.find_op(op).find_quantile_ns(share)) for share in (0.5, 0.99))
    return f"p50 {p50}, p99 {p99}"


def _render_shade_legend() -> str:
    names = [f"up to {100 * share:g} %" for share in SHADES[:-1]] + [f"over {100 * SHADES[-2]:g} %"]
    cells = "".join(
        f"<li><i class=heat{shade}></i>{escape_text(name)}</li>" for shade, name in enumerate(names)
    )
    return f"<ul class='legend shades'>{cells}</ul>"


def plot_quantiles(traces: Sequence[OpTrace], back: Backdrop) -> Iterator[Figure]:
    """Yield p50 and p99 of several runs, because heat maps cannot be overlaid."""
    for name, share in (("p50", 0.5), ("p99", 0.99)):
        values = [
            value
            for trace in traces
            for one in trace.bins
            if (value := one.find_op(trace.op).find_quantile_ns(share)) is not None
        ]
        y = _make_latency_axis([max(value, 1) for value in values], values)
        figure = back.make_figure(
            f"{name} latency",
            y,
            y_title="latency",
            layers=[_draw_quantile(trace, share, back, y, trace.kind) for trace in traces],
            legend=make_legend(traces),
        )
        yield replace(figure, hover=make_hovers(traces, back, _format_quantiles))


def plot_slow_requests(
    requests: Sequence[SlowRequest], count: int, limit_ns: int, begin_ns: int, back: Backdrop
) -> Figure | None:
    """Return the requests over the latency limit as dots, or None without any."""
    if not requests:
        return None
    latencies = [request.latency_ns for request in requests]
    y = _make_latency_axis([limit_ns], latencies)
    ops = list(dict.fromkeys(request.op for request in requests))
    layers = []
    for op in ops:
        places = (
            (back.time.place_value((one.end_ns - begin_ns) / 1e9), EXTENT - y.place_value(one.latency_ns))
            for one in requests
            if one.op == op
        )
        layers.append(draw_dots(places, choose_dot_style(f"op-{op}", len(requests))))
    shown = "" if count == len(requests) else f" The plot shows {len(requests)} of {count}."
    return back.make_figure(
        "Slow requests",
        y,
        y_title="latency",
        layers=layers,
        legend=[(f"op-{op}", op) for op in ops],
        note=f"Requests that took longer than {amounts.format_latency(limit_ns)}.{shown}",
        x_title=f"{TIME_SINCE_START}, at completion",
    )
