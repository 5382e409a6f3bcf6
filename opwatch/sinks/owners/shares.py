"""Activity of owners during an interval, all operations combined: the rows of a table of owners."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from opwatch import units
from opwatch.owners.cells import OwnedCounts, OwnedWaits, add_counts
from opwatch.owners.sample import OwnerCounts, Owners
from opwatch.sinks.owners.labels import format_owner

HEADER = "  read   write   trim   reqs/s  mean    qd  "
_UNITS = " (read, write, trim: MB/s)"
_TRIMS = ("discard", "write_zeroes", "secure_erase")


class OwnedShare(NamedTuple):
    """Bytes read, written and trimmed, requests of all kinds, their time in the device, and their waits."""

    read: int = 0
    write: int = 0
    trim: int = 0
    requests: int = 0
    sum_ns: int = 0
    waits: OwnedWaits | None = None

    @property
    def mean_ns(self) -> float | None:
        return self.sum_ns / self.requests if self.requests else None


def sum_ops(ops: Mapping[str, OwnedCounts]) -> OwnedShare:
    """Return the sum of an owner's operations."""
    nothing, whole = OwnedCounts(), add_counts(ops.values())
    return OwnedShare(
        read=ops.get("read", nothing).bytes,
        write=ops.get("write", nothing).bytes,
        trim=sum(ops.get(op, nothing).bytes for op in _TRIMS),
        requests=whole.requests,
        sum_ns=whole.sum_ns,
        waits=whole.waits,
    )


def sum_shares(shares: Iterable[OwnedShare]) -> OwnedShare:
    """Return the sum of the shares."""
    read, write, trim, requests, sum_ns, waits = zip(OwnedShare(), *shares, strict=True)
    whole = add_counts(OwnedCounts(waits=one) for one in waits)
    return OwnedShare(sum(read), sum(write), sum(trim), sum(requests), sum(sum_ns), whole.waits)


class RankedShares(NamedTuple):
    """The largest owners by activity, and all others combined: `more` owners, and requests without an
    owner."""

    first: list[tuple[str, OwnedShare]]
    other: OwnedShare
    more: int

    def keep_largest(self, most: int) -> RankedShares:
        """Return the ranking with at most `most` owners; the rest are part of `other`."""
        rest = self.first[most:]
        other = sum_shares([self.other, *(share for _, share in rest)])
        return RankedShares(self.first[:most], other, self.more + len(rest))

    def select_matching(self, words: str) -> RankedShares:
        """Return the owners with these words in their names, ignoring case; the rest are part of `other`."""
        wanted = words.casefold()
        first = [pair for pair in self.first if wanted in pair[0].casefold()]
        rest = [share for name, share in self.first if wanted not in name.casefold()]
        return RankedShares(first, sum_shares([self.other, *rest]), self.more + len(rest))

    @property
    def total_share(self) -> OwnedShare:
        """Return the total activity of all owners."""
        return sum_shares([self.other, *(share for _, share in self.first)])

    @property
    def other_label(self) -> str:
        return f"other: {self.more} more" if self.more else "other"


def rank_shares(owners: Owners, ranked: Iterable[OwnerCounts] | None = None) -> RankedShares:
    """Return owners with their display names, in their own order or in the order of `ranked`."""
    order = owners.owners if ranked is None else ranked
    return RankedShares([(format_owner(one), sum_ops(one.ops)) for one in order], sum_ops(owners.other), 0)


def format_share_header(by: str, columns: int) -> str:
    """Return the header of a table of owners; the units are left out if they do not fit."""
    head = f"{HEADER}by {by}"
    return head + _UNITS if len(head) + len(_UNITS) <= columns else head


def format_share_row(share: OwnedShare, words: str, seconds: float, columns: int) -> str:
    """Return an owner as a row of at most `columns` columns, to print below the header."""

    def per_s(amount: float) -> float:
        return amount / seconds if seconds else 0.0

    read, write, trim = (units.format_megabytes(per_s(amount)) for amount in share[:3])
    row = f"{read:>6} {write:>7} {trim:>6}   {units.format_rate(per_s(share.requests)):>6} "
    row += f"{units.format_ns(share.mean_ns):>5} {per_s(share.sum_ns) / 1e9:>5.1f}  "
    return row + units.shorten(words, max(columns - len(row), 8))
