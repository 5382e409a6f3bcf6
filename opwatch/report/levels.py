"""Where the level of a course changes for good, and whether it stands still at its end. Pure.

First a course is cut where its logarithm jumps most, too often rather than too rarely. Then neighbouring
parts are joined again until each differs from the next by more than a fifth, and by more than chance makes of
it: by the comparison that holds two recordings against each other, which knows that neighbours are alike.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from statistics import median

from opwatch.compare.differences import Difference, Statement, difference
from opwatch.compare.estimates import LEAST_INTERVALS, Estimate, influences_of, judged, ratio_of
from opwatch.compare.student import threshold
from opwatch.frozen import frozen, replace
from opwatch.report.jumps import is_gradual, jumps_of
from opwatch.report.loads import LoadChange
from opwatch.report.pauses import QUIET, pauses_of, quiet_places

# Of courses that do not change, this part at most may have a change named, for each of its places.
CHANCE = 1e-4
# What changes by less is no step; what falls to less than this part of it is a cliff.
LEAST_STEP, CLIFF = 1.25, 0.5
# Halves of a level that may differ by more are not at rest, or nobody knows.
STEADY = 0.1
STEADY_CHANCE = 0.05
# What changes more often has no levels, but ups and downs.
MOST_STEPS = 4
_MOST_PARTS = 16
# A cut has to explain so many times what the noise of one interval is.
_LEAST_GAIN = 5.0
_LEAST_NOISE = 0.01
_MAD = 1.4826
# Intervals without requests are rare up to this share.
_MOST_RARE = 0.1
# A difference of levels so many times the sudden change is mostly a gradual one.
_MOSTLY = 1.5


@frozen
class LevelSeries:
    """A figure interval by interval, each a ratio: requests over seconds, or bytes over bytes. A level has at
    least so many intervals."""

    over: Sequence[float]
    under: Sequence[float]
    begins_ns: Sequence[int]
    ends_ns: Sequence[int]
    least: int = LEAST_INTERVALS

    def __len__(self) -> int:
        return len(self.over)

    def part(self, begin: int, end: int) -> LevelSeries:
        cut = slice(begin, end)
        return replace(
            self,
            over=self.over[cut],
            under=self.under[cut],
            begins_ns=self.begins_ns[cut],
            ends_ns=self.ends_ns[cut],
        )

    def without(self, pauses: Sequence[tuple[int, int]]) -> LevelSeries:
        """The same intervals without those of the pauses."""
        if not pauses:
            return self
        edges = [0, *(edge for pause in pauses for edge in pause), len(self)]
        parts = [self.part(begin, end) for begin, end in zip(edges[::2], edges[1::2], strict=True)]
        return replace(
            self,
            over=[value for part in parts for value in part.over],
            under=[value for part in parts for value in part.under],
            begins_ns=[at for part in parts for at in part.begins_ns],
            ends_ns=[at for part in parts for at in part.ends_ns],
        )

    @property
    def values(self) -> list[float]:
        return [above / below for above, below in zip(self.over, self.under, strict=True)]

    def estimate(self) -> Estimate:
        """The level of all of it, with its scatter."""
        value = sum(self.over) / sum(self.under)
        figure = ratio_of(self.over, self.under)
        influences = influences_of(self.over, self.under)
        return judged(value, (value, value), figure, influences, least=self.least, least_worth=0.0)


@frozen
class Level:
    """A part of a course with a level of its own: its mean, and between which values nine of ten intervals
    lie."""

    begin_ns: int
    end_ns: int
    intervals: int
    value: float
    usual_low: float
    usual_high: float
    place: int


@frozen
class Step:
    """A level that gives way to another: `difference` is of the later one to the earlier. `is_beyond`: what
    came after has no level of its own, but all of it lies beyond all that was before. `is_gradual`: a line
    describes the change better than a step does. `is_on_trend`: a sudden change of a course that also changes
    slowly; its levels are the intervals next to it. `load`: what of the load changed with it, None if that is
    not known."""

    at_ns: int
    before: Level
    after: Level
    difference: Difference
    is_beyond: bool = False
    is_gradual: bool = False
    is_on_trend: bool = False
    load: tuple[LoadChange, ...] | None = None

    @property
    def is_cliff(self) -> bool:
        ratio = self.difference.ratio
        return ratio is not None and ratio <= CLIFF and not self.is_beyond and not self.is_gradual


@frozen
class Pause:
    """Intervals in which nearly nothing completed, and far more of them in a row than the load explains.
    `in_flight`: how many requests were in flight at the end of each of them, the fewest and the most; None if
    that is not known, or if other operations went on. `is_last`: it lasts to the end."""

    begin_ns: int
    end_ns: int
    intervals: int
    is_last: bool = False
    in_flight: tuple[float, float] | None = None


@frozen
class Rest:
    """Whether a level stands still: the second half against the first. `is_steady` is None where it cannot be
    told, for the `reason`."""

    level: Level
    is_steady: bool | None
    low: float | None
    high: float | None
    reason: str | None = None


@frozen
class Levels:
    """All levels of a course, the steps between them, and whether the last is at rest. `reason` is why
    no levels were found. `pauses` are no part of the levels."""

    levels: tuple[Level, ...] = ()
    steps: tuple[Step, ...] = ()
    rest: Rest | None = None
    reason: str | None = None
    pauses: tuple[Pause, ...] = ()


def levels_of(series: LevelSeries) -> Levels:
    """What a course consists of. Levels and steps are those of the intervals outside of pauses."""
    pauses = pauses_of(series.values, series.least) if sum(series.over) else []
    active = series.without(pauses)
    return replace(_active_levels(active), pauses=tuple(_pause(series, *pause) for pause in pauses))


def _active_levels(series: LevelSeries) -> Levels:
    if len(series) < 2 * series.least:
        return Levels(reason=f"{len(series)} intervals are too few, {2 * series.least} are needed")
    if not sum(series.over):
        return Levels(reason="there was none of it")
    logs = _logs(series)
    jumps = _cuts(logs, series.least)
    cuts = _joined(series, jumps)
    if len(cuts) > MOST_STEPS:
        reason = f"it goes up and down: {len(cuts)} changes of level are no steps any more"
        return Levels(steps=tuple(_sudden(series, logs)), reason=reason)
    left_at = None if cuts else _left_at(series.values, series.least)
    edges = [0, *cuts, len(series)] if left_at is None else [0, left_at, len(series)]
    parts = [series.part(begin, end) for begin, end in pairwise(edges)]
    levels = [_level(part, place) for part, place in zip(parts, edges, strict=False)]
    changes = [_difference(before, part) for before, part in pairwise(parts)]
    if left_at is not None:
        changes = [_beyond(*parts)]
    steps = [
        Step(other.begin_ns, one, other, change, left_at is not None, is_gradual(logs, at, begin, end))
        for change, (one, other), (begin, at, end) in zip(
            changes, pairwise(levels), _triples(edges), strict=True
        )
    ]
    if jumps:
        steps = _with_sudden(series, steps, _sudden(series, logs))
    return Levels(tuple(levels), tuple(steps), _rest(parts[-1], levels[-1]))


def _triples(edges: Sequence[int]) -> list[tuple[int, int, int]]:
    return list(zip(edges, edges[1:], edges[2:], strict=False))


def _sudden(series: LevelSeries, logs: Sequence[float]) -> Iterator[Step]:
    """The sudden changes of a course that also changes slowly, each between the intervals next to it."""
    for at, size, usual in jumps_of(logs, math.log(LEAST_STEP)):
        near = series.least
        before = _level(series.part(max(at - near, 0), at), max(at - near, 0))
        after = _level(series.part(at, min(at + near, len(series))), at)
        error = threshold(CHANCE, len(logs)) * max(usual, _LEAST_NOISE)
        statement = Statement.HIGHER if size > 0 else Statement.LOWER
        change = Difference(statement, math.exp(size), math.exp(size - error), math.exp(size + error))
        yield Step(after.begin_ns, before, after, change, is_on_trend=True)


def _with_sudden(series: LevelSeries, steps: Sequence[Step], sudden: Iterable[Step]) -> list[Step]:
    """The steps, with the sudden ones instead of those close to them that are gradual or mostly so."""
    for jump in sudden:
        near = [step for step in steps if abs(step.after.place - jump.after.place) <= series.least]
        if all(step.is_gradual or _is_mostly_gradual(step, jump) for step in near):
            steps = [*(step for step in steps if step not in near), jump]
    return sorted(steps, key=lambda step: step.at_ns)


def _is_mostly_gradual(step: Step, jump: Step) -> bool:
    """Whether the means of two levels differ by far more than what changed at once."""
    whole, at_once = step.difference.ratio, jump.difference
    if not whole or not at_once.low or not at_once.high:
        return False
    is_beyond = not at_once.low <= whole <= at_once.high
    return is_beyond and abs(math.log(whole)) > _MOSTLY * abs(math.log(at_once.ratio or 1.0))


def _pause(series: LevelSeries, begin: int, end: int) -> Pause:
    part = series.part(begin, end)
    return Pause(part.begins_ns[0], part.ends_ns[-1], end - begin, is_last=end == len(series))


def _left_at(values: Sequence[float], fewest: int) -> int | None:
    """The first place from which on every value lies beyond every one before, by what a step takes."""
    lows = list(accumulate(reversed(values), min))[::-1]
    highs = list(accumulate(reversed(values), max))[::-1]
    least = most = values[0]
    for at, value in enumerate(values[: len(values) - fewest + 1]):
        if at >= fewest and (lows[at] > LEAST_STEP * most or highs[at] * LEAST_STEP < least):
            return at
        least, most = min(least, value), max(most, value)
    return None


def _beyond(before: LevelSeries, after: LevelSeries) -> Difference:
    """How far all of one part lies beyond all of another: between which ratios of single intervals."""
    first, other = before.values, after.values
    ratio = (sum(after.over) / sum(after.under)) / (sum(before.over) / sum(before.under))
    low = min(other) / max(first)
    high = max(other) / min(first) if min(first) > 0 else math.inf
    return Difference(Statement.HIGHER if ratio > 1 else Statement.LOWER, ratio, low, high)


def _level(part: LevelSeries, place: int) -> Level:
    ordered = sorted(part.values)
    low, high = (ordered[round(share * (len(ordered) - 1))] for share in (0.05, 0.95))
    value = sum(part.over) / sum(part.under)
    return Level(
        begin_ns=part.begins_ns[0],
        end_ns=part.ends_ns[-1],
        intervals=len(part),
        value=value,
        usual_low=low,
        usual_high=high,
        place=place,
    )


def _logs(series: LevelSeries) -> list[float]:
    """Logarithms, in which nothing is less than a hundredth of the usual value. Rare intervals without
    requests get the value before them: next to a change they would move it, being further from both
    levels than these are from each other."""
    values = series.values
    usual = median(value for value in values if value > 0)
    quiet = quiet_places(values)
    if sum(quiet) <= _MOST_RARE * len(quiet):
        active = [place for place, is_quiet in enumerate(quiet) if not is_quiet]
        values = [values[active[max(bisect_right(active, place) - 1, 0)]] for place in range(len(values))]
    return [math.log(max(value, QUIET * usual)) for value in values]


def _noise(logs: Sequence[float]) -> float:
    """The variance of an interval, by how much neighbours differ: steps hardly matter to that."""
    off = sorted(abs(one - other) for one, other in pairwise(logs))
    return max(_MAD * median(off) / math.sqrt(2), _LEAST_NOISE) ** 2


def _cuts(logs: Sequence[float], fewest: int) -> list[int]:
    """Where a course jumps, the largest jumps first until they are no more than noise."""
    least = _LEAST_GAIN * _noise(logs) * math.log(len(logs))
    sums = [0.0, *accumulate(logs)]
    edges = [0, len(logs)]
    while len(edges) <= _MOST_PARTS:
        best = max(
            (_best_cut(sums, begin, end, fewest) for begin, end in pairwise(edges)),
            default=(0.0, 0),
        )
        if best[0] <= least:
            break
        edges = sorted((*edges, best[1]))
    return edges[1:-1]


def _best_cut(sums: Sequence[float], begin: int, end: int, fewest: int) -> tuple[float, int]:
    """(by how much less the squares are, where) of the best cut of a part."""
    best = 0.0, begin
    for at in range(begin + fewest, end - fewest + 1):
        left, right = at - begin, end - at
        jump = (sums[at] - sums[begin]) / left - (sums[end] - sums[at]) / right
        best = max(best, (jump * jump * left * right / (left + right), at))
    return best


def _difference(one: LevelSeries, other: LevelSeries) -> Difference:
    return difference(one.estimate(), other.estimate(), CHANCE)


def _sureness(change: Difference) -> float:
    """How far a change is beyond what is a step; negative where it is none."""
    if not change.is_real or not change.ratio:
        # A step from nothing, or to nothing, has no logarithm, and leaves no doubt.
        return math.inf if change.is_real else -1.0
    return abs(math.log(change.ratio)) - math.log(LEAST_STEP)


def _joined(series: LevelSeries, cuts: list[int]) -> list[int]:
    """The cuts that are steps. The least sure is taken back first, for that changes what its neighbours are
    held against."""
    while cuts:
        edges = [0, *cuts, len(series)]
        parts = [series.part(begin, end) for begin, end in pairwise(edges)]
        sure = [_sureness(_difference(one, other)) for one, other in pairwise(parts)]
        least = min(range(len(sure)), key=sure.__getitem__)
        if sure[least] >= 0:
            return cuts
        cuts = [cut for place, cut in enumerate(cuts) if place != least]
    return cuts


def _rest(part: LevelSeries, level: Level) -> Rest:
    if len(part) < 2 * part.least:
        reason = f"its last level has {len(part)} intervals, {2 * part.least} are needed"
        return Rest(level, None, None, None, reason)
    middle = len(part) // 2
    change = difference(
        part.part(0, middle).estimate(), part.part(middle, len(part)).estimate(), STEADY_CHANCE
    )
    low, high = change.low, change.high
    if low is None or high is None:
        return Rest(level, None, None, None, change.reason)
    if low >= 1 - STEADY and high <= 1 + STEADY:
        return Rest(level, True, low, high)
    if high < 1 - STEADY or low > 1 + STEADY:
        return Rest(level, False, low, high)
    return Rest(level, None, low, high, "its halves may differ by more than that, or not")
