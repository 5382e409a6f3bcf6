"""Plots of a sweep: figures against over-provisioning with errors and models, and the rounds of levels."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from opwatch import units
from opwatch.sinks.report.plots import amounts
from opwatch.sinks.report.plots.figure import Figure, Flag, Hover, ShadedRange
from opwatch.sinks.report.plots.markup import draw_band, draw_dots, draw_errors, draw_line
from opwatch.sinks.report.plots.scales import (
    EXTENT,
    AxisScale,
    make_capacity_axis,
    make_linear_axis,
    make_log_axis,
)
from opwatch.sinks.sweep import figures
from opwatch.steady.rounds import Round
from opwatch.steady.strict import StrictState
from opwatch.sweep.advice.advice import LevelAdvice, SweepAdvice
from opwatch.sweep.band import SpareFit, compute_usual_range
from opwatch.sweep.levels import OpLevel
from opwatch.sweep.outcome import LevelOutcome
from opwatch.sweep.ranges import ValueRange
from opwatch.sweep.result import SweepResult
from opwatch.sweep.returns import sort_levels
from opwatch.units import shorten

# The space beside the first and the last level, as a share of the plot.
_MARGIN = 0.05
# The width of a plot on a phone, of a character of a label, and of the space between labels, in pixels.
_PHONE_PX, _CHARACTER_PX, _GAP_PX = 280, 6.5, 6
_SAMPLES, _MAX_LABEL = 60, 12
_PERCENTILES = {"p50": "run2", "p99": "run0", "p99.9": "run1", "p99.99": "run4"}
ERROR_NOTE = "Vertical lines are errors at 95 %; where none is visible, the error is smaller than the dot."

# Returns the value of a level, or None.
LevelValue = Callable[[LevelAdvice], ValueRange | None]


def plot_levels(result: SweepResult, advice: SweepAdvice) -> Iterator[Figure]:
    """Yield the plots against over-provisioning; plots without a value are empty."""
    x = _make_level_axis([one.outcome.level for one in advice.levels])
    yield _plot_waf(result, advice, x)
    yield _plot_value(advice, x, ("IOPS", "I/Os per second"), lambda one: one.outcome.find_iops())
    yield _plot_latency(advice, x)
    yield _plot_life(advice, x)
    yield _plot_value(
        advice, x, ("CPU time per I/O", "µs of the load's CPU time"), lambda one: _find_cpu(one.outcome)
    )


def _find_expected(one: LevelAdvice) -> ValueRange | None:
    """Return the WAF at which a level without a proven one will settle, or None."""
    if one.outcome.find_waf():
        return None
    expected = one.outcome.strict.to_report().expected
    if expected is None or expected.waf is None:
        return None
    return ValueRange(expected.waf, expected.waf_error or 0.0)


def _find_cpu(outcome: LevelOutcome) -> ValueRange | None:
    proven = outcome.proven_figures
    if proven.cpu_ns_per_io is None:
        return None
    us = proven.cpu_ns_per_io / 1e3
    return ValueRange(us, us * (proven.cpu_error_ratio or 0.0))


def _make_level_axis(levels: Sequence[OpLevel]) -> AxisScale:
    """Return an axis of the share of the capacity that is given up, labelled with the levels."""
    low, high = min(level.of_whole_ratio for level in levels), max(level.of_whole_ratio for level in levels)
    span = (high - low) or 1.0

    def place(ratio: float) -> float:
        return 0.5 if high == low else _MARGIN + (1 - 2 * _MARGIN) * (ratio - low) / span

    ticks: list[tuple[float, str]] = []
    for level in levels:
        ratio, label = level.of_whole_ratio, shorten(level.label, _MAX_LABEL)
        if ticks:
            width = _CHARACTER_PX * (len(label) + len(ticks[-1][1])) / 2 + _GAP_PX
            if place(ratio) - place(ticks[-1][0]) < width / _PHONE_PX:
                continue
        ticks.append((ratio, label))
    return AxisScale(place, tuple(ticks))


def _place_levels(
    advice: SweepAdvice, x: AxisScale, find: LevelValue
) -> list[tuple[int, ValueRange, LevelAdvice]]:
    return [
        (x.place_value(one.outcome.level.of_whole_ratio), value, one)
        for one in advice.levels
        if (value := find(one)) is not None
    ]


def _draw_points(
    places: Sequence[tuple[int, ValueRange, LevelAdvice]], y: AxisScale, kind: str
) -> Iterator[str]:
    """Yield a line through the levels, their errors, and their dots."""
    yield draw_line([(at, EXTENT - y.place_value(value.value)) for at, value, _ in places], f"thin {kind}")
    errors = [
        (at, EXTENT - y.place_value(value.low), EXTENT - y.place_value(value.high)) for at, value, _ in places
    ]
    yield draw_errors(errors, kind)
    yield draw_dots(((at, EXTENT - y.place_value(value.value)) for at, value, _ in places), f"big {kind}")


def _make_figure(
    advice: SweepAdvice, x: AxisScale, y: AxisScale, titles: tuple[str, str], layers: Sequence[str]
) -> Figure:
    """Return a plot with the knee marked, and tooltips with the figures of each level."""
    places = [x.place_value(one.outcome.level.of_whole_ratio) for one in advice.levels]
    edges = [0, *((a + b) // 2 for a, b in itertools.pairwise(places)), EXTENT]
    hover = [
        Hover(left, right - left, _describe_level(one))
        for one, left, right in zip(advice.levels, edges[:-1], edges[1:], strict=True)
    ]
    knee = advice.knee
    flags = [Flag(x.place_value(knee.level.of_whole_ratio), "knee", "change")] if knee else []
    return Figure(
        title=titles[0],
        x=x,
        y=y,
        x_title="level, spaced by the capacity given up",
        y_title=titles[1],
        layers=layers,
        flags=flags if any(layers) else (),
        hover=hover,
    )


def _describe_level(one: LevelAdvice) -> str:
    outcome, proven = one.outcome, one.outcome.proven_figures
    waf = outcome.find_waf()
    rows = [
        f"{one.label}: {units.format_capacity(outcome.level.usable_bytes)} in use",
        f"WAF {figures.format_waf(proven.waf, waf.error)}" if waf else "",
        f"IOPS {figures.format_count(outcome.find_iops())}" if proven.iops is not None else "",
        *(
            f"{name} {amounts.format_latency(ns)}"
            for name in _PERCENTILES
            if (ns := proven.find_latency(name))
        ),
        f"life {figures.format_life_range(one.years)}" if one.years else "",
        "" if outcome.strict.state is StrictState.PASS else f"steady state: {outcome.strict.state}",
    ]
    return "\n".join(filter(None, rows))


def _plot_value(
    advice: SweepAdvice, x: AxisScale, titles: tuple[str, str], find: LevelValue, kind: str = "run0"
) -> Figure:
    places = _place_levels(advice, x, find)
    y = make_linear_axis(max((value.high for _, value, _ in places), default=1.0))
    return _make_figure(advice, x, y, titles, [*filter(None, _draw_points(places, y, kind))])


def _plot_life(advice: SweepAdvice, x: AxisScale) -> Figure:
    is_short = max((one.years.value for one in advice.levels if one.years), default=1.0) < 1
    factor, unit = (365.25, "days") if is_short else (1.0, "years")

    def find_life(one: LevelAdvice) -> ValueRange | None:
        return one.years and ValueRange(one.years.value * factor, one.years.error * factor)

    daily = advice.targets.daily_bytes
    rate = f"{units.format_capacity(daily)} per day" if daily else "the write rate of the slowest level"
    return _plot_value(advice, x, ("Life of the flash", f"{unit} at {rate}"), find_life, "run2")


def _plot_waf(result: SweepResult, advice: SweepAdvice, x: AxisScale) -> Figure:
    """Return WAF with the models' band from greedy to FIFO and the fit behind it."""
    fit = result.fit_levels()
    places = _place_levels(advice, x, lambda one: one.outcome.find_waf())
    curve = list(_compute_curve(result, fit))
    expected = _place_levels(advice, x, _find_expected)
    highest = [value.high for _, value, _ in (*places, *expected)] + [high for _, _, high, _ in curve]
    y = make_linear_axis(max(highest, default=1.0))
    band = [
        (x.place_value(ratio), EXTENT - y.place_value(low), EXTENT - y.place_value(high))
        for ratio, low, high, _ in curve
    ]
    line = [(x.place_value(ratio), EXTENT - y.place_value(fitted)) for ratio, _, _, fitted in curve if fitted]
    points = list(_draw_points(places, y, "run0"))
    layers = [draw_band(band, "model"), draw_line(line, "thin model"), *points[1:]] if curve else points
    layers += [*_draw_points(expected, y, "run3")][1:]
    figure = _make_figure(advice, x, y, ("Write amplification", "NAND bytes per host byte"), layers)
    names = [("run0", "measured", places), ("model", "models, from greedy to FIFO, and the fit", curve)]
    names.append(("run3", "expected, not reached", expected))
    return replace(figure, legend=[(kind, name) for kind, name, drawn in names if drawn])


