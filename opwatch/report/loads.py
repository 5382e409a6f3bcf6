"""Check whether the load changed together with a rate: queue depth, sizes, order, other operations. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from opwatch.report.bins import TimeBin, merge_bins

# A smaller ratio, up or down, counts as the same load.
_MAX_SAME_RATIO = 1.25
# Minimum share of all requests at which another operation matters.
_MIN_SHARE = 0.1
# Minimum difference of sequential shares that counts as another access pattern.
_MIN_SEQUENTIAL_CHANGE = 0.25


class LoadFigure(StrEnum):
    """The property of a load that changed."""

    DEPTH = "queue depth"
    SIZE = "size"
    SEQUENTIAL = "sequential share"
    OTHER = "rate of another operation"


@dataclass(frozen=True, slots=True)
class LoadChange:
    """A load property before and after a step. `op` is the other operation for OTHER, otherwise None."""

    figure: LoadFigure
    before: float
    after: float
    op: str | None = None


def find_load_changes(
    op: str, before: Sequence[TimeBin], after: Sequence[TimeBin]
) -> tuple[LoadChange, ...] | None:
    """Return the changes in an operation's load: empty if unchanged, None if unknown, such as without a queue
    depth.

    A drive that slows down keeps the same number of requests in flight, or more.
    """
    if not before or not after:
        return None
    one, two = merge_bins(before), merge_bins(after)
    if not one.find_op(op).device_s or not two.find_op(op).device_s:
        return None
    return tuple(_find_own_changes(op, one, two))


def _find_own_changes(op: str, before: TimeBin, after: TimeBin) -> Iterator[LoadChange]:
    is_up = after.per_s(op) > before.per_s(op)
    one, two = before.mean_depth(op), after.mean_depth(op)
    if (two > one * _MAX_SAME_RATIO) if is_up else (two * _MAX_SAME_RATIO < one):
        yield LoadChange(LoadFigure.DEPTH, one, two)
    one, two = (side.find_op(op).bytes / side.find_op(op).count for side in (before, after))
    if not is_same(one, two):
        yield LoadChange(LoadFigure.SIZE, one, two)
    orders = before.find_op(op).sequential_ratio, after.find_op(op).sequential_ratio
    if (
        orders[0] is not None
        and orders[1] is not None
        and abs(orders[1] - orders[0]) >= _MIN_SEQUENTIAL_CHANGE
    ):
        yield LoadChange(LoadFigure.SEQUENTIAL, orders[0], orders[1])
    yield from _find_other_changes(op, before, after, is_up=is_up)


def is_same(one: float, two: float) -> bool:
    """Return whether two load values are about equal."""
    return one <= two * _MAX_SAME_RATIO and two <= one * _MAX_SAME_RATIO


def _find_other_changes(op: str, before: TimeBin, after: TimeBin, *, is_up: bool) -> Iterator[LoadChange]:
    """Yield other operations with more demand when the rate fell, or less when the rate rose.

    More demand means more requests per second and more in flight. At a constant number in flight, a different
    rate is the drive's doing.
    """
    if is_up:
        before, after = after, before
    least = _MIN_SHARE * sum(before.per_s(name) for name in before.ops)
    for other in after.ops:
        rates = before.per_s(other), after.per_s(other)
        depths = before.mean_depth(other), after.mean_depth(other)
        if (
            other != op
            and rates[1] - rates[0] >= least
            and rates[1] > _MAX_SAME_RATIO * rates[0]
            and depths[1] > _MAX_SAME_RATIO * depths[0]
        ):
            shown = rates[::-1] if is_up else rates
            yield LoadChange(LoadFigure.OTHER, *shown, op=other)
