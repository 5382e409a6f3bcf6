"""Whether a disk's load changed when a rate did: queue depth, sizes, order, other operations. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum

from opwatch.frozen import frozen
from opwatch.report.bins import TimeBin, merged

# What changes by less than this, up or down, is the same load.
_SAME = 1.25
# Another operation matters from this share of all requests on.
_LEAST_SHARE = 0.1
# Sequential shares that differ by this are another pattern.
_LEAST_ORDER = 0.25


class LoadFigure(StrEnum):
    """What of a load changed."""

    DEPTH = "queue depth"
    SIZE = "size"
    SEQUENTIAL = "sequential share"
    OTHER = "rate of another operation"


@frozen
class LoadChange:
    """One figure of the load before and after. `op` is the other operation of OTHER, else None."""

    figure: LoadFigure
    before: float
    after: float
    op: str | None = None


def load_changes(
    op: str, before: Sequence[TimeBin], after: Sequence[TimeBin]
) -> tuple[LoadChange, ...] | None:
    """Return what changed in the load of an operation: empty if nothing did, None if the queue depth, or
    anything else, is not known. A drive that becomes slower has as many requests in flight, or more."""
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
    """Whether two figures of a load are about equal."""
    return one <= two * _SAME and two <= one * _SAME


def _others(op: str, before: TimeBin, after: TimeBin, *, is_up: bool) -> Iterator[LoadChange]:
    """Other operations that were asked for more when the rate fell, or less when it rose: more of them, and
    more in flight. With as many in flight they are faster or slower because of the drive."""
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
