"""Find the intervals in which a series is above its usual level, and the episodes that they form. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from statistics import median

from opwatch.report.levels import LevelSeries, find_levels

# A slow interval exceeds the usual level by this ratio and by this many standard deviations.
SLOW_RATIO, SLOW_DEVIATIONS = 1.5, 5.0
# A value at this multiple of the usual level is unusual, however noisy the series.
_ALWAYS_SLOW = 3.0
# Distances of the quartile and of the 5th percentile from the median of a normal distribution.
_QUARTILE, _TWENTIETH = 0.6745, 1.6449
# A level with fewer intervals is not the usual one.
_MIN_LEVEL = 10
MIN_INTERVALS = 20
# The search for levels takes time by the square of its points.
_MAX_POINTS = 100
# A value below this share of the largest counts as zero.
_ZERO_SHARE = 1e-3


@dataclass(frozen=True, slots=True)
class Episode:
    """Consecutive slow intervals, from `begin` up to but excluding `end`."""

    begin: int
    end: int

    @property
    def places(self) -> range:
        return range(self.begin, self.end)


@dataclass(frozen=True, slots=True)
class UsualLevel:
    """The usual value of a series, and the limit above which a value is unusual."""

    value: float
    limit: float


def find_usual_level(values: Sequence[float], ratio: float, deviations: float) -> UsualLevel | None:
    """Return the usual level of a series, or None if too few values are known.

    The level and its spread come from the lower quartile, so that up to two thirds of the intervals may be
    unusual. With lasting steps, the lowest level counts.
    """
    known = [value for value in values if not math.isnan(value)]
    if len(known) < MIN_INTERVALS:
        return None
    most = max(known)
    if most <= 0:
        return UsualLevel(0.0, math.inf)
    floor = most * _ZERO_SHARE
    known = _select_lowest_level(known, floor)
    logs = sorted(math.log(max(value, floor)) for value in known)
    quartile, twentieth = (logs[int(share * (len(logs) - 1))] for share in (0.25, 0.05))
    deviation = (quartile - twentieth) / (_TWENTIETH - _QUARTILE)
    middle = min(quartile + _QUARTILE * deviation, logs[len(logs) // 2])
    limit = middle + min(max(math.log(ratio), deviations * deviation), math.log(_ALWAYS_SLOW))
    return UsualLevel(math.exp(middle), math.exp(limit))


def _select_lowest_level(values: list[float], floor: float) -> list[float]:
    """Return the values of the lowest level, or all values without lasting steps between levels."""
    ordered = sorted(values)
    if ordered[len(ordered) // 2] < SLOW_RATIO * max(ordered[len(ordered) // 20], floor):
        # Half of the values are near the lowest ones, so there is no higher level for most of the time.
        return values
    together = -(-len(values) // _MAX_POINTS)
    points = [max(median(values[at : at + together]), floor) for at in range(0, len(values), together)]
    marks = range(len(points))
    levels = find_levels(LevelSeries(points, [1.0] * len(points), marks, marks)).levels
    levels = tuple(level for level in levels if level.intervals * together >= _MIN_LEVEL)
    if len(levels) < 2:
        return values
    lowest = min(levels, key=lambda level: level.value)
    part = values[lowest.place * together : (lowest.place + lowest.intervals) * together]
    return part if len(part) >= _MIN_LEVEL else values


def flag_above(values: Sequence[float], limit: float) -> list[bool]:
    """Return for each value whether it is above a limit; unknown values are not."""
    return [value > limit for value in values]


def find_episodes(flags: Sequence[bool], most_gap: int = 1, seams: Sequence[int] = ()) -> list[Episode]:
    """Return the maximal runs of true flags; gaps of up to `most_gap` intervals do not end an episode.

    `seams` are the intervals that do not follow the one before; an episode ends there.
    """
    episodes: list[Episode] = []
    for begin, end in pairwise((0, *seams, len(flags))):
        episodes += _find_runs(flags[begin:end], most_gap, begin)
    return episodes


def _find_runs(flags: Sequence[bool], most_gap: int, at: int) -> list[Episode]:
    """Return the episodes of a stretch that starts with interval `at`."""
    episodes: list[Episode] = []
    for flag, group in groupby(flags):
        length = len(list(group))
        if flag:
            if episodes and at - episodes[-1].end <= most_gap:
                episodes[-1] = Episode(episodes[-1].begin, at + length)
            else:
                episodes.append(Episode(at, at + length))
        at += length
    return episodes
