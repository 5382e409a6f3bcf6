"""Plots of a write saturation: I/Os per second by time and by bytes, one colour per level, with labels for
cliff, steps, steady level and variation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from opwatch import units
from opwatch.errors import BadInput
from opwatch.fields import Fields
from opwatch.report.bins import group_neighbours
from opwatch.report.levels import Levels, LevelSeries, find_levels
from opwatch.sinks.plain.cells import get_number
from opwatch.sinks.report.plots.figure import Figure, Flag
from opwatch.sinks.report.plots.markup import draw_dots, draw_line
from opwatch.sinks.report.plots.scales import (
    EXTENT,
    AxisScale,
    make_capacity_axis,
    make_linear_axis,
    make_time_axis,
)

# Maximum number of colours that remain distinguishable.
MAX_COLOURS = 6
# Maximum number of intervals in the search for steps, and of dots in a plot; more are merged.
_MAX_POINTS, _MAX_DOTS = 300, 4000
# A round shorter than a second has no per-second counts. If the counts cover less than this share of a round,
# the round is plotted instead.
_MIN_COVERAGE = 0.5
# Flags at a smaller distance from each other share a label.
FLAG_DISTANCE = EXTENT // 50


class _Point(NamedTuple):
    """An interval of a level, in bytes and seconds of the drive. `at_bytes` and `at_seconds` are its
    middle."""

    at_bytes: float
    at_seconds: float
    written_bytes: float
    seconds: float
    ios: float

    @property
    def iops(self) -> float:
        return self.ios / self.seconds


class _LevelCurve(NamedTuple):
    """A level and a colour.

    `points` are seconds if counted, otherwise rounds. `stretches` are merged points, used to find steps.
    `steady` is the start of the steady-state window.
    """

    kind: str
    label: str
    points: list[_Point]
    stretches: list[_Point]
    has_seconds: bool
    has_rounds: bool
    changes: Levels
    facts: Fields
    steady: _Point | None


def plot_saturation(document: Fields) -> Iterator[Figure]:
    """Yield a plot by time and a plot by bytes written."""
    scenario = document.read_subtable("scenario")
    ratio = scenario.read_amount("time_ratio") or 1.0
    rows = list(zip(document.read_subtables("levels"), scenario.read_subtables("levels"), strict=False))
    courses = [_make_curve(place, *row, ratio) for place, row in enumerate(rows[:MAX_COLOURS])]
    courses = [course for course in courses if course.points]
    if not courses:
        return
    y = make_linear_axis(max(point.iops for course in courses for point in course.points))
    last = [course.points[-1] for course in courses]
    time = make_time_axis(max(point.at_seconds + point.seconds / 2 for point in last))
    yield _plot_curves(courses, time, y, is_of_time=True)
    size = make_capacity_axis(max(point.at_bytes + point.written_bytes / 2 for point in last))
    yield _plot_curves(courses, size, y, is_of_time=False)


def _make_curve(place: int, level: Fields, facts: Fields, ratio: float) -> _LevelCurve:
    rounds = list(_read_rounds(level, ratio))
    spots, has_seconds, has_rounds = _choose_points(rounds, list(_read_seconds(level)))
    window = level.read_subtable("opwatch").table.get("window")
    begin = window[0] if isinstance(window, list) and window and isinstance(window[0], int) else None
    at = None if begin is None else max(begin - 1, 0)
    stretches = [_merge_points(group) for group in group_neighbours(spots, _MAX_POINTS)]
    return _LevelCurve(
        kind=f"run{place}",
        label=facts.read_text("label"),
        points=[_merge_points(group) for group in group_neighbours(spots, _MAX_DOTS)]
        if has_seconds
        else stretches,
        stretches=stretches,
        has_seconds=has_seconds,
        has_rounds=has_rounds,
        changes=_find_changes(stretches),
        facts=facts,
        steady=rounds[at] if at is not None and at < len(rounds) else None,
    )


def _choose_points(rounds: Sequence[_Point], seconds: Sequence[_Point]) -> tuple[list[_Point], bool, bool]:
    """Return (points, whether some are seconds, whether some are rounds).

    A round is replaced by per-second points, unless the points cover too little of the round.
    """
    spots: list[_Point] = []
    left, places = list(seconds), set()
    for one in rounds:
        end = one.at_bytes + one.written_bytes / 2
        count = next((at for at, second in enumerate(left) if second.at_bytes >= end), len(left))
        own, left = left[:count], left[count:]
        is_seen = sum(second.written_bytes for second in own) >= _MIN_COVERAGE * one.written_bytes
        spots += own if is_seen else [one]
        places.add(is_seen)
    return spots, True in places, False in places


def _read_rounds(level: Fields, ratio: float) -> Iterator[_Point]:
    """Yield the rounds, scaled from the model to the drive."""
    at_bytes = at_seconds = 0.0
    for row in level.read_subtables("rounds"):
        if not row.read_amount("seconds") > 0:
            raise BadInput(f"{row.where}: a round has a duration of 0")
        written, seconds, ios = (row.read_amount(key) / ratio for key in ("host_bytes", "seconds", "ios"))
        yield _Point(at_bytes + written / 2, at_seconds + seconds / 2, written, seconds, ios)
        at_bytes, at_seconds = at_bytes + written, at_seconds + seconds


def _read_seconds(level: Fields) -> Iterator[_Point]:
    """Yield the seconds counted by a block trace; none for a model or without a trace."""
    for begin_s, begin_bytes, seconds, ios, n_bytes in (
        level.read_amount_lists("seconds", 5) if "seconds" in level.table else []
    ):
        if not seconds > 0:
            raise BadInput(f"{level.where}: a second has a duration of 0")
        yield _Point(begin_bytes + n_bytes / 2, begin_s + seconds / 2, n_bytes, seconds, ios)


def _merge_points(group: Sequence[_Point]) -> _Point:
    """Merge neighbouring points into one."""
    first, last = group[0], group[-1]
    begin_bytes, begin_s = first.at_bytes - first.written_bytes / 2, first.at_seconds - first.seconds / 2
    end_bytes, end_s = last.at_bytes + last.written_bytes / 2, last.at_seconds + last.seconds / 2
    return _Point(
        (begin_bytes + end_bytes) / 2,
        (begin_s + end_s) / 2,
        sum(point.written_bytes for point in group),
        sum(point.seconds for point in group),
        sum(point.ios for point in group),
    )


def _find_changes(points: Sequence[_Point]) -> Levels:
    """Find steps by bytes instead of seconds, so that fast and slow intervals have equal weight."""
    return find_levels(
        LevelSeries(
            over=[point.ios for point in points],
            under=[point.seconds for point in points],
            begins_ns=list(range(len(points))),
            ends_ns=list(range(1, len(points) + 1)),
        )
    )


def _plot_curves(courses: Sequence[_LevelCurve], x: AxisScale, y: AxisScale, *, is_of_time: bool) -> Figure:
    def place_on_axis(point: _Point) -> int:
        return x.place_value(point.at_seconds if is_of_time else point.at_bytes)

    layers = []
    for course in courses:
        size = "big " if len(course.points) <= 200 else ""
        spots = [(place_on_axis(point), EXTENT - y.place_value(point.iops)) for point in course.points]
        layers.append(draw_dots(spots, f"{size}{course.kind}"))
    for course in courses:
        rest = get_number(course.facts, "steady_iops")
        if course.steady and rest is not None:
            height = EXTENT - y.place_value(rest)
            ends = [(place_on_axis(course.steady), height), (place_on_axis(course.points[-1]), height)]
            layers.append(draw_line(ends, f"level {course.kind}"))
    return Figure(
        title=f"I/Os per second by {'time' if is_of_time else 'bytes written'}",
        x=x,
        y=y,
        x_title="drive time" if is_of_time else "bytes written by the host",
        y_title="I/Os per second",
        layers=layers,
        legend=[(course.kind, _format_name(course)) for course in courses],
        note=_format_note(courses),
        flags=sorted(_place_flags(courses, x, is_of_time=is_of_time), key=lambda flag: flag.place),
        is_wide=True,
    )


def _format_name(course: _LevelCurve) -> str:
    rest, scatter = get_number(course.facts, "steady_iops"), get_number(course.facts, "iops_cv")
    if rest is None:
        return f"{course.label}: not in steady state"
    spread = "" if scatter is None else f", dispersion {units.format_plain(100 * scatter)} % (CV)"
    return f"{course.label}: steady at {rest:,.0f}{spread}"


def _place_flags(courses: Sequence[_LevelCurve], x: AxisScale, *, is_of_time: bool) -> Iterator[Flag]:
    """Yield flags for each level's cliff, predicted cliff, and later steps."""
    yield from _place_cliffs(courses, x, "seconds" if is_of_time else "host_bytes")
    for course in courses:
        foretold = get_number(course.facts, "predicted_cliff_bytes")
        if foretold is not None and not is_of_time:
            yield Flag(x.place_value(foretold), "", "event")
        for step in course.changes.steps:
            point = course.stretches[min(step.at_ns, len(course.stretches) - 1)]
            middle, half = (
                (point.at_seconds, point.seconds / 2)
                if is_of_time
                else (point.at_bytes, point.written_bytes / 2)
            )
            kind = "drop" if step.is_cliff else "step"
            yield Flag(x.place_value(middle - half), f"{kind} {course.label}", "change")


