"""Find and name the changes during a run: cliffs, steps, steady levels and periods. Pure.

A run with phases is examined phase by phase: a difference between two jobs is not a change of the drive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Protocol, TypeVar

from opwatch.compare.amplification import MIN_INTERVALS
from opwatch.recording.reading.phases import Phase
from opwatch.report.bins import TimeBin, group_neighbours, thin_bins
from opwatch.report.drive_timeline import DriveTimeline
from opwatch.report.levels import Level, Levels, LevelSeries, Pause, find_levels
from opwatch.report.loads import find_load_changes
from opwatch.report.periods import Period, find_period
from opwatch.report.run_picture import DiskPicture

# Longer runs are merged to this many intervals; a lasting change remains visible.
_MAX_INTERVALS = 360
RATE, P99, WAF = "rate", "p99", "waf"


class _TimedInterval(Protocol):
    @property
    def begin_ns(self) -> int: ...
    @property
    def end_ns(self) -> int: ...


_I = TypeVar("_I", bound=_TimedInterval)


@dataclass(frozen=True, slots=True)
class MetricChanges:
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


def find_disk_changes(
    disk: DiskPicture, drive: DriveTimeline | None, phases: Sequence[Phase]
) -> tuple[MetricChanges, ...]:
    """Return all named changes of a disk. Covers reads and writes only; other operations are too rare."""
    changes = list[MetricChanges]()
    for phase in phases or (None,):
        for op in disk.ops:
            if op in ("read", "write"):
                changes += _find_op_changes(op, disk, phase)
        if drive:
            changes += _find_waf_changes(drive, phase)
    return tuple(changes)


def _select_within(intervals: Sequence[_I], phase: Phase | None) -> list[_I]:
    """Return the intervals that are completely within a phase, or all without a phase."""
    if phase is None:
        return list(intervals)
    begins_ns, ends_ns = [one.begin_ns for one in intervals], [one.end_ns for one in intervals]
    return [intervals[place] for place in phase.places(begins_ns, ends_ns)]


def _find_op_changes(op: str, disk: DiskPicture, phase: Phase | None) -> Iterator[MetricChanges]:
    """Find changes of requests per second and of p99, from the first request on."""
    bins = _select_within(disk.bins, phase)
    busy = [place for place, one in enumerate(bins) if one.find_op(op).count]
    if not busy:
        return
    pauses = disk.counts.find_pauses(op, phase)
    # Empty intervals at the end that are no pause belong to no level either.
    few = list(_merge_outside_pauses(bins[busy[0] : busy[-1] + 1], pauses))
    yield _find_rate_changes(op, phase, few, pauses)
    known = [one for one in few if one.find_op(op).find_quantile_ns(0.99)]
    yield _find_bin_changes(
        P99, op, phase, known, lambda one: one.find_op(op).find_quantile_ns(0.99) or 0.0, lambda one: 1.0
    )


def _find_rate_changes(
    op: str, phase: Phase | None, bins: Sequence[TimeBin], pauses: Sequence[Pause]
) -> MetricChanges:
    """Find changes of requests per second outside pauses, and the load changes that came with each step."""
    change = _find_bin_changes(
        RATE, op, phase, bins, lambda one: one.find_op(op).count, lambda one: one.seconds
    )
    steps = tuple(
        replace(
            step, load=find_load_changes(op, _select_bins(step.before, bins), _select_bins(step.after, bins))
        )
        for step in change.levels.steps
    )
    return replace(change, levels=replace(change.levels, steps=steps, pauses=tuple(pauses)))


def _merge_outside_pauses(bins: Sequence[TimeBin], pauses: Sequence[Pause]) -> Iterator[TimeBin]:
    """Yield the bins that no pause touches, added up to about _MOST_INTERVALS, none across a pause."""
    outside = [one for one in bins if not any(_has_overlap(one, pause) for pause in pauses)]
    together = -(-len(outside) // _MAX_INTERVALS)
    for _, group in groupby(outside, key=lambda one: sum(pause.end_ns <= one.begin_ns for pause in pauses)):
        part = list(group)
        yield from thin_bins(part, -(-len(part) // together))


def _has_overlap(one: TimeBin, pause: Pause) -> bool:
    return one.begin_ns < pause.end_ns and pause.begin_ns < one.end_ns


def _select_bins(part: Level, bins: Sequence[TimeBin]) -> list[TimeBin]:
    return [one for one in bins if _is_in_level(one, part)]


def _is_in_level(one: TimeBin, part: Level) -> bool:
    return part.begin_ns <= one.begin_ns and one.end_ns <= part.end_ns


def _find_bin_changes(
    figure: str,
    op: str,
    phase: Phase | None,
    bins: Sequence[TimeBin],
    over: Callable[[TimeBin], float],
    under: Callable[[TimeBin], float],
) -> MetricChanges:
    series = LevelSeries(
        over=[over(one) for one in bins],
        under=[under(one) for one in bins],
        begins_ns=[one.begin_ns for one in bins],
        ends_ns=[one.end_ns for one in bins],
    )
    return _find_changes(figure, op, phase, series)


def _find_waf_changes(drive: DriveTimeline, phase: Phase | None) -> Iterator[MetricChanges]:
    """Find changes of write amplification, if the counters moved often enough."""
    flows = _select_within(drive.parts, phase)
    groups = group_neighbours(flows, _MAX_INTERVALS)
    series = LevelSeries(
        over=[sum(flow.nand_bytes for flow in group) for group in groups],
        under=[sum(flow.host_bytes for flow in group) for group in groups],
        begins_ns=[group[0].begin_ns for group in groups],
        ends_ns=[group[-1].end_ns for group in groups],
        least=MIN_INTERVALS,
    )
    yield _find_changes(WAF, None, phase, series)


def _find_changes(figure: str, op: str | None, phase: Phase | None, series: LevelSeries) -> MetricChanges:
    levels = find_levels(series)
    length = (sum(series.ends_ns) - sum(series.begins_ns)) / 1e9 / len(series) if len(series) else 0.0
    # A level that still rises or falls has no centre to oscillate around.
    is_level = levels.rest is not None and levels.rest.is_steady is not False
    is_level = is_level and not any(step.is_beyond for step in levels.steps)
    period = find_period(_list_last_values(series, levels)) if is_level else None
    return MetricChanges(figure, op, phase.name if phase else None, levels, period, length)


def _list_last_values(series: LevelSeries, levels: Levels) -> list[float]:
    """Return the values of the last level."""
    begin = levels.rest.level.begin_ns if levels.rest else 0
    return [value for at, value in zip(series.begins_ns, series.values, strict=True) if at >= begin]


def select_stepped(changes: Sequence[MetricChanges]) -> list[MetricChanges]:
    """Return the changes that contain a step, earliest first."""
    stepped = [change for change in changes if change.levels.steps]
    return sorted(stepped, key=lambda change: change.levels.steps[0].at_ns)


def find_simultaneous(
    change: MetricChanges, others: Sequence[MetricChanges], at_ns: int
) -> list[MetricChanges]:
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
