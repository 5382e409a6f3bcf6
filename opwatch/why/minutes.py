"""Choose the minutes of a long recording that are read in seconds: unusual and usual ones. Pure.

A day of many disks has millions of samples. The counters at the start of each minute give each minute's
mean latency, rate and errors. Minutes whose values stand out are read with their neighbours, and as many
usual ones for comparison, up to a number of disk-minutes.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

from opwatch.recording.reading.minutes import MinuteStart, MinuteStarts
from opwatch.samples.sample import WatchedDisk
from opwatch.why.episodes import UsualLevel, find_usual_level
from opwatch.why.slowness import EXAMINED_OPS

# A mean of a minute stands out above this ratio to the usual one, or this many deviations.
_RATIO, _DEVIATIONS = 1.05, 3.0
# A lower rate is weaker evidence than a longer latency: the load may have ended.
_RATE_WEIGHT = 0.5
_ERROR_SCORE = 2.0
_STANDS_OUT = 1.0
_MIN_USUAL = 2
_MIN_KNOWN = 3


@dataclass
class MinuteChoice:
    """The places to read in each block, and the number of minutes that stand out, by place."""

    places: dict[int, frozenset[int]]
    minutes: int
    standing_out: int = 0


@dataclass
class _Group:
    """Disks that are read in the same minutes, because they are compared with each other."""

    places: list[int]
    scores: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    chosen: set[int] = field(default_factory=set)


def choose_minutes(
    starts: MinuteStarts,
    disks: Mapping[int, WatchedDisk],
    most: int,
    begin_ns: int = 0,
    end_ns: int | None = None,
) -> MinuteChoice:
    """Return about `most` minutes of single disks: half of them stand out, if there are that many."""
    blocks = [
        number for number, at_ns in starts.blocks if at_ns >= begin_ns and (end_ns is None or at_ns <= end_ns)
    ]
    groups = _group_disks(disks)
    for group in groups:
        for place in group.places:
            for op in EXAMINED_OPS:
                for block, score in _score_minutes(starts.counts.get((place, op), ())).items():
                    group.scores[block] = max(group.scores[block], score)
    standing_out = _choose_standing_out(groups, blocks, most // 2)
    spare = (most - sum(2 * len(one.chosen) * len(one.places) for one in groups)) // max(len(disks), 1)
    places: dict[int, set[int]] = defaultdict(set)
    for group in groups:
        ordinary = [block for block in blocks if group.scores.get(block, 0.0) < _STANDS_OUT]
        group.chosen |= set(_spread(ordinary, max(len(group.chosen) + spare, _MIN_USUAL)))
        for block in group.chosen:
            places[block].update(group.places)
    return MinuteChoice({block: frozenset(one) for block, one in places.items()}, len(blocks), standing_out)


def _group_disks(disks: Mapping[int, WatchedDisk]) -> list[_Group]:
    """Return a group for each origin with several disks, and for each other disk."""
    groups: dict[object, _Group] = {}
    for place, disk in sorted(disks.items()):
        key: object = place if disk.device == disk.origin else disk.origin
        groups.setdefault(key, _Group([])).places.append(place)
    return list(groups.values())


def _score_minutes(starts: Sequence[MinuteStart]) -> dict[int, float]:
    """Return by how much each minute stands out; 1 is the limit."""
    growth = [
        (then.block, max(now.completed - then.completed, 0), max(now.sum_ns - then.sum_ns, 0), now, then)
        for then, now in pairwise(starts)
    ]
    means = [sum_ns / done if done else math.nan for _, done, sum_ns, _, _ in growth]
    gaps = [(now.mono_ns - then.mono_ns) / done if done else math.nan for _, done, _, now, then in growth]
    scores = {}
    for (block, _, _, now, then), by_mean, by_gap in zip(growth, _rate(means), _rate(gaps), strict=True):
        by_errors = _ERROR_SCORE if now.errors > then.errors else 0.0
        scores[block] = max(by_mean, _RATE_WEIGHT * by_gap, by_errors)
    return scores


def _rate(values: Sequence[float]) -> list[float]:
    """Return for each value its distance from the usual one, in units of the limit's; 0 if it is unknown or
    lower."""
    level = find_usual_level(values, _RATIO, _DEVIATIONS) or _find_middle(values)
    if level is None or level.value <= 0 or not level.value < level.limit < math.inf:
        return [0.0] * len(values)
    unit = math.log(level.limit / level.value)
    return [max(math.log(value / level.value) / unit, 0.0) if value > 0 else 0.0 for value in values]


def _find_middle(values: Sequence[float]) -> UsualLevel | None:
    """Return the median of too few minutes for a usual level, or None if there are almost none."""
    known = [value for value in values if not math.isnan(value)]
    middle = median(known) if len(known) >= _MIN_KNOWN else 0.0
    return UsualLevel(middle, _RATIO * middle) if middle > 0 else None


def _choose_standing_out(groups: Sequence[_Group], blocks: Sequence[int], most: int) -> int:
    """Add minutes that stand out and their neighbours to the groups, at most `most` of single disks; return
    how many stand out, over all disks."""
    known, number = set(blocks), 0
    waiting = [
        (rank, -group.scores[block], at, block)
        for at, group in enumerate(groups)
        for rank, block in enumerate(_order_minutes(group.scores, blocks))
    ]
    for _, _, at, block in sorted(waiting):
        group = groups[at]
        number += len(group.places)
        added = {block - 1, block, block + 1} & known - group.chosen
        cost = len(added) * len(group.places)
        if cost <= most:
            most -= cost
            group.chosen |= added
    return number


def _order_minutes(scores: Mapping[int, float], blocks: Iterable[int]) -> list[int]:
    """Return the minutes that stand out: first the highest of each run of them, then the second ones, ..."""
    runs: list[list[int]] = []
    for block in blocks:
        if scores.get(block, 0.0) >= _STANDS_OUT:
            if runs and runs[-1][-1] == block - 1:
                runs[-1].append(block)
            else:
                runs.append([block])
    ranked = [
        (rank, -scores[block], block)
        for run in runs
        for rank, block in enumerate(sorted(run, key=lambda block: -scores[block]))
    ]
    return [block for _, _, block in sorted(ranked)]


def _spread(blocks: Sequence[int], count: int) -> list[int]:
    """Return `count` of the blocks, or all of them, at equal distances."""
    if count >= len(blocks):
        return list(blocks)
    return [blocks[(2 * number + 1) * len(blocks) // (2 * count)] for number in range(count)]
