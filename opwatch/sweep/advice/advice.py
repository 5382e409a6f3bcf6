"""The answer of a sweep: the smallest level that meets the targets, the knee, and what more buys. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from opwatch.sweep.advice.between import LevelBetween, find_between, fit_drive
from opwatch.sweep.advice.targets import (
    DAY_S,
    SweepTargets,
    TargetCheck,
    TargetKind,
    TargetVerdict,
    check_level,
    estimate_years,
    merge_verdicts,
    require_compatible,
)
from opwatch.sweep.outcome import LevelOutcome
from opwatch.sweep.ranges import ValueRange, divide_by
from opwatch.sweep.result import SweepResult
from opwatch.sweep.returns import YEAR_S, LevelGain, StepWorth, find_min_write_rate, sort_levels

# The usual warranty, for which data sheets rate drive writes per day.
WARRANTY_YEARS = 5.0
_NO_AMPLIFICATION = 1.02


class AdviceKind(StrEnum):
    NO_TARGETS = "no targets"
    LEVEL = "level"  # a measured level meets all targets
    NONE = "none"  # every level misses a target
    UNDECIDED = "undecided"  # no level meets all targets for certain, and some may


@dataclass(frozen=True, slots=True)
class LevelAdvice:
    """A level with the checks of its targets and its life.

    `tbw_bytes` is what the host may write until the NAND endurance is used up, `dwpd` the drive writes per
    day of the bytes in use over the warranty, and `years` the life at the daily amount, or at the lowest rate
    of the sweep if none was given. All three are None without endurance or WAF.
    """

    outcome: LevelOutcome
    checks: tuple[TargetCheck, ...]
    tbw_bytes: ValueRange | None
    dwpd: ValueRange | None
    years: ValueRange | None

    @property
    def label(self) -> str:
        return self.outcome.level.label

    @property
    def verdict(self) -> TargetVerdict:
        return merge_verdicts(self.checks)

    @property
    def is_usable(self) -> bool:
        """Return whether any figure of the level describes the drive."""
        return self.outcome.find_waf() is not None or self.outcome.find_iops() is not None


@dataclass(frozen=True, slots=True)
class SweepAdvice:
    """The answer.

    `levels` are in the order of increasing over-provisioning. `chosen` is the smallest measured level that
    meets all targets that could be judged, `between` a smaller one that does so by the model, and `nearest`
    the level that misses them by least. `unjudged` are targets that no level could be checked for.
    """

    kind: AdviceKind
    targets: SweepTargets
    levels: tuple[LevelAdvice, ...]
    steps: tuple[LevelGain, ...]
    chosen: LevelAdvice | None = None
    between: LevelBetween | None = None
    nearest: LevelAdvice | None = None
    unjudged: tuple[TargetCheck, ...] = ()
    has_amplification: bool = True

    @property
    def knee(self) -> LevelOutcome | None:
        """Return the last level whose step pays, or the first level if no step does.

        None if that is unknown, because a later step could not be judged.
        """
        places = [place for place, step in enumerate(self.steps) if step.worth is StepWorth.PAYS]
        behind = self.steps[places[-1] + 1 :] if places else self.steps
        if not self.steps or any(step.worth is StepWorth.UNKNOWN for step in behind):
            return None
        return self.steps[places[-1]].end if places else self.steps[0].begin

    @property
    def next_step(self) -> LevelGain | None:
        """Return the step after the chosen level or the knee, or None if there is none."""
        here = self.chosen.outcome if self.chosen else self.knee
        return next((step for step in self.steps if here and step.begin.level == here.level), None)

    @property
    def worthless_from(self) -> LevelOutcome | None:
        """Return the level beyond which no step gains 2 %, or None if a later step gains something."""
        place = len(self.steps)
        while place and self.steps[place - 1].worth is StepWorth.NOTHING:
            place -= 1
        return self.steps[place].begin if place < len(self.steps) else None

    def find_years_gained(self, step: LevelGain) -> float | None:
        """Return the life that a step gains, at the rate at which the lives of all levels are given."""
        lives = {one.outcome.level.usable_bytes: one.years for one in self.levels}
        begin, end = (lives.get(one.level.usable_bytes) for one in (step.begin, step.end))
        return end.value - begin.value if begin and end else None

    @property
    def undecided(self) -> tuple[LevelAdvice, ...]:
        """Return the smaller levels that may meet the targets."""
        found = []
        for one in self.levels:
            if self.chosen and one.outcome.level == self.chosen.outcome.level:
                break
            if one.verdict in (TargetVerdict.UNDECIDED, TargetVerdict.UNKNOWN) and self.kind in (
                AdviceKind.LEVEL,
                AdviceKind.UNDECIDED,
            ):
                found.append(one)
        return tuple(found)


def advise(result: SweepResult, targets: SweepTargets) -> SweepAdvice:
    """Return the answer. Raise UsageError if the targets contradict each other."""
    targets.require_sound()
    require_compatible(targets, result.outcomes)
    rate = find_min_write_rate(result.outcomes)
    levels = tuple(_describe_level(result, targets, one, rate) for one in sort_levels(result.outcomes))
    advice = SweepAdvice(
        AdviceKind.NO_TARGETS,
        targets,
        levels,
        result.compute_gains(),
        has_amplification=_has_amplification(result),
    )
    return advice if targets.is_empty else _choose_level(result, advice)


def _describe_level(
    result: SweepResult, targets: SweepTargets, outcome: LevelOutcome, rate: float | None
) -> LevelAdvice:
    endurance, waf = result.endurance_bytes, outcome.find_waf()
    tbw = None if endurance is None else divide_by(endurance, waf)
    warranty_s = (targets.life_years or WARRANTY_YEARS) * YEAR_S
    daily = targets.daily_bytes or (rate and round(rate * DAY_S)) or None
    scale = outcome.level.usable_bytes * warranty_s / DAY_S
    return LevelAdvice(
        outcome=outcome,
        checks=tuple(check_level(targets, outcome, endurance, result.endurance_reason)),
        tbw_bytes=tbw,
        dwpd=tbw and ValueRange(tbw.value / scale, tbw.error / scale),
        years=estimate_years(SweepTargets(daily_bytes=daily), waf, endurance),
    )


def _choose_level(result: SweepResult, advice: SweepAdvice) -> SweepAdvice:
    unjudged = _find_unjudged(advice.levels)
    kinds = {check.kind for check in unjudged}
    rest = [(one, [check for check in one.checks if check.kind not in kinds]) for one in advice.levels]
    is_judged = any(checks for _, checks in rest)
    verdicts = [merge_verdicts(checks) if checks else TargetVerdict.UNKNOWN for _, checks in rest]
    place = verdicts.index(TargetVerdict.MET) if is_judged and TargetVerdict.MET in verdicts else None
    chosen = None if place is None else advice.levels[place]
    judged = [one for one in advice.levels[:place] if one.verdict is not TargetVerdict.UNKNOWN]
    between = None
    if chosen and judged and not unjudged:
        ends, checks = (judged[-1].outcome, chosen.outcome), (judged[-1].checks, chosen.checks)
        between = find_between(fit_drive(result), advice.targets, result.endurance_bytes, ends, checks)
    if chosen:
        kind = AdviceKind.UNDECIDED if unjudged else AdviceKind.LEVEL
    else:
        is_missed = bool(verdicts) and all(verdict is TargetVerdict.MISSED for verdict in verdicts)
        kind = AdviceKind.NONE if is_missed else AdviceKind.UNDECIDED
    return replace(
        advice,
        kind=kind,
        chosen=chosen,
        between=between,
        nearest=None if chosen else _find_nearest(advice.levels),
        unjudged=unjudged,
    )


def _find_unjudged(levels: Sequence[LevelAdvice]) -> tuple[TargetCheck, ...]:
    """Return a check of each target that is unknown at every level."""
    by_kind: dict[TargetKind, list[TargetCheck]] = {}
    for level in levels:
        for check in level.checks:
            by_kind.setdefault(check.kind, []).append(check)
    return tuple(
        checks[0]
        for checks in by_kind.values()
        if all(check.verdict is TargetVerdict.UNKNOWN for check in checks)
    )


def _find_nearest(levels: Sequence[LevelAdvice]) -> LevelAdvice | None:
    """Return the level whose worst miss is the smallest, or None without a level that misses a target."""
    missing = [one for one in levels if one.verdict is TargetVerdict.MISSED]
    return min(missing, key=lambda one: max(check.shortfall for check in one.checks), default=None)


def _has_amplification(result: SweepResult) -> bool:
    """Return False if no level amplifies, errors included."""
    wafs = [one.find_waf() for one in result.outcomes]
    return not wafs or any(waf is None or waf.high > _NO_AMPLIFICATION for waf in wafs)
