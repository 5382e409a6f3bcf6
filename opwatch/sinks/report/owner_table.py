"""Owners of a recording's requests: a table, a sentence, or the reason why they are unknown."""

from __future__ import annotations

from collections.abc import Iterator

from opwatch.owners.sample import Owned, Owners
from opwatch.report.gathering import DiskPicture
from opwatch.sinks.owners.shares import OwnedShare, ranked_shares
from opwatch.sinks.owners.table import Sort, ranked
from opwatch.sinks.owners.words import full_table_lines
from opwatch.sinks.report.plots import amounts
from opwatch.sinks.report.tables import WordTable
from opwatch.trace.lacking import OWNERS, TRUST

# An owner gets a row if it is among the first by bytes, requests, time or latency.
_MOST_BY_EACH = 10
_MOST_NAMED = 3
# An owner with a smaller share of the bytes is not mentioned.
_LEAST_RATIO = 0.01
_NUMBERS = ("MB read", "MB written", "MB trimmed", "requests", "a second", "mean latency", "time in device")


def reason_of(disk: DiskPicture) -> str | None:
    """Return the reason why the owners are unknown, or None if they are known or the disk had no requests."""
    if disk.owners or not disk.ops:
        return None
    absent = disk.finals[-1].absent
    if OWNERS in absent:
        return f"Whose the requests of {disk.label} were is not known: {absent[OWNERS]}."
    if TRUST in absent:
        return f"Whose the requests of {disk.label} were is not known: what was imported does not say."
    return (
        f"Whose the requests of {disk.label} were is not known: it was recorded without --by cgroup or "
        "--by process."
    )


def shown_owners(owners: Owners) -> list[Owned]:
    """Return the owners that have a row, most bytes first."""
    first = {one.key for sort in Sort for one in ranked(owners.owners, sort)[:_MOST_BY_EACH]}
    return ranked((one for one in owners.owners if one.key in first), Sort.BYTES)


def owner_table(disk: DiskPicture) -> WordTable | None:
    """Return the largest owners, the others combined, and the total, or None if owners are unknown."""
    owners = disk.owners
    if owners is None or not disk.ops:
        return None
    seconds = sum(final.interval.seconds for final in disk.finals)
    shown = shown_owners(owners)
    rest = ranked((one for one in owners.owners if one not in shown), Sort.BYTES)
    shares = ranked_shares(owners, [*shown, *rest])
    cut = shares.cut(len(shown))
    rows = [_row(words, share, seconds) for words, share in cut.first]
    if cut.other != OwnedShare():
        rows.append(_row(cut.other_words, cut.other, seconds))
    rows.append(_row("all", shares.everything, seconds))
    return WordTable((f"owner, by {owners.by.value}", *_NUMBERS), rows)


def _row(words: str, share: OwnedShare, seconds: float) -> list[str]:
    return [
        words,
        *(amounts.megabytes(moved) for moved in (share.read, share.write, share.trim)),
        f"{share.requests:,}",
        amounts.rate(share.requests / seconds if seconds else 0.0),
        amounts.latency(share.mean_ns),
        amounts.latency(share.sum_ns),
    ]


def owner_sentences(disk: DiskPicture) -> Iterator[str]:
    """Yield a sentence about the owners with the most bytes read and written."""
    owners = disk.owners
    if owners is None:
        return
    shares = ranked_shares(owners, ranked(owners.owners, Sort.BYTES))
    whole = shares.everything.read + shares.everything.write
    named = [
        f"{amounts.percent((share.read + share.write) / whole)} by {words}"
        for words, share in shares.first[:_MOST_NAMED]
        if whole and (share.read + share.write) / whole >= _LEAST_RATIO
    ]
    if named:
        yield f"Of what was read and written on {disk.label}, {', '.join(named)}."
    for line in full_table_lines(owners.no_room):
        yield f"On {disk.label} {line}."
