"""Owners on all disks as one table, largest first. With `other` the rows add up to the total of the disks."""

from __future__ import annotations

import enum
from collections.abc import Iterable

from opwatch.owners.sample import OwnerCounts, Owners
from opwatch.sinks.owners.labels import format_full_table
from opwatch.sinks.owners.shares import OwnedShare, format_share_header, format_share_row, rank_shares


class Sort(enum.Enum):
    """Sort key of the table. LATENCY is the mean over an owner's requests, TIME their sum."""

    BYTES = "bytes"
    REQUESTS = "requests"
    TIME = "time"
    LATENCY = "latency"


def format_owner_table(
    owners: Owners, seconds: float, sort: Sort, most: int, columns: int = 80, words: str = ""
) -> list[str]:
    """Return a header, at most `most` owners, the others combined, the total, and the part that is missing.

    Only owners with `words` in their names have rows.
    """
    shares = rank_shares(owners, rank_owners(owners.owners, sort)).select_matching(words)
    shown = shares.keep_largest(most)
    lines = [format_share_header(owners.by.value, columns)]
    lines += [format_share_row(share, words, seconds, columns) for words, share in shown.first]
    if shown.other != OwnedShare():
        lines.append(format_share_row(shown.other, shown.other_label, seconds, columns))
    lines.append(format_share_row(shares.total_share, "all", seconds, columns))
    return [*lines, *format_full_table(owners.no_room)]


def rank_owners(owners: Iterable[OwnerCounts], sort: Sort) -> list[OwnerCounts]:
    """Return the owners in that order, largest first."""
    return sorted(owners, key=lambda one: _make_sort_key(one, sort))


def _make_sort_key(one: OwnerCounts, sort: Sort) -> tuple[float, ...]:
    """Return a sort key that places the largest owner first."""
    total = one.total
    mean = total.sum_ns / total.requests if total.requests else 0.0
    first = {
        Sort.BYTES: total.bytes,
        Sort.REQUESTS: total.requests,
        Sort.TIME: total.sum_ns,
        Sort.LATENCY: mean,
    }[sort]
    return -first, -total.bytes, -total.requests, one.key.number
