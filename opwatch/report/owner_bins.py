"""Reduce the owners of a time bin for drawing: the largest owners, and the sum of all others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from opwatch.owners.cells import OwnedCounts, OwnerKey, add_counts
from opwatch.owners.sample import Owners

# Maximum number of owners kept per bin; a plot has space for only a few.
MAX_OWNERS_PER_BIN = 64
# Operations that transfer data. A discard has a size, but transfers no data.
_TRANSFER_OPS = ("read", "write")


@dataclass(frozen=True, slots=True)
class OwnersBin:
    """Per owner: requests and device time of all operations, bytes of reads and writes.

    `other` sums unattributed requests and owners too small to be kept.
    """

    owners: Mapping[OwnerKey, OwnedCounts]
    other: OwnedCounts

    def find_counts(self, key: OwnerKey) -> OwnedCounts:
        return self.owners.get(key, OwnedCounts())

    def merge(self, later: OwnersBin) -> OwnersBin:
        owners = dict(self.owners)
        for key, counts in later.owners.items():
            owners[key] = add_counts((owners.get(key, OwnedCounts()), counts))
        return _keep_largest(owners, add_counts((self.other, later.other)))


def make_owners_bin(owners: Owners) -> OwnersBin:
    """Return the owners of an interval."""
    return _keep_largest(
        {one.key: _sum_transfers(one.ops) for one in owners.owners}, _sum_transfers(owners.other)
    )


def merge_owners_bins(first: OwnersBin | None, later: OwnersBin | None) -> OwnersBin | None:
    """Merge two neighbours, or return None if either has no owners."""
    return first.merge(later) if first and later else None


def _keep_largest(owners: dict[OwnerKey, OwnedCounts], other: OwnedCounts) -> OwnersBin:
    if len(owners) > MAX_OWNERS_PER_BIN:
        ranked = sorted(owners, key=lambda key: (-owners[key].bytes, -owners[key].sum_ns))
        other = add_counts((other, *(owners[key] for key in ranked[MAX_OWNERS_PER_BIN:])))
        owners = {key: owners[key] for key in ranked[:MAX_OWNERS_PER_BIN]}
    return OwnersBin(owners, other)


def _sum_transfers(ops: Mapping[str, OwnedCounts]) -> OwnedCounts:
    whole = add_counts(ops.values())
    return whole._replace(bytes=sum(ops[op].bytes for op in _TRANSFER_OPS if op in ops))
