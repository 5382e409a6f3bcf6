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

from opwatch.compare.differences import Difference, Statement, compare_estimates
from opwatch.compare.estimates import (
    MIN_INTERVALS,
    Estimate,
    compute_influences,
    make_estimate,
    make_ratio_figure,
)
from opwatch.compare.student import find_critical_value
from opwatch.report.jumps import find_jumps, is_gradual
from opwatch.report.loads import LoadChange
from opwatch.report.pauses import QUIET, flag_quiet

# Maximum probability, per place, of naming a change in an unchanged timeline.
CHANCE = 1e-4
# A smaller ratio is not a step; a drop below this share of the previous level is a cliff.
MIN_STEP, CLIFF = 1.25, 0.5
# A level is steady if its halves differ by less than this; otherwise unsteady or undetermined.
STEADY = 0.1
STEADY_CHANCE = 0.05
# A timeline with more changes fluctuates and has no levels.
MAX_STEPS = 4
_MAX_PARTS = 16
# A cut must explain this many times the noise variance of one interval.
_MIN_GAIN = 5.0
_MIN_NOISE = 0.01
_MAD = 1.4826
# Intervals without requests count as rare up to this share.
_MAX_RARE_SHARE = 0.1
# If the levels differ by this many times the sudden change, most of the difference is gradual.
_MOSTLY_GRADUAL_RATIO = 1.5


@dataclass(frozen=True, slots=True)
class LevelSeries:
    """A metric per interval as a ratio: requests over seconds, or bytes over bytes.

    `least` is the minimum number of intervals of a level.
    """

    over: Sequence[float]
    under: Sequence[float]
    begins_ns: Sequence[int]
    ends_ns: Sequence[int]
    least: int = MIN_INTERVALS

    def __len__(self) -> int:
        return len(self.over)

    def select_part(self, begin: int, end: int) -> LevelSeries:
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

    def estimate_ratio(self) -> Estimate:
        """Return the ratio of the whole series with its error."""
        value = sum(self.over) / sum(self.under)
        figure = make_ratio_figure(self.over, self.under)
        influences = compute_influences(self.over, self.under)
        return make_estimate(value, (value, value), figure, influences, least=self.least, least_worth=0.0)


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
class Steadiness:
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
    rest: Steadiness | None = None
    reason: str | None = None
    pauses: tuple[Pause, ...] = ()


def find_levels(series: LevelSeries) -> Levels:
    """Split a timeline without pauses into levels and steps."""
    if len(series) < 2 * series.least:
        return Levels(reason=f"only {len(series)} intervals ({2 * series.least} needed)")
    if not sum(series.over):
        return Levels(reason="no activity")
    logs = _compute_logs(series)
    jumps = _find_cuts(logs, series.least)
    cuts = _keep_significant_cuts(series, jumps)
    if len(cuts) > MAX_STEPS:
        reason = f"the value varies continuously: {len(cuts)} level changes are too many to count as steps"
        return Levels(steps=tuple(_find_sudden_steps(series, logs)), reason=reason)
    left_at = None if cuts else _find_departure(series.values, series.least)
    edges = [0, *cuts, len(series)] if left_at is None else [0, left_at, len(series)]
    parts = [series.select_part(begin, end) for begin, end in pairwise(edges)]
    levels = [_make_level(part, place) for part, place in zip(parts, edges, strict=False)]
    changes = [_compare_parts(before, part) for before, part in pairwise(parts)]
    if left_at is not None:
        changes = [_compare_extremes(*parts)]
    steps = [
        Step(other.begin_ns, one, other, change, left_at is not None, is_gradual(logs, at, begin, end))
        for change, (one, other), (begin, at, end) in zip(
            changes, pairwise(levels), _list_triples(edges), strict=True
        )
    ]
    if jumps:
        steps = _replace_gradual_steps(series, steps, _find_sudden_steps(series, logs))
    return Levels(tuple(levels), tuple(steps), _assess_steadiness(parts[-1], levels[-1]))


def _list_triples(edges: Sequence[int]) -> list[tuple[int, int, int]]:
    return list(zip(edges, edges[1:], edges[2:], strict=False))


def _find_sudden_steps(series: LevelSeries, logs: Sequence[float]) -> Iterator[Step]:
    """Yield the sudden changes of a drifting timeline, each measured between the adjacent intervals."""
    for at, size, usual in find_jumps(logs, math.log(MIN_STEP)):
        near = series.least
        before = _make_level(series.select_part(max(at - near, 0), at), max(at - near, 0))
        after = _make_level(series.select_part(at, min(at + near, len(series))), at)
        error = find_critical_value(CHANCE, len(logs)) * max(usual, _MIN_NOISE)
        statement = Statement.HIGHER if size > 0 else Statement.LOWER
        change = Difference(statement, math.exp(size), math.exp(size - error), math.exp(size + error))
        yield Step(after.begin_ns, before, after, change, is_on_trend=True)


def _replace_gradual_steps(series: LevelSeries, steps: Sequence[Step], sudden: Iterable[Step]) -> list[Step]:
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
    return is_beyond and abs(math.log(whole)) > _MOSTLY_GRADUAL_RATIO * abs(math.log(at_once.ratio or 1.0))


