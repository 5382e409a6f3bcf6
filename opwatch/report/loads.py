"""Check whether the load changed together with a rate: queue depth, sizes, order, other operations. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from opwatch.report.bins import TimeBin, merged

# A smaller ratio, up or down, counts as the same load.
_SAME = 1.25
# Minimum share of all requests at which another operation matters.
_LEAST_SHARE = 0.1
# Minimum difference of sequential shares that counts as another access pattern.
_LEAST_ORDER = 0.25


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


def load_changes(
    op: str, before: Sequence[TimeBin], after: Sequence[TimeBin]
) -> tuple[LoadChange, ...] | None:
    """Return the changes in an operation's load: empty if unchanged, None if unknown, such as without a queue
    depth.

    A drive that slows down keeps the same number of requests in flight, or more.
    """
    if not before or not after:
        return None
    one, two = merged(before), merged(after)
    if not one.op(op).device_s or not two.op(op).device_s:
        return None
    return tuple(_changes(op, one, two))


def _changes(op: str, before: TimeBin, after: TimeBin) -> Iterator[LoadChange]:
    is_up = after.per_s(op) > before.per_s(op)
    one, two = before.depth(op), after.depth(op)
    if (two > one * _SAME) if is_up else (two * _SAME < one):
        yield LoadChange(LoadFigure.DEPTH, one, two)
    one, two = (side.op(op).bytes / side.op(op).count for side in (before, after))
    if not is_same(one, two):
        yield LoadChange(LoadFigure.SIZE, one, two)
    orders = before.op(op).sequential_ratio, after.op(op).sequential_ratio
    if orders[0] is not None and orders[1] is not None and abs(orders[1] - orders[0]) >= _LEAST_ORDER:
        yield LoadChange(LoadFigure.SEQUENTIAL, orders[0], orders[1])
    yield from _others(op, before, after, is_up=is_up)


def is_same(one: float, two: float) -> bool:
    """Return whether two load values are about equal."""
    return one <= two * _SAME and two <= one * _SAME


def _others(op: str, before: TimeBin, after: TimeBin, *, is_up: bool) -> Iterator[LoadChange]:
    """Yield other operations with more demand when the rate fell, or less when the rate rose.

    More demand means more requests per second and more in flight. At a constant number in flight, a different
    rate is the drive's doing.
    """
    if is_up:
        before, after = after, before
    least = _LEAST_SHARE * sum(before.per_s(name) for name in before.ops)
    for other in after.ops:
        rates = before.per_s(other), after.per_s(other)
        depths = before.depth(other), after.depth(other)
        if (
            other != op
            and rates[1] - rates[0] >= least
            and rates[1] > _SAME * rates[0]
            and depths[1] > _SAME * depths[0]
        ):
            shown = rates[::-1] if is_up else rates
            yield LoadChange(LoadFigure.OTHER, *shown, op=other)
