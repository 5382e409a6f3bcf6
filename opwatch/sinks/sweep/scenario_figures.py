"""Plots of experiments: lines by bytes, and bars side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from opwatch.errors import BadInput
from opwatch.fields import Fields
from opwatch.scenarios.scenario import ScenarioKind
from opwatch.sinks.plain.cells import get_number
from opwatch.sinks.report.plots.figure import Figure, Flag
from opwatch.sinks.report.plots.markup import draw_boxes, draw_dots, draw_line
from opwatch.sinks.report.plots.scales import EXTENT, AxisScale, make_capacity_axis, make_linear_axis
from opwatch.sinks.sweep.scenario_saturation_figures import FLAG_DISTANCE, MAX_COLOURS, plot_saturation
from opwatch.sinks.sweep.scenario_section import find_holder, find_published_gain, name_run

_GAP = 0.25


class _Curve(NamedTuple):
    """Bytes per second by bytes, in one colour."""

    kind: str
    name: str
    spots: Sequence[tuple[float, float]]


class _Bars(NamedTuple):
    """Bars of the same colour, one per group; None for a missing bar."""

    kind: str
    name: str
    values: Sequence[float | None]


def _plot_curves(
    titles: tuple[str, str],
    curves: Sequence[_Curve],
    note: str,
    find_flags: Callable[[AxisScale], Sequence[Flag]] = lambda _: (),
    *,
    most_bytes: float = 0.0,
    is_wide: bool = False,
) -> Iterator[Figure]:
    """Yield a plot of MB/s, or nothing without a value. `titles` are those of the plot and of its bytes."""
    spots = [spot for curve in curves for spot in curve.spots]
    if not spots:
        return
    x = make_capacity_axis(max(most_bytes, *(at for at, _ in spots), 0.0))
    y = make_linear_axis(max(rate for _, rate in spots) / 1e6)
    layers = []
    for curve in curves:
        places = [(x.place_value(at), EXTENT - y.place_value(rate / 1e6)) for at, rate in curve.spots]
        layers += [draw_line(places, curve.kind), draw_dots(places, f"big {curve.kind}")]
    yield Figure(
        title=titles[0],
        x=x,
        y=y,
        x_title=titles[1],
        y_title="MB/s",
        layers=layers,
        legend=[(curve.kind, curve.name) for curve in curves],
        note=note,
        flags=sorted(find_flags(x), key=lambda flag: flag.place),
        is_wide=is_wide,
    )


def _plot_free_space(document: Fields) -> Iterator[Figure]:
    """Yield a plot of throughput by file size: whole drive, part reserved, and as published."""
    points = document.read_subtable("scenario").read_subtables("points")
    sizes = [point.read_amount("used_bytes") for point in points]
    first = next((rate for point in points if (rate := get_number(point, "whole")) is not None), None)

    def make_curve(kind: str, name: str, key: str, factor: float = 1.0) -> _Curve:
        rates = zip(sizes, (get_number(point, key) for point in points), strict=True)
        return _Curve(kind, name, [(at, factor * rate) for at, rate in rates if rate is not None])

    curves = [
        make_curve("run0", "whole drive", "whole"),
        make_curve("run1", "a part reserved", "reserved"),
    ]
    if first is not None and any(get_number(point, "published") is not None for point in points):
        curves.append(make_curve("run3", "published, scaled to the smallest file", "published", first))
    yield from _plot_curves(
        ("Throughput by file size", "file size"),
        curves,
        "Published rates are scaled to the smallest file, because that drive was another one. Where two "
        "lines coincide, the reserve changes nothing.",
        most_bytes=max(sizes, default=0.0),
    )


def _plot_untrimmed(document: Fields) -> Iterator[Figure]:
    """Yield a plot of each round's speed by the bytes written until then."""
    runs = document.read_subtables("runs")[:MAX_COLOURS]
    curves = [
        _Curve(f"run{place}", run.read_text("name"), list(_compute_round_speeds(run)))
        for place, run in enumerate(runs)
    ]
    yield from _plot_curves(
        ("Speed of each round by bytes written", "bytes written by the rounds"),
        curves,
        "Each dot is a round. Cliff: data is moved from here on; predicted: computed before the first write.",
        lambda x: [flag for run in runs for flag in _flag_cliff(run, x)],
        is_wide=True,
    )


