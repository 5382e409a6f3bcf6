"""What to change about writes: only statements that the measured rows prove. Pure."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass

from opwatch import units
from opwatch.writes.waterfall import Waterfall, WaterfallRow, WriteStep

# A smaller share of the journal, or of writes below a stripe, is not worth a change.
MIN_SHARE = 0.2
# Without a sync, ext4 commits every 5 s, or when a transaction fills a quarter of the journal, 1 MiB or more.
MIN_COMMITS_PER_S, MAX_COMMIT_BYTES = 1.0, 512 << 10
# Fewer bytes may be bitmaps and superblocks of an array.
_MIN_RECEIVED = 16 << 20
# A resync, a bitmap or a partial parity log explains more than single blocks need.
_MAX_PARITY = 1.1


class WriteAdviceKind(enum.StrEnum):
    SYNCS = "syncs"
    PARITY = "parity"
    TENANTS = "tenants"


@dataclass(frozen=True, slots=True)
class WriteAdvice:
    """What was measured, and what to do about it."""

    kind: WriteAdviceKind
    statement: str
    action: str


def advise_writes(waterfall: Waterfall) -> Iterator[WriteAdvice]:
    """Yield advice about the rows of a measurement."""
    rows = {row.kind: row for row in waterfall.rows}
    yield from _advise_syncs(waterfall, rows)
    for row in waterfall.rows:
        if row.kind is WriteStep.LAYER:
            yield from _advise_parity(row)


def _advise_syncs(waterfall: Waterfall, rows: dict[WriteStep, WaterfallRow]) -> Iterator[WriteAdvice]:
    """Yield advice if commits that programs forced make a large journal."""
    journal, device, commits = rows.get(WriteStep.JOURNAL), rows.get(WriteStep.DEVICE), waterfall.commits
    if journal is None or device is None or not journal.added or not device.total or not commits:
        return
    share, per_commit = journal.added / device.total, journal.added / commits
    is_forced = commits >= MIN_COMMITS_PER_S * waterfall.seconds and per_commit <= MAX_COMMIT_BYTES
    if share < MIN_SHARE or not is_forced:
        return
    rate, size = units.format_rate(commits / waterfall.seconds), units.format_capacity(round(per_commit))
    yield WriteAdvice(
        WriteAdviceKind.SYNCS,
        f"{100 * share:.0f} % of what {device.name} received is the journal: {rate} commits per second of "
        f"{size}, because programs sync (without syncs, ext4 commits every 5 s)",
        "sync less often, or with more changes at once (larger transactions, group commit)",
    )


def _advise_parity(row: WaterfallRow) -> Iterator[WriteAdvice]:
    """Yield advice if an array wrote more parity than full stripes need, and no more than single blocks."""
    if row.parity is None or row.added is None or row.received is None or row.received < _MIN_RECEIVED:
        return
    disks, parity = row.parity.disks, row.parity.parity
    full, excess = parity / (disks - parity), row.added / row.received
    share = (excess - full) / (parity - full) if parity > full else 0.0
    if share < MIN_SHARE or excess > _MAX_PARITY * parity:
        return
    yield WriteAdvice(
        WriteAdviceKind.PARITY,
        f"{row.name} wrote {excess:.2f} bytes of parity per byte; full stripes of {disks} disks need "
        f"{full:.2f}, and single blocks {parity}",
        f"write {disks - parity} chunks at once, aligned to the stripe, or use RAID 10 for small writes",
    )
