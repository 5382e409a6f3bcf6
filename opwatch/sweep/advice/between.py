"""Figures between the measured levels, from the collector model that fits them. Pure.

The model predicts WAF. IOPS follow from two times: a command's, from the fastest level, and a page program's.
Both are used only if they reproduce every measured level. Tail latencies have no model: between two levels
they are known only if both levels meet the target.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from opwatch.sweep.advice.targets import (
    DAY_S,
    SweepTargets,
    TargetCheck,
    TargetKind,
    TargetVerdict,
    compute_io_bytes,
    estimate_years,
    judge_value,
    merge_verdicts,
)
from opwatch.sweep.band import SpareFit
from opwatch.sweep.outcome import LevelOutcome
from opwatch.sweep.ranges import ValueRange
from opwatch.sweep.result import SweepResult

# A model is used if it misses no level by more than this, or by more than the level's own error.
_MAX_MISS = 0.02
# Three levels leave at least one to check two fitted constants.
_MIN_LEVELS = 3
# Levels are suggested in steps of 0.1 %, and only if they save this share of the capacity.
_STEP, _MIN_SAVING = 0.001, 0.005


@dataclass(frozen=True, slots=True)
class LevelBetween:
    """A level that was not measured, with the predicted checks of its targets."""

    used_bytes: int
    of_used_ratio: float
    of_whole_ratio: float
    checks: tuple[TargetCheck, ...]


@dataclass(frozen=True, slots=True)
class FittedDrive:
    """WAF and IOPS as functions of the bytes in use.

    The error ratios are the largest miss at a measured level plus that level's error. `page_ns` is None if no
    two times reproduce the IOPS.
    """

    fit: SpareFit
    waf_error_ratio: float
    command_ns: float
    page_ns: float | None
    iops_error_ratio: float

    def predict_waf(self, used_bytes: float) -> ValueRange:
        waf = self.fit.model.waf(self.fit.flash_bytes / used_bytes)
        return ValueRange(waf, waf * self.waf_error_ratio)

    def predict_iops(self, used_bytes: float) -> ValueRange | None:
        """Return the IOPS, or None if they cannot be predicted."""
        if self.page_ns is None:
            return None
        iops = 1e9 / max(self.command_ns, self.page_ns * self.predict_waf(used_bytes).value)
        return ValueRange(iops, iops * self.iops_error_ratio)


def fit_drive(result: SweepResult) -> FittedDrive | None:
    """Return the model of the measured drive, or None if no model reproduces every level."""
    fit = result.fit_levels()
    levels = [one for one in result.outcomes if one.find_waf() and not one.level.files]
    if fit is None or len(levels) < _MIN_LEVELS:
        return None
    pairs = [(_known(one.find_waf()), result.predict_waf(one, fit) or 0.0) for one in levels]
    error = _find_error(pairs)
    if error is None:
        return None
    command_ns, page_ns, iops_error = _fit_times(levels, fit)
    return FittedDrive(fit, error, command_ns, page_ns, iops_error)


def _fit_times(levels: Sequence[LevelOutcome], fit: SpareFit) -> tuple[float, float | None, float]:
    """Return (a command's time, a page program's time or None, the error of IOPS)."""
    timed = [
        (_known(iops), fit.model.waf(fit.flash_bytes / one.level.active_bytes))
        for one in levels
        if (iops := one.find_iops()) and not one.figures.is_host_bound
    ]
    if len(timed) < _MIN_LEVELS:
        return 0.0, None, 0.0
    command_ns = 1e9 / max(iops.value for iops, _ in timed)
    # The levels that the flash limits have the same time per programmed page.
    slowest = min(timed, key=lambda pair: pair[0].value)
    page_ns = 1e9 / (slowest[0].value * slowest[1])
    error = _find_error([(iops, 1e9 / max(command_ns, page_ns * waf)) for iops, waf in timed])
    return command_ns, None if error is None else page_ns, error or 0.0


def _find_error(pairs: Sequence[tuple[ValueRange, float]]) -> float | None:
    """Return the relative error of a prediction, or None if it misses a level."""
    misses = [(abs(predicted / measured.value - 1), measured.error_ratio) for measured, predicted in pairs]
    if any(miss > max(_MAX_MISS, error) for miss, error in misses):
        return None
    return max(miss + error for miss, error in misses)


def _known(value: ValueRange | None) -> ValueRange:
    assert value is not None
    return value


def find_between(
    drive: FittedDrive | None,
    targets: SweepTargets,
    endurance: int | None,
    ends: tuple[LevelOutcome, LevelOutcome],
    checks: tuple[Sequence[TargetCheck], Sequence[TargetCheck]],
) -> LevelBetween | None:
    """Return the smallest level between two measured ones that meets all targets by the model.

    `ends` are the larger level in use, which misses a target, and the smaller one, which meets all. None if
    the model does not cover a target, or if the smaller level is as good.
    """
    below, above = (one.level for one in ends)
    if drive is None or below.files or above.files:
        return None
    capacity = above.scale.capacity_bytes

    def check(ratio: float) -> list[TargetCheck]:
        return list(_check_between(drive, targets, endurance, capacity / (1 + ratio), ends, checks))

    first, last = math.ceil(below.of_used_ratio / _STEP), math.floor(above.of_used_ratio / _STEP)
    if last <= first or merge_verdicts(check(last * _STEP)) is not TargetVerdict.MET:
        return None
    while last - first > 1:
        middle = (first + last) // 2
        if merge_verdicts(check(middle * _STEP)) is TargetVerdict.MET:
            last = middle
        else:
            first = middle
    used = int(capacity / (1 + last * _STEP))
    if used - above.usable_bytes < _MIN_SAVING * capacity:
        return None
    return LevelBetween(used, last * _STEP, 1 - used / capacity, tuple(check(last * _STEP)))


def _check_between(
    drive: FittedDrive,
    targets: SweepTargets,
    endurance: int | None,
    used_bytes: float,
    ends: tuple[LevelOutcome, LevelOutcome],
    checks: tuple[Sequence[TargetCheck], Sequence[TargetCheck]],
) -> Iterator[TargetCheck]:
    """Yield the predicted checks of all targets that were judged at the ends."""
    iops, lows = drive.predict_iops(used_bytes), {check.kind: check for check in checks[0]}
    for high in checks[1]:
        low, value = lows.get(high.kind), None
        if high.kind is TargetKind.LIFE:
            value = estimate_years(targets, drive.predict_waf(used_bytes), endurance)
        elif high.kind is TargetKind.IOPS:
            value = iops
        elif high.kind is TargetKind.DAILY and iops:
            day = (compute_io_bytes(ends[1]) or 0.0) * DAY_S
            value = ValueRange(iops.value * day, iops.error * day)
        if value is None and low and low.verdict is high.verdict is TargetVerdict.MET:
            yield high
        else:
            yield judge_value(high.kind, high.wanted, value, "no model predicts it between levels")