def _compute_round_speeds(run: Fields) -> Iterator[tuple[float, float]]:
    """Yield (bytes written by the middle of a round, bytes per second)."""
    written = 0.0
    for row in run.read_subtables("rounds"):
        n_bytes, seconds = row.read_amount("host_bytes"), row.read_amount("seconds")
        if not seconds > 0:
            raise BadInput(f"{row.where}: a round has a duration of 0")
        yield written + n_bytes / 2, n_bytes / seconds
        written += n_bytes


def _flag_cliff(run: Fields, x: AxisScale) -> Iterator[Flag]:
    """Yield a flag at the cliff of a run, and another where it was predicted elsewhere."""
    came, foretold = get_number(run, "cliff_bytes"), get_number(run, "foretold_cliff_bytes")
    if came is None:
        return
    name, place = run.read_text("name").partition(" ")[0], x.place_value(came)
    predicted = None if foretold is None else x.place_value(foretold)
    if predicted is not None and abs(place - predicted) <= FLAG_DISTANCE:
        yield Flag(place, f"cliff {name}, as predicted", "change")
        return
    yield Flag(place, f"cliff {name}", "change")
    if predicted is not None:
        yield Flag(predicted, f"predicted {name}")


def _plot_iometer(document: Fields) -> Iterator[Figure]:
    """Yield a plot of the speed-up from 10 % left free: measured, predicted and published."""
    holder = find_holder(document)
    gains = holder.read_subtables("gains")
    published = [find_published_gain(holder, gain.read_text("op")) for gain in gains]
    bars = [
        _Bars("run0", "here", [get_number(gain, "gain") for gain in gains]),
        _Bars("run2", "predicted", [get_number(gain, "foretold") for gain in gains]),
        _Bars("run3", "published", published),
    ]
    yield from _plot_bars("Speed-up with a part left free", "times", list(map(name_run, gains)), bars)


def _plot_mixed(document: Fields) -> Iterator[Figure]:
    """Yield a plot of I/Os per second per size and order of the loads, with one colour per configuration.

    Loads in order have a hundred times the rates of random ones, so they are not drawn together.
    """
    configurations = document.read_subtables("configurations")[:MAX_COLOURS]
    rates = [one.read_subtables("rates") for one in configurations]
    groups = list(dict.fromkeys(_find_load_group(rate) for row in rates for rate in row))
    for group in groups:
        selected = [
            {
                rate.read_text("load"): rate.read_amount("iops")
                for rate in row
                if _find_load_group(rate) == group
            }
            for row in rates
        ]
        loads = list(dict.fromkeys(load for row in selected for load in row))
        bars = [
            _Bars(f"run{place}", one.read_text("name"), [row.get(load) for load in loads])
            for place, (one, row) in enumerate(zip(configurations, selected, strict=True))
        ]
        n_bytes, is_random = group
        title = f"I/Os per second, {n_bytes / 1024:g} KiB {'random' if is_random else 'in order'}"
        yield from _plot_bars(title, "I/Os per second", loads, bars)


def _find_load_group(rate: Fields) -> tuple[int, bool]:
    return rate.read_count("xfersize"), rate.read_count("seekpct") > 0


def _plot_bars(title: str, unit: str, groups: Sequence[str], bars: Sequence[_Bars]) -> Iterator[Figure]:
    highest = max((value for row in bars for value in row.values if value is not None), default=0.0)
    if not groups or not highest > 0:
        return
    y, width = make_linear_axis(highest), EXTENT / len(groups)
    thick = width * (1 - _GAP) / len(bars)
    layers = []
    for number, row in enumerate(bars):
        areas = [
            (
                round(place * width + width * _GAP / 2 + number * thick),
                EXTENT - y.place_value(value),
                max(round(thick), 1),
                y.place_value(value),
            )
            for place, value in enumerate(row.values)
            if value is not None
        ]
        layers.append(draw_boxes(areas, f"bar {row.kind}"))
    ticks = tuple((place + 0.5, name) for place, name in enumerate(groups))
    yield Figure(
        title=title,
        x=AxisScale(lambda value: value / len(groups), ticks),
        y=y,
        x_title="",
        y_title=unit,
        layers=layers,
        legend=[(row.kind, row.name) for row in bars],
        is_wide=len(groups) > 3,
    )


FIGURES: Mapping[ScenarioKind, Callable[[Fields], Iterator[Figure]]] = {
    ScenarioKind.SATURATION: plot_saturation,
    ScenarioKind.FREE_SPACE: _plot_free_space,
    ScenarioKind.UNTRIMMED: _plot_untrimmed,
    ScenarioKind.IOMETER: _plot_iometer,
    ScenarioKind.MIXED: _plot_mixed,
}