def _find_departure(values: Sequence[float], fewest: int) -> int | None:
    """Return the first place after which every value exceeds, or falls below, every earlier value by
    LEAST_STEP."""
    lows = list(accumulate(reversed(values), min))[::-1]
    highs = list(accumulate(reversed(values), max))[::-1]
    least = most = values[0]
    for at, value in enumerate(values[: len(values) - fewest + 1]):
        if at >= fewest and (lows[at] > MIN_STEP * most or highs[at] * MIN_STEP < least):
            return at
        least, most = min(least, value), max(most, value)
    return None


def _compare_extremes(before: LevelSeries, after: LevelSeries) -> Difference:
    """Compare two disjoint parts; the bounds are the extreme ratios of single intervals."""
    first, other = before.values, after.values
    ratio = (sum(after.over) / sum(after.under)) / (sum(before.over) / sum(before.under))
    low = min(other) / max(first)
    high = max(other) / min(first) if min(first) > 0 else math.inf
    return Difference(Statement.HIGHER if ratio > 1 else Statement.LOWER, ratio, low, high)


def _make_level(part: LevelSeries, place: int) -> Level:
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


def _compute_logs(series: LevelSeries) -> list[float]:
    """Return logarithms, with values clamped at 1 % of the median.

    Rare intervals without requests take the previous value. Next to a change they would shift its position,
    because an empty interval is further from both levels than the levels are from each other.
    """
    values = series.values
    usual = median(value for value in values if value > 0)
    quiet = flag_quiet(values)
    if sum(quiet) <= _MAX_RARE_SHARE * len(quiet):
        active = [place for place, is_quiet in enumerate(quiet) if not is_quiet]
        values = [values[active[max(bisect_right(active, place) - 1, 0)]] for place in range(len(values))]
    return [math.log(max(value, QUIET * usual)) for value in values]


def _estimate_noise(logs: Sequence[float]) -> float:
    """Estimate the variance of an interval from differences of neighbours, which steps barely affect."""
    off = sorted(abs(one - other) for one, other in pairwise(logs))
    return max(_MAD * median(off) / math.sqrt(2), _MIN_NOISE) ** 2


def _find_cuts(logs: Sequence[float], fewest: int) -> list[int]:
    """Return the places of jumps, found largest first until the gain is within the noise."""
    least = _MIN_GAIN * _estimate_noise(logs) * math.log(len(logs))
    sums = [0.0, *accumulate(logs)]
    edges = [0, len(logs)]
    while len(edges) <= _MAX_PARTS:
        best = max(
            (_find_best_cut(sums, begin, end, fewest) for begin, end in pairwise(edges)),
            default=(0.0, 0),
        )
        if best[0] <= least:
            break
        edges = sorted((*edges, best[1]))
    return edges[1:-1]


def _find_best_cut(sums: Sequence[float], begin: int, end: int, fewest: int) -> tuple[float, int]:
    """Return (reduction of the sum of squares, place) of the best cut of a part."""
    best = 0.0, begin
    for at in range(begin + fewest, end - fewest + 1):
        left, right = at - begin, end - at
        jump = (sums[at] - sums[begin]) / left - (sums[end] - sums[at]) / right
        best = max(best, (jump * jump * left * right / (left + right), at))
    return best


def _compare_parts(one: LevelSeries, other: LevelSeries) -> Difference:
    return compare_estimates(one.estimate_ratio(), other.estimate_ratio(), CHANCE)


def _compute_margin(change: Difference) -> float:
    """Return the log margin by which a change exceeds the smallest step; negative if there is no step."""
    if not change.is_detected or not change.ratio:
        # A step from or to zero has no logarithm, but is certain.
        return math.inf if change.is_detected else -1.0
    return abs(math.log(change.ratio)) - math.log(MIN_STEP)


def _keep_significant_cuts(series: LevelSeries, cuts: list[int]) -> list[int]:
    """Return the cuts that are steps.

    Removes the least certain cut first, because each removal changes the parts that the neighbouring cuts
    compare.
    """
    while cuts:
        edges = [0, *cuts, len(series)]
        parts = [series.select_part(begin, end) for begin, end in pairwise(edges)]
        sure = [_compute_margin(_compare_parts(one, other)) for one, other in pairwise(parts)]
        least = min(range(len(sure)), key=sure.__getitem__)
        if sure[least] >= 0:
            return cuts
        cuts = [cut for place, cut in enumerate(cuts) if place != least]
    return cuts


def _assess_steadiness(part: LevelSeries, level: Level) -> Steadiness:
    if len(part) < 2 * part.least:
        reason = f"the last level has only {len(part)} intervals ({2 * part.least} needed)"
        return Steadiness(level, None, None, None, reason)
    middle = len(part) // 2
    change = compare_estimates(
        part.select_part(0, middle).estimate_ratio(),
        part.select_part(middle, len(part)).estimate_ratio(),
        STEADY_CHANCE,
    )
    low, high = change.low, change.high
    if low is None or high is None:
        return Steadiness(level, None, None, None, change.reason)
    if low >= 1 - STEADY and high <= 1 + STEADY:
        return Steadiness(level, True, low, high)
    if high < 1 - STEADY or low > 1 + STEADY:
        return Steadiness(level, False, low, high)
    return Steadiness(level, None, low, high, "the intervals are too noisy")
