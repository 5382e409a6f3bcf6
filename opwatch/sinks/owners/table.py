"""Owners on all disks as one table, largest first. With `other` the rows add up to the total of the disks."""

from __future__ import annotations

import enum
from collections.abc import Iterable

from opwatch.owners.sample import Owned, Owners
from opwatch.sinks.owners.shares import HEADER, OwnedShare, ranked_shares, share_row
from opwatch.sinks.owners.words import full_table_lines


class Sort(enum.Enum):
    """Sort key of the table. LATENCY is the mean over an owner's requests, TIME their sum."""

    BYTES = "bytes"
    REQUESTS = "requests"
    TIME = "time"
    LATENCY = "latency"


def table_lines(
    owners: Owners, seconds: float, sort: Sort, most: int, columns: int = 80, words: str = ""
) -> list[str]:
    """Return a header, at most `most` owners, the others combined, the total, and the part that is missing.

    Only owners with `words` in their names have rows.
    """
    shares = ranked_shares(owners, ranked(owners.owners, sort)).matching(words)
    shown = shares.cut(most)
    lines = [HEADER + f"by {owners.by.value}"]
    lines += [share_row(share, words, seconds, columns) for words, share in shown.first]
    if shown.other != OwnedShare():
        lines.append(share_row(shown.other, shown.other_words, seconds, columns))
    lines.append(share_row(shares.everything, "all", seconds, columns))
    return [*lines, *full_table_lines(owners.no_room)]


def ranked(owners: Iterable[Owned], sort: Sort) -> list[Owned]:
    """Return the owners in that order, largest first."""
    return sorted(owners, key=lambda one: _rank(one, sort))


def _rank(one: Owned, sort: Sort) -> tuple[float, ...]:
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