def _compute_curve(
    result: SweepResult, fit: SpareFit | None
) -> Iterator[tuple[float, float, float, float | None]]:
    """Yield (share given up, WAF of greedy, of FIFO, of the fit or None) from the first to the last level."""
    levels = [one.level for one in sort_levels(result.outcomes)]
    flash = levels[0].flash_bytes or (fit.flash_bytes if fit else None)
    if flash is None or not result.is_uniform or any(level.files for level in levels):
        return
    capacity = levels[0].scale.capacity_bytes
    first, last = levels[0].of_whole_ratio, levels[-1].of_whole_ratio
    for step in range(_SAMPLES + 1):
        ratio = first + (last - first) * step / _SAMPLES
        used = capacity * (1 - ratio)
        greedy, fifo = compute_usual_range(flash / used, result.superblock_pages)
        yield ratio, greedy, fifo, fit.model.waf(fit.flash_bytes / used) if fit else None


def _plot_latency(advice: SweepAdvice, x: AxisScale) -> Figure:

    def place_percentile(name: str) -> list[tuple[int, ValueRange, LevelAdvice]]:
        return _place_levels(advice, x, lambda one: one.outcome.proven_figures.find_latency_range(name))

    placed = {name: place_percentile(name) for name in _PERCENTILES}
    values = [value for places in placed.values() for _, value, _ in places]
    y = make_log_axis(
        0.8 * min((max(value.low, value.value / 4, 1.0) for value in values), default=1.0),
        max((value.high for value in values), default=10.0),
        amounts.format_latency,
    )
    layers = [layer for name, kind in _PERCENTILES.items() for layer in _draw_points(placed[name], y, kind)]
    figure = _make_figure(advice, x, y, ("Latency", "latency of writes"), list(filter(None, layers)))
    return replace(figure, legend=[(kind, name) for name, kind in _PERCENTILES.items() if placed[name]])


