"""Whose the requests of a stretch of time were, for drawing: the largest owners, and all others as one."""

from __future__ import annotations

from collections.abc import Mapping

from opwatch.frozen import frozen
from opwatch.owners.cells import OwnedCounts, OwnerKey, counts_sum
from opwatch.owners.sample import Owners

# So many are told apart in one stretch: a plot has room for few of them.
MOST_APART = 64
# What a bus carries; what is trimmed is a number alone.
_MOVING = ("read", "write")


@frozen
class OwnersBin:
    """Requests and time in the device of all operations, bytes of reads and writes: of each owner, and of
    what is nobody's or of owners that were too small to be told apart."""

    owners: Mapping[OwnerKey, OwnedCounts]
    other: OwnedCounts

    def of(self, key: OwnerKey) -> OwnedCounts:
        return self.owners.get(key, OwnedCounts())

    def with_(self, later: OwnersBin) -> OwnersBin:
        owners = dict(self.owners)
        for key, counts in later.owners.items():
            owners[key] = counts_sum((owners.get(key, OwnedCounts()), counts))
        return _cut(owners, counts_sum((self.other, later.other)))


def owners_bin(owners: Owners) -> OwnersBin:
    """The owners of an interval."""
    return _cut({one.key: _moved(one.ops) for one in owners.owners}, _moved(owners.other))


def both(first: OwnersBin | None, later: OwnersBin | None) -> OwnersBin | None:
    """Neighbours as one; None where of either nobody knows whose it was."""
    return first.with_(later) if first and later else None


def _cut(owners: dict[OwnerKey, OwnedCounts], other: OwnedCounts) -> OwnersBin:
    if len(owners) > MOST_APART:
        ranked = sorted(owners, key=lambda key: (-owners[key].bytes, -owners[key].sum_ns))
        other = counts_sum((other, *(owners[key] for key in ranked[MOST_APART:])))
        owners = {key: owners[key] for key in ranked[:MOST_APART]}
    return OwnersBin(owners, other)


def _moved(ops: Mapping[str, OwnedCounts]) -> OwnedCounts:
    whole = counts_sum(ops.values())
    return whole._replace(bytes=sum(ops[op].bytes for op in _MOVING if op in ops))
