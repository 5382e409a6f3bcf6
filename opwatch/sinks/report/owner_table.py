"""Owners of a recording's requests: a table, a sentence, or the reason why they are unknown."""

from __future__ import annotations

from collections.abc import Iterator

from opwatch.owners.cells import NO_WAITS
from opwatch.owners.sample import OwnerCounts, Owners
from opwatch.report.run_picture import DiskPicture
from opwatch.sinks.blocks import TextTable
from opwatch.sinks.owners.labels import format_full_table
from opwatch.sinks.owners.shares import OwnedShare, rank_shares
from opwatch.sinks.owners.table import Sort, rank_owners
from opwatch.sinks.report.plots import amounts
from opwatch.trace.unavailable import OWNERS, TRUST

# An owner gets a row if it is among the first by bytes, requests, time or latency.
_MAX_BY_EACH = 10
_MAX_NAMED = 3
# An owner with a smaller share of the bytes is not mentioned.
_MIN_RATIO = 0.01
_NUMBERS = ("MB read", "MB written", "MB trimmed", "requests", "per second", "mean latency", "time in device")
_WAITS = ("mean in io.max", "mean admission", "mean in queue")


def explain_missing_owners(disk: DiskPicture) -> str | None:
    """Return the reason why the owners are unknown, or None if they are known or the disk had no requests."""
    if disk.owners or not disk.ops:
        return None
    absent = disk.finals[-1].missing_fields
    if OWNERS in absent:
        return f"The request owners of {disk.label} are unknown: {absent[OWNERS]}."
    if TRUST in absent:
        return f"The request owners of {disk.label} are unknown: the imported file does not have them."
    return (
        f"The request owners of {disk.label} are unknown: the disk was recorded without --by cgroup or "
        "--by process."
    )


def select_owners(owners: Owners) -> list[OwnerCounts]:
    """Return the owners that have a row, most bytes first."""
    first = {one.key for sort in Sort for one in rank_owners(owners.owners, sort)[:_MAX_BY_EACH]}
    return rank_owners((one for one in owners.owners if one.key in first), Sort.BYTES)


def build_owner_table(disk: DiskPicture) -> TextTable | None:
    """Return the largest owners, the others combined, and the total, or None if owners are unknown."""
    owners = disk.owners
    if owners is None or not disk.ops:
        return None
    seconds = sum(final.interval.seconds for final in disk.finals)
    shown = select_owners(owners)
    rest = rank_owners((one for one in owners.owners if one not in shown), Sort.BYTES)
    shares = rank_shares(owners, [*shown, *rest])
    cut = shares.keep_largest(len(shown))
    named = [*cut.first]
    if cut.other != OwnedShare():
        named.append((cut.other_label, cut.other))
    named.append(("all", shares.total_share))
    rows = [_build_row(words, share, seconds, has_waits=owners.has_waits) for words, share in named]
    waits = _WAITS if owners.has_waits else ()
    return TextTable((f"owner, by {owners.by.value}", *_NUMBERS, *waits), rows)


def _build_row(words: str, share: OwnedShare, seconds: float, *, has_waits: bool) -> list[str]:
    waits = (share.waits or NO_WAITS).list_means() if has_waits else ()
    return [
        words,
        *(amounts.format_megabytes(moved) for moved in (share.read, share.write, share.trim)),
        f"{share.requests:,}",
        amounts.format_rate(share.requests / seconds if seconds else 0.0),
        amounts.format_latency(share.mean_ns),
        amounts.format_latency(share.sum_ns),
        *map(amounts.format_latency, waits),
    ]


def describe_owners(disk: DiskPicture) -> Iterator[str]:
    """Yield a sentence about the owners with the most bytes read and written."""
    owners = disk.owners
    if owners is None:
        return
    shares = rank_shares(owners, rank_owners(owners.owners, Sort.BYTES))
    whole = shares.total_share.read + shares.total_share.write
    named = [
        f"{amounts.format_percent((share.read + share.write) / whole)} by {words}"
        for words, share in shares.first[:_MAX_NAMED]
        if whole and (share.read + share.write) / whole >= _MIN_RATIO
    ]
    if named:
        yield f"Bytes read and written on {disk.label}: {', '.join(named)}."
    for line in format_full_table(owners.no_room):
        yield f"On {disk.label} {line}."
