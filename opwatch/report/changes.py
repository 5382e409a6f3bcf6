"""Find and name the changes during a run: cliffs, steps, steady levels and periods. Pure.

A run with phases is examined phase by phase: a difference between two jobs is not a change of the drive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from opwatch.compare.amplification import LEAST_STRETCHES
from opwatch.recording.reading.phases import Phase
from opwatch.report.bins import TimeBin, grouped, thinned
from opwatch.report.drive_course import DriveCourse
from opwatch.report.gathering import DiskPicture
from opwatch.report.levels import Level, Levels, LevelSeries, Pause, levels_of
from opwatch.report.loads import load_changes
from opwatch.report.periods import Period, period_of

# Longer runs are merged to this many intervals; a lasting change remains visible.
_MOST_INTERVALS = 360
RATE, P99, WAF = "rate", "p99", "waf"


@dataclass(frozen=True, slots=True)
class CourseChanges:
    """The changes of one metric of one operation (of the drive if `op` is None) in one phase, or in the whole
    run.

    `interval_s` is the length of the examined intervals. `period` belongs to the last level.
    """

    figure: str
    op: str | None
    phase: str | None
    levels: Levels
    period: Period | None
    interval_s: float


def disk_changes(
    disk: DiskPicture, drive: DriveCourse | None, phases: Sequence[Phase]
) -> tuple[CourseChanges, ...]:
    """Return all named changes of a disk. Covers reads and writes only; other operations are too rare."""
    changes = list[CourseChanges]()
    for phase in phases or (None,):
        for op in disk.ops:
            if op in ("read", "write"):
                changes += _op_changes(op, disk, phase)
        if drive:
            changes += _drive_changes(drive, phase)
    return tuple(changes)


def _op_changes(op: str, disk: DiskPicture, phase: Phase | None) -> Iterator[CourseChanges]:
    """Find changes of requests per second and of p99, from the first request on."""
    bins = disk.bins
    if phase:
        places = phase.places([one.begin_ns for one in bins], [one.end_ns for one in bins])
        bins = [bins[place] for place in places]
    busy = [place for place, one in enumerate(bins) if one.op(op).count]
    if not busy:
        return
    pauses = disk.counts.pauses(op, phase)
    # Empty intervals at the end that are no pause belong to no level either.
    few = list(_thinned_outside(bins[busy[0] : busy[-1] + 1], pauses))
    yield _rate_changes(op, phase, few, pauses)
    known = [one for one in few if one.op(op).quantile_ns(0.99)]
    yield _named(P99, op, phase, known, lambda one: one.op(op).quantile_ns(0.99) or 0.0, lambda one: 1.0)


def _rate_changes(
    op: str, phase: Phase | None, bins: Sequence[TimeBin], pauses: Sequence[Pause]
) -> CourseChanges:
    """Find changes of requests per second outside pauses, and the load changes that came with each step."""
    change = _named(RATE, op, phase, bins, lambda one: one.op(op).count, lambda one: one.seconds)
    steps = tuple(
        replace(step, load=load_changes(op, _bins_of(step.before, bins), _bins_of(step.after, bins)))
        for step in change.levels.steps
    )
    return replace(change, levels=replace(change.levels, steps=steps, pauses=tuple(pauses)))


def _thinned_outside(bins: Sequence[TimeBin], pauses: Sequence[Pause]) -> Iterator[TimeBin]:
    """Yield the bins that no pause touches, added up to about _MOST_INTERVALS, none across a pause."""
    outside = [one for one in bins if not any(_overlaps(one, pause) for pause in pauses)]
    together = -(-len(outside) // _MOST_INTERVALS)
    for _, group in groupby(outside, key=lambda one: sum(pause.end_ns <= one.begin_ns for pause in pauses)):
        part = list(group)
        yield from thinned(part, -(-len(part) // together))


def _overlaps(one: TimeBin, pause: Pause) -> bool:
    return one.begin_ns < pause.end_ns and pause.begin_ns < one.end_ns


def _bins_of(part: Level, bins: Sequence[TimeBin]) -> list[TimeBin]:
    return [one for one in bins if _is_in(one, part)]


def _is_in(one: TimeBin, part: Level) -> bool:
    return part.begin_ns <= one.begin_ns and one.end_ns <= part.end_ns


def _named(
    figure: str,
    op: str,
    phase: Phase | None,
    bins: Sequence[TimeBin],
    over: Callable[[TimeBin], float],
    under: Callable[[TimeBin], float],
) -> CourseChanges:
    series = LevelSeries(
        over=[over(one) for one in bins],
        under=[under(one) for one in bins],
        begins_ns=[one.begin_ns for one in bins],
        ends_ns=[one.end_ns for one in bins],
    )
    return _changes(figure, op, phase, series)


def _drive_changes(drive: DriveCourse, phase: Phase | None) -> Iterator[CourseChanges]:
    """Find changes of write amplification, if the counters moved often enough."""
    flows = list(drive.parts)
    if phase:
        places = phase.places([flow.begin_ns for flow in flows], [flow.end_ns for flow in flows])
        flows = [flows[place] for place in places]
    groups = grouped(flows, _MOST_INTERVALS)
    series = LevelSeries(
        over=[sum(flow.nand_bytes for flow in group) for group in groups],
        under=[sum(flow.host_bytes for flow in group) for group in groups],
        begins_ns=[group[0].begin_ns for group in groups],
        ends_ns=[group[-1].end_ns for group in groups],
        least=LEAST_STRETCHES,
    )
    yield _changes(WAF, None, phase, series)


def _changes(figure: str, op: str | None, phase: Phase | None, series: LevelSeries) -> CourseChanges:
    levels = levels_of(series)
    length = (sum(series.ends_ns) - sum(series.begins_ns)) / 1e9 / len(series) if len(series) else 0.0
    # A level that still rises or falls has no centre to oscillate around.
    is_level = levels.rest is not None and levels.rest.is_steady is not False
    is_level = is_level and not any(step.is_beyond for step in levels.steps)
    period = period_of(_last_values(series, levels)) if is_level else None
    return CourseChanges(figure, op, phase.name if phase else None, levels, period, length)


def _last_values(series: LevelSeries, levels: Levels) -> list[float]:
    """Return the values of the last level."""
    begin = levels.rest.level.begin_ns if levels.rest else 0
    return [value for at, value in zip(series.begins_ns, series.values, strict=True) if at >= begin]


def with_steps(changes: Sequence[CourseChanges]) -> list[CourseChanges]:
    """Return the changes that contain a step, earliest first."""
    stepped = [change for change in changes if change.levels.steps]
    return sorted(stepped, key=lambda change: change.levels.steps[0].at_ns)


def at_once(change: CourseChanges, others: Sequence[CourseChanges], at_ns: int) -> list[CourseChanges]:
    """Return the other metrics that changed at about the same moment, each with only that step."""
    near_ns = round(3 * change.interval_s * 1e9)
    near = []
    for other in others:
        if other is change:
            continue
        reach = max(near_ns, round(1.5 * other.interval_s * 1e9))
        steps = tuple(step for step in other.levels.steps if abs(step.at_ns - at_ns) <= reach)
        if steps:
            near.append(replace(other, levels=replace(other.levels, steps=steps[:1])))
    return near
