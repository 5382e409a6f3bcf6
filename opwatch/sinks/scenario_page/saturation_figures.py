"""Plots of a write saturation: I/Os per second by time and by bytes, one colour per level, with labels for
cliff, steps, steady level and variation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from opwatch import units
from opwatch.errors import BadInput
from opwatch.fields import Fields
from opwatch.report.bins import grouped
from opwatch.report.levels import Levels, LevelSeries, levels_of
from opwatch.sinks.plain.cells import number
from opwatch.sinks.report.plots.figure import Figure, Flag
from opwatch.sinks.report.plots.markup import dots, line
from opwatch.sinks.report.plots.scales import EXTENT, AxisScale, capacities, elapsed, linear

# Maximum number of colours that remain distinguishable.
MOST_COLOURS = 6
# Maximum number of intervals in the search for steps, and of dots in a plot; more are merged.
_MOST_POINTS, _MOST_DOTS = 300, 4000
# A round shorter than a second has no per-second counts. If the counts cover less than this share of a round,
# the round is plotted instead.
_LEAST_SEEN = 0.5
# Flags at a smaller distance from each other share a label.
ONE_PLACE = EXTENT // 50


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


class _Course(NamedTuple):
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


def saturation_figures(document: Fields) -> Iterator[Figure]:
    """Yield a plot by time and a plot by bytes written."""
    scenario = document.sub("scenario")
    ratio = scenario.amount("time_ratio") or 1.0
    rows = list(zip(document.tables("levels"), scenario.tables("levels"), strict=False))
    courses = [_course(place, *row, ratio) for place, row in enumerate(rows[:MOST_COLOURS])]
    courses = [course for course in courses if course.points]
    if not courses:
        return
    y = linear(max(point.iops for course in courses for point in course.points))
    last = [course.points[-1] for course in courses]
    time = elapsed(max(point.at_seconds + point.seconds / 2 for point in last))
    yield _figure(courses, time, y, is_of_time=True)
    size = capacities(max(point.at_bytes + point.written_bytes / 2 for point in last))
    yield _figure(courses, size, y, is_of_time=False)


def _course(place: int, level: Fields, facts: Fields, ratio: float) -> _Course:
    rounds = list(_points([[_numbers(row, ratio)] for row in level.tables("rounds")]))
    spots, has_seconds, has_rounds = _dots(rounds, list(_seconds(level)))
    window = level.sub("opwatch").table.get("window")
    begin = window[0] if isinstance(window, list) and window and isinstance(window[0], int) else None
    at = None if begin is None else max(begin - 1, 0)
    stretches = [_joined(group) for group in grouped(spots, _MOST_POINTS)]
    return _Course(
        kind=f"run{place}",
        label=facts.text("label"),
        points=[_joined(group) for group in grouped(spots, _MOST_DOTS)] if has_seconds else stretches,
        stretches=stretches,
        has_seconds=has_seconds,
        has_rounds=has_rounds,
        changes=_changes(stretches),
        facts=facts,
        steady=rounds[at] if at is not None and at < len(rounds) else None,
    )


def _dots(rounds: Sequence[_Point], seconds: Sequence[_Point]) -> tuple[list[_Point], bool, bool]:
    """Return (points, whether some are seconds, whether some are rounds).

    A round is replaced by per-second points, unless the points cover too little of the round.
    """
    spots: list[_Point] = []
    left, places = list(seconds), set()
    for one in rounds:
        end = one.at_bytes + one.written_bytes / 2
        count = next((at for at, second in enumerate(left) if second.at_bytes >= end), len(left))
        own, left = left[:count], left[count:]
        is_seen = sum(second.written_bytes for second in own) >= _LEAST_SEEN * one.written_bytes
        spots += own if is_seen else [one]
        places.add(is_seen)
    return spots, True in places, False in places


def _seconds(level: Fields) -> Iterator[_Point]:
    """Yield the seconds counted by a block trace; none for a model or without a trace."""
    for begin_s, begin_bytes, seconds, ios, n_bytes in (
        level.amounts("seconds", 5) if "seconds" in level.table else []
    ):
        if not seconds > 0:
            raise BadInput(f"{level.where}: a second that took no time")
        yield _Point(begin_bytes + n_bytes / 2, begin_s + seconds / 2, n_bytes, seconds, ios)


def _joined(group: Sequence[_Point]) -> _Point:
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


def _numbers(row: Fields, ratio: float) -> tuple[float, float, float]:
    """Return (bytes, seconds, I/Os) of a round, scaled from the model to the drive."""
    seconds = row.amount("seconds")
    if not seconds > 0:
        raise BadInput(f"{row.where}: a round that took no time")
    return row.amount("host_bytes") / ratio, seconds / ratio, row.amount("ios") / ratio


def _points(groups: Sequence[Sequence[tuple[float, float, float]]]) -> Iterator[_Point]:
    at_bytes = at_seconds = 0.0
    for group in groups:
        written, seconds, ios = (sum(column) for column in zip(*group, strict=True))
        yield _Point(at_bytes + written / 2, at_seconds + seconds / 2, written, seconds, ios)
        at_bytes, at_seconds = at_bytes + written, at_seconds + seconds


def _changes(points: Sequence[_Point]) -> Levels:
    """Find steps by bytes instead of seconds, so that fast and slow intervals have equal weight."""
    return levels_of(
        LevelSeries(
            over=[point.ios for point in points],
            under=[point.seconds for point in points],
            begins_ns=list(range(len(points))),
            ends_ns=list(range(1, len(points) + 1)),
        )
    )


def _figure(courses: Sequence[_Course], x: AxisScale, y: AxisScale, *, is_of_time: bool) -> Figure:
    def place(point: _Point) -> int:
        return x.at(point.at_seconds if is_of_time else point.at_bytes)

    layers = []
    for course in courses:
        size = "big " if len(course.points) <= 200 else ""
        spots = [(place(point), EXTENT - y.at(point.iops)) for point in course.points]
        layers.append(dots(spots, f"{size}{course.kind}"))
    for course in courses:
        rest = number(course.facts, "steady_iops")
        if course.steady and rest is not None:
            height = EXTENT - y.at(rest)
            ends = [(place(course.steady), height), (place(course.points[-1]), height)]
            layers.append(line(ends, f"level {course.kind}"))
    return Figure(
        title=f"I/Os a second against {'time' if is_of_time else 'what was written'}",
        x=x,
        y=y,
        x_title="time of the drive" if is_of_time else "written by the host",
        y_title="I/Os a second",
        layers=layers,
        legend=[(course.kind, _name(course)) for course in courses],
        note=_note(courses),
        flags=sorted(_flags(courses, x, is_of_time=is_of_time), key=lambda flag: flag.place),
        is_wide=True,
    )


def _name(course: _Course) -> str:
    rest, scatter = number(course.facts, "steady_iops"), number(course.facts, "iops_cv")
    if rest is None:
        return f"{course.label}: not at rest"
    spread = "" if scatter is None else f", dispersion {100 * scatter:.2g} % (CV)"
    return f"{course.label}: steady at {rest:,.0f}{spread}"


def _flags(courses: Sequence[_Course], x: AxisScale, *, is_of_time: bool) -> Iterator[Flag]:
    """Yield flags for each level's cliff, predicted cliff, and later steps."""
    yield from _cliffs(courses, x, "seconds" if is_of_time else "host_bytes")
    for course in courses:
        foretold = number(course.facts, "predicted_cliff_bytes")
        if foretold is not None and not is_of_time:
            yield Flag(x.at(foretold), "", "event")
        for step in course.changes.steps:
            point = course.stretches[min(step.at_ns, len(course.stretches) - 1)]
            middle, half = (
                (point.at_seconds, point.seconds / 2)
                if is_of_time
                else (point.at_bytes, point.written_bytes / 2)
            )
            kind = "drop" if step.is_cliff else "step"
            yield Flag(x.at(middle - half), f"{kind} {course.label}", "change")


