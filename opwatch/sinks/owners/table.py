"""Owners of all disks as one table, the largest first; with `other` it adds up to all that the disks did."""

from __future__ import annotations

import enum
from collections.abc import Iterable

from opwatch.owners.sample import Owned, Owners
from opwatch.sinks.owners.shares import HEADER, OwnedShare, ranked_shares, share_row
from opwatch.sinks.owners.words import full_table_lines


class Sort(enum.Enum):
    """What the largest owner has most of. LATENCY is the mean of its requests, TIME that of all together."""

    BYTES = "bytes"
    REQUESTS = "requests"
    TIME = "time"
    LATENCY = "latency"


def table_lines(
    owners: Owners, seconds: float, sort: Sort, most: int, columns: int = 80, words: str = ""
) -> list[str]:
    """A header, at most so many owners, the others as one, all together, and what is missing of it. Only
    owners with `words` in their names have rows."""
    shares = ranked_shares(owners, ranked(owners.owners, sort)).matching(words)
    shown = shares.cut(most)
    lines = [HEADER + f"by {owners.by.value}"]
    lines += [share_row(share, words, seconds, columns) for words, share in shown.first]
    if shown.other != OwnedShare():
        lines.append(share_row(shown.other, shown.other_words, seconds, columns))
    lines.append(share_row(shares.everything, "all", seconds, columns))
    return [*lines, *full_table_lines(owners.no_room)]


def ranked(owners: Iterable[Owned], sort: Sort) -> list[Owned]:
    """The owners in that order, the largest first."""
    return sorted(owners, key=lambda one: _rank(one, sort))


def _rank(one: Owned, sort: Sort) -> tuple[float, ...]:
    """Sorts owners: the one that has most comes first."""
    total = one.total
    mean = total.sum_ns / total.requests if total.requests else 0.0
    first = {
        Sort.BYTES: total.bytes,
        Sort.REQUESTS: total.requests,
        Sort.TIME: total.sum_ns,
        Sort.LATENCY: mean,
    }[sort]
    return -first, -total.bytes, -total.requests, one.key.number
