"""Reduce the owners of a time bin for drawing: the largest owners, and the sum of all others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from opwatch.owners.cells import OwnedCounts, OwnerKey, counts_sum
from opwatch.owners.sample import Owners

# Maximum number of owners kept per bin; a plot has space for only a few.
MOST_APART = 64
# Operations that transfer data. A discard has a size, but transfers no data.
_MOVING = ("read", "write")


@dataclass(frozen=True, slots=True)
class OwnersBin:
    """Per owner: requests and device time of all operations, bytes of reads and writes.

    `other` sums unattributed requests and owners too small to be kept.
    """

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
    """Return the owners of an interval."""
    return _cut({one.key: _moved(one.ops) for one in owners.owners}, _moved(owners.other))


def both(first: OwnersBin | None, later: OwnersBin | None) -> OwnersBin | None:
    """Merge two neighbours, or return None if either has no owners."""
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
