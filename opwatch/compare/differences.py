"""Decide whether two estimates differ, and by how much. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum

from opwatch.compare.estimates import Estimate
from opwatch.compare.student import find_critical_value

# Maximum share of comparisons of equal runs that report a difference in any metric.
FAMILY_ERROR_RATE = 0.05
# No two runs start in the same state: the data on a drive and its placement differ for the whole run, and the
# variation within a run does not show that. This allowance, in the logarithm, covers the effect; a smaller
# difference is never real.
START_ALLOWANCE = 0.002


class Statement(StrEnum):
    """The verdict on a difference. NONE: no difference detected. UNKNOWN: cannot be judged, for a reason."""

    HIGHER = "higher"
    LOWER = "lower"
    NONE = "none"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Difference:
    """The ratio of a metric to the first run, within `low` and `high`.

    `ratio` is None if either run lacks the metric or the first is 0. `change` is in the unit of the metric.
    """

    statement: Statement
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    change: float | None = None
    reason: str | None = None

    @property
    def is_detected(self) -> bool:
        return self.statement in (Statement.HIGHER, Statement.LOWER)


def is_comparable(first: Estimate, other: Estimate) -> bool:
    """Return whether a difference between the two could be reported."""
    if first.value == 0 or other.value == 0:
        return first.has_scatter or other.has_scatter
    return first.has_scatter and other.has_scatter


def compare_estimates(first: Estimate, other: Estimate, chance: float) -> Difference:
    """Compare a metric with the first run. `chance` is the probability of reporting a difference between
    equal runs."""
    if first.value is None or other.value is None:
        return Difference(Statement.UNKNOWN, reason=first.reason or other.reason)
    change = other.value - first.value
    if not first.value or not other.value:
        return _compare_with_zero(first, other, change)
    ratio = other.value / first.value
    if first.scatter is None or other.scatter is None:
        reason = first.reason or other.reason
        return Difference(Statement.UNKNOWN, ratio, change=change, reason=reason)
    error = _compute_log_error(first, other, chance) + START_ALLOWANCE
    low = math.exp(math.log(other.low / first.high) - error) if other.low > 0 else 0.0
    high = math.exp(min(math.log(other.high / first.low) + error, 700)) if first.low > 0 else math.inf
    if first.is_in_slots:
        return _compare_slots(first, other, error, Difference(Statement.NONE, ratio, low, high, change))
    statement = Statement.HIGHER if low > 1 else Statement.LOWER if high < 1 else Statement.NONE
    return Difference(statement, ratio, low, high, change)


def _compare_slots(first: Estimate, other: Estimate, error: float, unsure: Difference) -> Difference:
    """Compare two estimates read from the same histogram slots.

    Equal runs fill slots equally, so slot width alone never suggests a difference. A value in a higher slot
    is higher, by an unknown amount.
    """
    assert unsure.ratio and unsure.low is not None and unsure.high is not None
    if other.low >= first.high and math.log(unsure.ratio) > error:
        return replace(unsure, statement=Statement.HIGHER, low=max(unsure.low, 1.0))
    if other.high <= first.low and -math.log(unsure.ratio) > error:
        return replace(unsure, statement=Statement.LOWER, high=min(unsure.high, 1.0))
    return unsure


def _compare_with_zero(first: Estimate, other: Estimate, change: float) -> Difference:
    """Compare with 0, which has no logarithm: a sufficiently known value differs from 0."""
    if not first.value and not other.value:
        return Difference(Statement.NONE, change=0.0)
    known = other if other.value else first
    ratio = 0.0 if first.value else None
    if known.scatter is None:
        return Difference(Statement.UNKNOWN, ratio, change=change, reason=known.reason)
    return Difference(Statement.HIGHER if change > 0 else Statement.LOWER, ratio, change=change)


def _compute_log_error(first: Estimate, other: Estimate, chance: float) -> float:
    """Return the error of the log ratio due to chance."""
    one, two = (first.scatter or 0.0) ** 2, (other.scatter or 0.0) ** 2
    if not one + two:
        return 0.0
    # Welch-Satterthwaite: the effective degrees of freedom of the two together.
    share = one / (one + two)
    freedom = 1 / (share**2 / first.freedom + (1 - share) ** 2 / other.freedom)
    return find_critical_value(chance, freedom) * math.sqrt(one + two)
