"""Choose the disks and minutes of a long recording that are read in seconds: slow and usual ones. Pure.

A day of many disks has millions of samples. The counters at the start of each minute give each minute's
mean latency, rate and errors. Disks are read in the order of the time that their requests took above the
usual mean, each in so many minutes that a cause can be told from chance: half of them stand out, half are
usual ones for comparison.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import NamedTuple

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
_MIN_KNOWN = 3
# With fewer minutes, half of them usual ones, a cause can hardly be told from chance. At long intervals, they
# have too few samples, and each disk gets this part of all minutes.
_ENOUGH, _MOST_DISKS = 10, 25


@dataclass
class MinuteChoice:
    """The places to read in each of the recording's `minutes`, by block.

    `standing_out` counts the minutes of single disks that stand out. Disks of the places `quiet` have none,
    and are not read if others have. For those of `left_out` there are not enough samples; they have
    `left_out_share` of the excess time of minutes that stand out.
    """

    minutes: int
    places: dict[int, frozenset[int]] = field(default_factory=dict)
    standing_out: int = 0
    quiet: tuple[int, ...] = ()
    left_out: tuple[int, ...] = ()
    left_out_share: float = 0.0


@dataclass
class _Group:
    """Disks that are read in the same minutes, because they are compared with each other.

    `scores` are by how much each minute stands out, and `excess_ns` its time above the usual mean.
    """

    places: list[int]
    scores: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    excess_ns: dict[int, float] = field(default_factory=lambda: defaultdict(float))

    @property
    def total_excess_ns(self) -> float:
        return math.fsum(self.excess_ns.values())

    def list_standing_out(self) -> list[int]:
        return sorted(block for block, score in self.scores.items() if score >= _STANDS_OUT)


def choose_minutes(
    starts: MinuteStarts,
    disks: Mapping[int, WatchedDisk],
    most: int,
    begin_ns: int = 0,
    end_ns: int | None = None,
) -> MinuteChoice:
    """Return about `most` minutes of single disks: all of them, or those of disks with most excess time."""
    blocks = _list_blocks(starts, begin_ns, end_ns)
    if len(blocks) * len(disks) <= most:
        return MinuteChoice(len(blocks), dict.fromkeys(blocks, frozenset(disks)))
    groups = _group_disks(disks)
    for group in groups:
        _score_group(group, starts, set(blocks))
    slow = sorted((one for one in groups if one.list_standing_out()), key=lambda one: -one.total_excess_ns)
    examined = slow or groups
    enough = max(_ENOUGH, most // _MOST_DISKS)
    shares = _share_minutes(examined, most, min(enough, len(blocks)), len(blocks))
    places: dict[int, set[int]] = defaultdict(set)
    for group, share in zip(examined, shares, strict=True):
        for block in _choose_blocks(group, blocks, share, enough):
            places[block].update(group.places)
    left_out = [group for group, share in zip(examined, shares, strict=True) if not share]
    total_ns = math.fsum(group.total_excess_ns for group in groups)
    return MinuteChoice(
        len(blocks),
        {block: frozenset(one) for block, one in places.items()},
        standing_out=sum(len(group.list_standing_out()) * len(group.places) for group in groups),
        quiet=_list_places(group for group in groups if slow and not group.list_standing_out()),
        left_out=_list_places(left_out),
        left_out_share=math.fsum(one.total_excess_ns for one in left_out) / total_ns if total_ns else 0.0,
    )


def _list_blocks(starts: MinuteStarts, begin_ns: int, end_ns: int | None) -> list[int]:
    """Return the minutes of a part of the recording, also the one in which it begins."""
    first = max(bisect_right([at_ns for _, at_ns in starts.blocks], begin_ns) - 1, 0)
    return [number for number, at_ns in starts.blocks[first:] if end_ns is None or at_ns <= end_ns]


def _list_places(groups: Iterable[_Group]) -> tuple[int, ...]:
    return tuple(place for group in groups for place in group.places)


def _group_disks(disks: Mapping[int, WatchedDisk]) -> list[_Group]:
    """Return a group for each origin with several disks, and for each other disk."""
    groups: dict[object, _Group] = {}
    for place, disk in sorted(disks.items()):
        key: object = place if disk.device == disk.origin else disk.origin
        groups.setdefault(key, _Group([])).places.append(place)
    return list(groups.values())


def _score_group(group: _Group, starts: MinuteStarts, blocks: set[int]) -> None:
    for place in group.places:
        for op in EXAMINED_OPS:
            for minute in _score_minutes(starts.counts.get((place, op), ())):
                if minute.block in blocks:
                    group.scores[minute.block] = max(group.scores[minute.block], minute.score)
                    group.excess_ns[minute.block] += minute.excess_ns


class _ScoredMinute(NamedTuple):
    """By how much a minute of an operation stands out, 1 is the limit; and the time of its requests above the
    usual mean, 0 if the mean does not stand out."""

    block: int
    score: float
    excess_ns: float


def _score_minutes(starts: Sequence[MinuteStart]) -> Iterator[_ScoredMinute]:
    """Yield each minute of an operation."""
    growth = [
        (then.block, max(now.completed - then.completed, 0), max(now.sum_ns - then.sum_ns, 0), now, then)
        for then, now in pairwise(starts)
    ]
    means = [sum_ns / done if done else math.nan for _, done, sum_ns, _, _ in growth]
    gaps = [(now.mono_ns - then.mono_ns) / done if done else math.nan for _, done, _, now, then in growth]
    usual, usual_gap = _find_level(means), _find_level(gaps)
    for (block, done, sum_ns, now, then), mean, gap in zip(growth, means, gaps, strict=True):
        by_mean = _find_distance(mean, usual)
        by_errors = _ERROR_SCORE if now.errors > then.errors else 0.0
        score = max(by_mean, _RATE_WEIGHT * _find_distance(gap, usual_gap), by_errors)
        excess_ns = sum_ns - done * usual.value if usual and by_mean >= _STANDS_OUT else 0.0
        yield _ScoredMinute(block, score, excess_ns)


def _find_level(values: Sequence[float]) -> UsualLevel | None:
    """Return the usual level of a series of minutes, or None if it is unknown or has no finite limit."""
    level = find_usual_level(values, _RATIO, _DEVIATIONS) or _find_middle(values)
    return level if level and 0 < level.value < level.limit < math.inf else None


def _find_distance(value: float, level: UsualLevel | None) -> float:
    """Return the distance of a value from the usual one, in units of the limit's; 0 if it is unknown or
    lower."""
    if level is None or not value > level.value:
        return 0.0
    return math.log(value / level.value) / math.log(level.limit / level.value)


def _find_middle(values: Sequence[float]) -> UsualLevel | None:
    """Return the median of too few minutes for a usual level, or None if there are almost none."""
    known = [value for value in values if not math.isnan(value)]
    middle = median(known) if len(known) >= _MIN_KNOWN else 0.0
    return UsualLevel(middle, _RATIO * middle) if middle > 0 else None


def _share_minutes(groups: Sequence[_Group], most: int, enough: int, known: int) -> list[int]:
    """Return the number of minutes for each group, 0 for those that are left out.

    Half of all are divided by excess time, but each group gets enough for an answer, in their order. What
    remains is divided by excess time as well.
    """
    total_ns = math.fsum(group.total_excess_ns for group in groups)
    weights = [group.total_excess_ns / total_ns if total_ns else 1 / len(groups) for group in groups]
    shares: list[int] = []
    spare = most
    for group, weight in zip(groups, weights, strict=True):
        size = len(group.places)
        share = min(max(int(most * weight / 2) // size, enough), known)
        if share * size > spare:
            # An array with too many members for that is read in fewer minutes, if it is the first.
            share = max(most // size, 1) if not shares else enough if enough * size <= spare else 0
        shares.append(share)
        spare -= share * size
    read = math.fsum(weight for weight, share in zip(weights, shares, strict=True) if share)
    return [
        min(share + int(max(spare, 0) * weight / read) // len(group.places), known) if share else 0
        for group, weight, share in zip(groups, weights, shares, strict=True)
    ]


def _choose_blocks(group: _Group, blocks: Sequence[int], share: int, enough: int) -> set[int]:
    """Return the minutes in which a group is read: half of them usual ones, or more if fewer stand out.

    The minutes with most excess time come first, then those next to them, which show how an episode begins
    and ends, then the others that stand out.
    """
    order, known = _order_minutes(group), set(blocks)
    first = order[: enough // 2]
    near = [near for block in first for near in (block - 1, block + 1) if near in known]
    chosen = set(list(dict.fromkeys([*first, *near, *order]))[: share // 2])
    # If most minutes of an array's members stand out, those that do so least are compared with.
    limit = max(median(group.scores.get(block, 0.0) for block in blocks), _STANDS_OUT) if blocks else 0.0
    ordinary = [block for block in blocks if group.scores.get(block, 0.0) < limit and block not in chosen]
    return chosen | set(_spread(ordinary, share - len(chosen)))


def _order_minutes(group: _Group) -> list[int]:
    """Return the minutes that stand out: first the one of each run of them with most excess time, then the
    second ones, ..."""
    runs: list[list[int]] = []
    for block in group.list_standing_out():
        if runs and runs[-1][-1] == block - 1:
            runs[-1].append(block)
        else:
            runs.append([block])

    def rank(block: int) -> tuple[float, float, int]:
        return -group.excess_ns[block], -group.scores[block], block

    ranked = [(place, *rank(block)) for run in runs for place, block in enumerate(sorted(run, key=rank))]
    return [block for *_, block in sorted(ranked)]


def _spread(blocks: Sequence[int], count: int) -> list[int]:
    """Return `count` of the blocks, or all of them, at equal distances."""
    if count >= len(blocks):
        return list(blocks)
    return [blocks[(2 * number + 1) * len(blocks) // (2 * count)] for number in range(count)]
