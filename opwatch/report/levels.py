"""Find lasting changes of level in a timeline, and check whether the last level is steady. Pure.

The timeline is first cut at the largest jumps of its logarithm, rather too often than too rarely.
Neighbouring parts are then joined until each pair differs by more than LEAST_STEP (1.25) and by more than
chance. The test is the comparison of two recordings, which accounts for autocorrelation.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from statistics import median

from opwatch.compare.differences import Difference, Statement, difference
from opwatch.compare.estimates import LEAST_INTERVALS, Estimate, influences_of, judged, ratio_of
from opwatch.compare.student import threshold
from opwatch.report.jumps import is_gradual, jumps_of
from opwatch.report.loads import LoadChange
from opwatch.report.pauses import QUIET, quiet_places

# Maximum probability, per place, of naming a change in an unchanged timeline.
CHANCE = 1e-4
# A smaller ratio is not a step; a drop below this share of the previous level is a cliff.
LEAST_STEP, CLIFF = 1.25, 0.5
# A level is steady if its halves differ by less than this; otherwise unsteady or undetermined.
STEADY = 0.1
STEADY_CHANCE = 0.05
# A timeline with more changes fluctuates and has no levels.
MOST_STEPS = 4
_MOST_PARTS = 16
# A cut must explain this many times the noise variance of one interval.
_LEAST_GAIN = 5.0
_LEAST_NOISE = 0.01
_MAD = 1.4826
# Intervals without requests count as rare up to this share.
_MOST_RARE = 0.1
# If the levels differ by this many times the sudden change, most of the difference is gradual.
_MOSTLY = 1.5


@dataclass(frozen=True, slots=True)
class LevelSeries:
    """A metric per interval as a ratio: requests over seconds, or bytes over bytes.

    `least` is the minimum number of intervals of a level.
    """

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

    @property
    def values(self) -> list[float]:
        return [above / below for above, below in zip(self.over, self.under, strict=True)]

    def estimate(self) -> Estimate:
        """Return the ratio of the whole series with its error."""
        value = sum(self.over) / sum(self.under)
        figure = ratio_of(self.over, self.under)
        influences = influences_of(self.over, self.under)
        return judged(value, (value, value), figure, influences, least=self.least, least_worth=0.0)


@dataclass(frozen=True, slots=True)
class Level:
    """A part of a timeline with a constant level: the mean, and the range that contains 90 % of the
    intervals."""

    begin_ns: int
    end_ns: int
    intervals: int
    value: float
    usual_low: float
    usual_high: float
    place: int


@dataclass(frozen=True, slots=True)
class Step:
    """A transition from one level to the next; `difference` compares the later level with the earlier.

    `is_beyond`: the part after the step has no level, but all its values lie outside the range before the
    step. `is_gradual`: a straight line fits the change better than a step. `is_on_trend`: a sudden change on
    a drifting timeline; the levels are the intervals next to the step. `load`: load changes at the step, None
    if unknown.
    """

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


@dataclass(frozen=True, slots=True)
class Pause:
    """A run of intervals with almost no completions, far longer than the load explains.

    `in_flight`: minimum and maximum number of requests in flight at the ends of the intervals, None if
    unknown or if other operations continued. `is_last`: the pause lasts to the end of the run.
    """

    begin_ns: int
    end_ns: int
    intervals: int
    is_last: bool = False
    in_flight: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class Rest:
    """Whether a level is steady, from comparing its second half with the first.

    `is_steady` is None if undetermined, with a `reason`.
    """

    level: Level
    is_steady: bool | None
    low: float | None
    high: float | None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Levels:
    """The levels of a timeline, the steps between the levels, and the steadiness of the last level.

    `reason` explains why no levels were found. `pauses` of a rate are excluded from the levels.
    """

    levels: tuple[Level, ...] = ()
    steps: tuple[Step, ...] = ()
    rest: Rest | None = None
    reason: str | None = None
    pauses: tuple[Pause, ...] = ()


def levels_of(series: LevelSeries) -> Levels:
    """Split a timeline without pauses into levels and steps."""
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
    """Yield the sudden changes of a drifting timeline, each measured between the adjacent intervals."""
    for at, size, usual in jumps_of(logs, math.log(LEAST_STEP)):
        near = series.least
        before = _level(series.part(max(at - near, 0), at), max(at - near, 0))
        after = _level(series.part(at, min(at + near, len(series))), at)
        error = threshold(CHANCE, len(logs)) * max(usual, _LEAST_NOISE)
        statement = Statement.HIGHER if size > 0 else Statement.LOWER
        change = Difference(statement, math.exp(size), math.exp(size - error), math.exp(size + error))
        yield Step(after.begin_ns, before, after, change, is_on_trend=True)


def _with_sudden(series: LevelSeries, steps: Sequence[Step], sudden: Iterable[Step]) -> list[Step]:
    """Return the steps; a sudden change replaces nearby steps if all of them are mostly gradual."""
    for jump in sudden:
        near = [step for step in steps if abs(step.after.place - jump.after.place) <= series.least]
        if all(step.is_gradual or _is_mostly_gradual(step, jump) for step in near):
            steps = [*(step for step in steps if step not in near), jump]
    return sorted(steps, key=lambda step: step.at_ns)


def _is_mostly_gradual(step: Step, jump: Step) -> bool:
    """Return whether the two level means differ by far more than the sudden change."""
    whole, at_once = step.difference.ratio, jump.difference
    if not whole or not at_once.low or not at_once.high:
        return False
    is_beyond = not at_once.low <= whole <= at_once.high
    return is_beyond and abs(math.log(whole)) > _MOSTLY * abs(math.log(at_once.ratio or 1.0))


def _left_at(values: Sequence[float], fewest: int) -> int | None:
    """Return the first place after which every value exceeds, or falls below, every earlier value by
    LEAST_STEP."""
    lows = list(accumulate(reversed(values), min))[::-1]
    highs = list(accumulate(reversed(values), max))[::-1]
    least = most = values[0]
    for at, value in enumerate(values[: len(values) - fewest + 1]):
        if at >= fewest and (lows[at] > LEAST_STEP * most or highs[at] * LEAST_STEP < least):
            return at
        least, most = min(least, value), max(most, value)
    return None


def _beyond(before: LevelSeries, after: LevelSeries) -> Difference:
    """Compare two disjoint parts; the bounds are the extreme ratios of single intervals."""
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
    """Return logarithms, with values clamped at 1 % of the median.

    Rare intervals without requests take the previous value. Next to a change they would shift its position,
    because an empty interval is further from both levels than the levels are from each other.
    """
    values = series.values
    usual = median(value for value in values if value > 0)
    quiet = quiet_places(values)
    if sum(quiet) <= _MOST_RARE * len(quiet):
        active = [place for place, is_quiet in enumerate(quiet) if not is_quiet]
        values = [values[active[max(bisect_right(active, place) - 1, 0)]] for place in range(len(values))]
    return [math.log(max(value, QUIET * usual)) for value in values]


def _noise(logs: Sequence[float]) -> float:
    """Estimate the variance of an interval from differences of neighbours, which steps barely affect."""
    off = sorted(abs(one - other) for one, other in pairwise(logs))
    return max(_MAD * median(off) / math.sqrt(2), _LEAST_NOISE) ** 2


def _cuts(logs: Sequence[float], fewest: int) -> list[int]:
    """Return the places of jumps, found largest first until the gain is within the noise."""
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
    """Return (reduction of the sum of squares, place) of the best cut of a part."""
    best = 0.0, begin
    for at in range(begin + fewest, end - fewest + 1):
        left, right = at - begin, end - at
        jump = (sums[at] - sums[begin]) / left - (sums[end] - sums[at]) / right
        best = max(best, (jump * jump * left * right / (left + right), at))
    return best


def _difference(one: LevelSeries, other: LevelSeries) -> Difference:
    return difference(one.estimate(), other.estimate(), CHANCE)


def _sureness(change: Difference) -> float:
    """Return the log margin by which a change exceeds the smallest step; negative if there is no step."""
    if not change.is_real or not change.ratio:
        # A step from or to zero has no logarithm, but is certain.
        return math.inf if change.is_real else -1.0
    return abs(math.log(change.ratio)) - math.log(LEAST_STEP)


def _joined(series: LevelSeries, cuts: list[int]) -> list[int]:
    """Return the cuts that are steps.

    Removes the least certain cut first, because each removal changes the parts that the neighbouring cuts
    compare.
    """
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
    return Rest(level, None, low, high, "the intervals are too noisy")