def _place_cliffs(courses: Sequence[_LevelCurve], x: AxisScale, key: str) -> Iterator[Flag]:
    """Yield one flag if all cliffs coincide, because a purged drive has the same amount of flash at every
    level."""
    places = [
        (x.place_value(course.facts.read_subtable("cliff").read_amount(key)), course.label)
        for course in courses
        if course.facts.table.get("cliff") is not None
    ]
    if len(places) > 1 and max(places)[0] - min(places)[0] <= FLAG_DISTANCE:
        yield Flag(min(places)[0], "cliff", "change")
        return
    yield from (Flag(place, f"cliff {label}", "change") for place, label in places)


def _format_note(courses: Sequence[_LevelCurve]) -> str:
    dot = "section with the same amount of writes"
    if any(course.has_seconds for course in courses):
        some = any(course.has_rounds for course in courses)
        dot = "second, or a shorter round" if some else "second"
    words = [
        f"Each dot is a {dot}; the line is the steady-state rate. Cliff: data is moved from here on; "
        "step, drop: a lasting change of level."
    ]
    for course in courses:
        cliff = course.facts.read_optional("cliff", course.facts.read_subtable)
        foretold = get_number(course.facts, "predicted_cliff_bytes")
        if cliff:
            said = (
                f"{course.label}: cliff after {units.format_capacity(round(cliff.read_amount('host_bytes')))}"
            )
            if foretold is not None:
                said += f", predicted {units.format_capacity(round(foretold))}"
            words.append(f"{said}.")
        if course.changes.reason:
            words.append(f"{course.label}: no steps, {course.changes.reason}.")
    return " ".join(words)
