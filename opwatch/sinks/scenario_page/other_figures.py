"""Plots of the other experiments: speed by file size, speed by bytes written, and ratios side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from opwatch.errors import BadInput
from opwatch.fields import Fields
from opwatch.sinks.plain.cells import get_number
from opwatch.sinks.report.plots.figure import Figure, Flag
from opwatch.sinks.report.plots.markup import draw_boxes, draw_dots, draw_line
from opwatch.sinks.report.plots.scales import EXTENT, AxisScale, make_capacity_axis, make_linear_axis
from opwatch.sinks.scenario_page.saturation_figures import FLAG_DISTANCE, MAX_COLOURS
from opwatch.sinks.scenario_page.verdicts import find_holder

_GAP = 0.25


def plot_free_space(document: Fields) -> Iterator[Figure]:
    """Yield a plot of throughput by file size: whole drive, part reserved, and as published."""
    points = document.read_subtable("scenario").read_subtables("points")
    first = next((rate for point in points if (rate := get_number(point, "whole")) is not None), None)
    lines = [
        ("run0", "whole drive", [get_number(point, "whole") for point in points]),
        ("run1", "a part reserved", [get_number(point, "reserved") for point in points]),
    ]
    shares = [get_number(point, "published") for point in points]
    if first is not None and any(share is not None for share in shares):
        scaled = [None if share is None else share * first for share in shares]
        lines.append(("run3", "published, scaled to the smallest file", scaled))
    rates = [rate for _, _, row in lines for rate in row if rate is not None]
    if not rates:
        return
    x = make_capacity_axis(max(point.read_amount("used_bytes") for point in points))
    y = make_linear_axis(max(rates) / 1e6)
    layers = []
    for kind, _, row in lines:
        spots = [
            (x.place_value(point.read_amount("used_bytes")), EXTENT - y.place_value(rate / 1e6))
            for point, rate in zip(points, row, strict=True)
            if rate is not None
        ]
        layers += [draw_line(spots, kind), draw_dots(spots, f"big {kind}")]
    yield Figure(
        title="Throughput by file size",
        x=x,
        y=y,
        x_title="file size",
        y_title="MB/s",
        layers=layers,
        legend=[(kind, name) for kind, name, _ in lines],
        note="Published rates are scaled to the smallest file, because that drive was "
        "another one. Where two lines coincide, the reserve changes nothing.",
    )


def plot_untrimmed(document: Fields) -> Iterator[Figure]:
    """Yield a plot of each round's speed by the bytes written until then."""
    runs = document.read_subtables("runs")[:MAX_COLOURS]
    courses = [list(_compute_round_speeds(run)) for run in runs]
    spots = [spot for course in courses for spot in course]
    if not spots:
        return
    x, y = (
        make_capacity_axis(max(at for at, _ in spots)),
        make_linear_axis(max(rate for _, rate in spots) / 1e6),
    )
    layers, flags = [], []
    for place, (run, course) in enumerate(zip(runs, courses, strict=True)):
        places = [(x.place_value(at), EXTENT - y.place_value(rate / 1e6)) for at, rate in course]
        layers += [draw_line(places, f"run{place}"), draw_dots(places, f"big run{place}")]
        name = run.read_text("name").partition(" ")[0]
        came, foretold = get_number(run, "cliff_bytes"), get_number(run, "foretold_cliff_bytes")
        if came is None:
            continue
        is_there = (
            foretold is not None and abs(x.place_value(came) - x.place_value(foretold)) <= FLAG_DISTANCE
        )
        flags.append(
            Flag(x.place_value(came), f"cliff {name}{', as predicted' if is_there else ''}", "change")
        )
        if foretold is not None and not is_there:
            flags.append(Flag(x.place_value(foretold), f"predicted {name}"))
    yield Figure(
        title="Speed of each round by bytes written",
        x=x,
        y=y,
        x_title="bytes written by the rounds",
        y_title="MB/s",
        layers=layers,
        legend=[(f"run{place}", run.read_text("name")) for place, run in enumerate(runs)],
        note="Each dot is a round. Cliff: data is moved from here on; predicted: computed before "
        "the first write.",
        flags=sorted(flags, key=lambda flag: flag.place),
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


class _Bars(NamedTuple):
    """Bars of the same colour, one per group; None for a missing bar."""

    kind: str
    name: str
    values: Sequence[float | None]


def plot_iometer(document: Fields) -> Iterator[Figure]:
    """Yield a plot of the speed-up from 10 % left free: measured, predicted and published."""
    holder = find_holder(document)
    gains, published = holder.read_subtables("gains"), holder.read_subtable("published")
    groups = [f"{gain.read_text('op')}, {'full' if gain.read_flag('is_full') else 'empty'}" for gain in gains]
    there = [_get_published_gain(published, gain.read_text("op")) for gain in gains]
    bars = [
        _Bars("run0", "here", [get_number(gain, "gain") for gain in gains]),
        _Bars("run2", "predicted", [get_number(gain, "foretold") for gain in gains]),
        _Bars("run3", "published", there),
    ]
    yield from _plot_bars("Speed-up with a part left free", "times", groups, bars)


def _get_published_gain(published: Fields, op: str) -> float | None:
    rates = [row[1] for row in published.read_amount_lists(op, 4)] if op in published.table else []
    return rates[-1] / rates[0] if len(rates) > 1 and rates[0] else None


def plot_mixed(document: Fields) -> Iterator[Figure]:
    """Yield a plot of I/Os per second by load, with one colour per configuration."""
    configurations = document.read_subtables("configurations")[:MAX_COLOURS]
    rates = [
        {rate.read_text("load"): rate.read_amount("iops") for rate in one.read_subtables("rates")}
        for one in configurations
    ]
    groups = list(dict.fromkeys(load for row in rates for load in row))
    bars = [
        _Bars(f"run{place}", one.read_text("name"), [row.get(group) for group in groups])
        for place, (one, row) in enumerate(zip(configurations, rates, strict=True))
    ]
    yield from _plot_bars("I/Os per second", "I/Os per second", groups, bars)


def _plot_bars(title: str, unit: str, groups: Sequence[str], bars: Sequence[_Bars]) -> Iterator[Figure]:
    highest = max((value for row in bars for value in row.values if value is not None), default=0.0)
    if not groups or not highest > 0:
        return
    y, width = make_linear_axis(highest), EXTENT / len(groups)
    thick = width * (1 - _GAP) / len(bars)
    layers = []
    for number_, row in enumerate(bars):
        areas = [
            (
                round(place * width + width * _GAP / 2 + number_ * thick),
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
