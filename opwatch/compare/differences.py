"""Two estimates -> whether they differ, and by how much. Pure."""

from __future__ import annotations

import math
from enum import StrEnum

from opwatch.compare.estimates import Estimate
from opwatch.compare.student import threshold
from opwatch.frozen import frozen, replace

# Of comparisons of runs that do not differ, so many may say of any of their figures that it does.
FAMILY_CHANCE = 0.05
# No two runs begin alike: what a drive holds and how it lies there differs, for all of a run, so that no
# scatter within it shows it. What that can make is allowed for, in the logarithm: no less is ever called
# real.
BEGINNING = 0.002


class Statement(StrEnum):
    """NONE: no difference can be told. UNKNOWN: nothing can be told, for a reason."""

    HIGHER = "higher"
    LOWER = "lower"
    NONE = "none"
    UNKNOWN = "unknown"


@frozen
class Difference:
    """What a figure is as a ratio to that of the first run: between `low` and `high`, as far as is known.
    `ratio` is None where one of the two has no figure, or the first is 0. `change` is in the unit of the
    figure."""

    statement: Statement
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    change: float | None = None
    reason: str | None = None

    @property
    def is_real(self) -> bool:
        return self.statement in (Statement.HIGHER, Statement.LOWER)


def is_claim(first: Estimate, other: Estimate) -> bool:
    """Whether these two could be said to differ."""
    if first.value == 0 or other.value == 0:
        return first.is_judged or other.is_judged
    return first.is_judged and other.is_judged


def difference(first: Estimate, other: Estimate, chance: float) -> Difference:
    """How one figure differs from that of the first run. `chance` is how likely two equal ones may be said to
    differ."""
    if first.value is None or other.value is None:
        return Difference(Statement.UNKNOWN, reason=first.reason or other.reason)
    change = other.value - first.value
    if not first.value or not other.value:
        return _with_nothing(first, other, change)
    ratio = other.value / first.value
    if first.scatter is None or other.scatter is None:
        reason = first.reason or other.reason
        return Difference(Statement.UNKNOWN, ratio, change=change, reason=reason)
    error = _error(first, other, chance) + BEGINNING
    low = math.exp(math.log(other.low / first.high) - error) if other.low > 0 else 0.0
    high = math.exp(min(math.log(other.high / first.low) + error, 700)) if first.low > 0 else math.inf
    if first.is_in_slots:
        return _by_slots(first, other, error, Difference(Statement.NONE, ratio, low, high, change))
    statement = Statement.HIGHER if low > 1 else Statement.LOWER if high < 1 else Statement.NONE
    return Difference(statement, ratio, low, high, change)


def _by_slots(first: Estimate, other: Estimate, error: float, unsure: Difference) -> Difference:
    """Both are read off the same slots: runs that do not differ fill them alike, so that slots make no
    difference where there is none. What is in a higher slot is higher, though nobody knows by how much."""
    assert unsure.ratio and unsure.low is not None and unsure.high is not None
    if other.low >= first.high and math.log(unsure.ratio) > error:
        return replace(unsure, statement=Statement.HIGHER, low=max(unsure.low, 1.0))
    if other.high <= first.low and -math.log(unsure.ratio) > error:
        return replace(unsure, statement=Statement.LOWER, high=min(unsure.high, 1.0))
    return unsure


def _with_nothing(first: Estimate, other: Estimate, change: float) -> Difference:
    """One of the two is 0, which has no logarithm: it differs from one that is known well enough."""
    if not first.value and not other.value:
        return Difference(Statement.NONE, change=0.0)
    known = other if other.value else first
    ratio = 0.0 if first.value else None
    if known.scatter is None:
        return Difference(Statement.UNKNOWN, ratio, change=change, reason=known.reason)
    return Difference(Statement.HIGHER if change > 0 else Statement.LOWER, ratio, change=change)


def _error(first: Estimate, other: Estimate, chance: float) -> float:
    """How far the logarithm of the ratio may be off, for chance alone."""
    one, two = (first.scatter or 0.0) ** 2, (other.scatter or 0.0) ** 2
    if not one + two:
        return 0.0
    # Welch and Satterthwaite: how many independent values both together are worth.
    share = one / (one + two)
    freedom = 1 / (share**2 / first.freedom + (1 - share) ** 2 / other.freedom)
    return threshold(chance, freedom) * math.sqrt(one + two)