def plot_rounds(result: SweepResult, outcome: LevelOutcome) -> Iterator[Figure]:
    """Yield WAF and IOPS of a level's rounds against the host bytes written since the fill."""
    # A document may have any number.
    ratio = (result.model.ratio if result.model else 0.0) or 1.0
    ends, total = [], 0.0
    for one in outcome.rounds:
        total += one.host_bytes / ratio
        ends.append(total)
    if not ends or not total:
        return
    x = make_capacity_axis(total)
    for title, unit, find, value in (
        ("Write amplification", "NAND bytes per host byte", lambda one: one.waf, outcome.find_waf()),
        ("IOPS", "I/Os per second", lambda one: one.iops, outcome.find_iops()),
    ):
        yield _plot_course(
            outcome, x, ends, (f"{title} of the rounds, {outcome.level.label}", unit), find, value
        )


def _plot_course(
    outcome: LevelOutcome,
    x: AxisScale,
    ends: Sequence[float],
    titles: tuple[str, str],
    find: Callable[[Round], float | None],
    mean: ValueRange | None,
) -> Figure:
    begins = [0.0, *ends[:-1]]
    values = [find(one) for one in outcome.rounds]
    y = make_linear_axis(max((value for value in values if value is not None), default=1.0))
    places = [
        None if value is None else (x.place_value((begin + end) / 2), EXTENT - y.place_value(value))
        for begin, end, value in zip(begins, ends, values, strict=True)
    ]
    dots = [place for place in places if place]
    layers = [draw_line(places, "thin run0"), draw_dots(dots, "big run0" if len(dots) <= 120 else "run0")]
    first, last = outcome.strict.window_rounds or (0, 0)
    shaded = []
    if 0 < first <= last <= len(ends) and outcome.proven_figures.waf is not None:
        left, right = begins[first - 1], ends[last - 1]
        shaded = [ShadedRange(x.place_value(left), x.place_value(right), "window of the verdict")]
        if mean:
            height = EXTENT - y.place_value(mean.value)
            layers.append(draw_line([(shaded[0].left, height), (shaded[0].right, height)], "level run1"))
    return Figure(
        title=titles[0],
        x=x,
        y=y,
        x_title="host bytes written since the fill",
        y_title=titles[1],
        layers=layers if dots else (),
        note=_describe_course(outcome),
        shaded=shaded,
        flags=_flag_spare(outcome, x, ends[-1]),
    )


def _flag_spare(outcome: LevelOutcome, x: AxisScale, total: float) -> list[Flag]:
    """Return a flag where the spare area is used up for the first time, if the flash size is known."""
    spare = outcome.level.spare_bytes
    return [Flag(x.place_value(spare), "T-U")] if spare is not None and spare <= total else []


def _describe_course(outcome: LevelOutcome) -> str:
    strict = outcome.strict
    if strict.state is StrictState.NOT_REACHED:
        return "Not reached."
    if strict.state is StrictState.UNPROVEN:
        return "Unproven."
    return ""