def _cliffs(courses: Sequence[_Course], x: AxisScale, key: str) -> Iterator[Flag]:
    """Yield one flag if all cliffs coincide, because a purged drive has the same amount of flash at every
    level."""
    places = [
        (x.at(course.facts.sub("cliff").amount(key)), course.label)
        for course in courses
        if course.facts.table.get("cliff") is not None
    ]
    if len(places) > 1 and max(places)[0] - min(places)[0] <= ONE_PLACE:
        yield Flag(min(places)[0], "cliff", "change")
        return
    yield from (Flag(place, f"cliff {label}", "change") for place, label in places)


def _note(courses: Sequence[_Course]) -> str:
    dot = "stretch of writes of the same size"
    if any(course.has_seconds for course in courses):
        some = any(course.has_rounds for course in courses)
        dot = "second, or a round that was shorter" if some else "second"
    words = [
        f"A dot is a {dot}; the line is what is left at rest. Cliff: data are moved from here on; step, "
        "drop: a change of level that lasts."
    ]
    for course in courses:
        cliff = course.facts.optional("cliff", course.facts.sub)
        foretold = number(course.facts, "predicted_cliff_bytes")
        if cliff:
            said = f"{course.label}: cliff after {units.capacity(round(cliff.amount('host_bytes')))}"
            if foretold is not None:
                said += f", foretold {units.capacity(round(foretold))}"
            words.append(f"{said}.")
        if course.changes.reason:
            words.append(f"{course.label}: no steps, {course.changes.reason}.")
    return " ".join(words)
