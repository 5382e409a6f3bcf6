"""Owners of an interval's requests in compact form, and as the rows of a panel."""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field

from opwatch.owners.cells import OwnedCounts
from opwatch.owners.sample import Owners
from opwatch.sinks.dashboard.rows import Row
from opwatch.sinks.owners.labels import format_full_table
from opwatch.sinks.owners.shares import (
    OwnedShare,
    RankedShares,
    format_share_header,
    format_share_row,
    rank_shares,
)
from opwatch.sinks.tones import Tone

# The tallest screen shows no more; all others are combined.
MAX_KEPT = 16
# A header and at least one row.
_MIN_ROWS = 2
_SHARE = struct.Struct("<5Q")


@dataclass(frozen=True, slots=True)
class CompactOwners:
    """Owners of one disk in an interval, most bytes first.

    `packed` holds the owners' shares, followed by the share of the `more` others. `no_room` is the part of
    the others not counted individually because the owner table was full.
    """

    by: str
    words: tuple[str, ...]
    packed: bytes
    more: int
    no_room: OwnedCounts = field(default_factory=OwnedCounts)

    def unpack_shares(self) -> RankedShares:
        *first, other = (OwnedShare(*numbers) for numbers in _SHARE.iter_unpack(self.packed))
        return RankedShares(list(zip(self.words, first, strict=True)), other, self.more)

    @property
    def row_count(self) -> int:
        """Return the rows needed to show all owners."""
        shown = len(self.words) + any(self.packed[-_SHARE.size :]) + any(self.no_room)
        return max(1 + shown, _MIN_ROWS)


def compact_owners(owners: Owners) -> CompactOwners:
    """Return the compact form of an interval's owners."""
    kept = rank_shares(owners).keep_largest(MAX_KEPT)
    packed = b"".join(_SHARE.pack(*share[:5]) for share in (*(share for _, share in kept.first), kept.other))
    # Intern the names, because the same few occur in all intervals.
    return CompactOwners(
        owners.by.value,
        tuple(sys.intern(words) for words, _ in kept.first),
        packed,
        kept.more,
        owners.no_room,
    )


def count_needed_rows(moments: Iterable[CompactOwners | None]) -> int:
    """Return the rows of the largest table, 0 without owners. A fixed height keeps the panel from moving."""
    return max((one.row_count for one in moments if one), default=0)


def build_owner_rows(owners: CompactOwners | None, seconds: float, most: int, width: int) -> list[Row]:
    """Return a header, the largest owners, the others combined, and the part that found the table full: at
    most `most` rows."""
    if owners is None or most < _MIN_ROWS:
        return []
    shares = owners.unpack_shares()
    rows: list[Row] = [[(format_share_header(owners.by, width), Tone.STRONG)]]
    lost: list[Row] = [[(line, Tone.ALARM)] for line in format_full_table(owners.no_room)]
    if lost and most == _MIN_ROWS:
        return [*rows, *lost]
    room = most - len(lost) - (1 if owners.row_count <= most else 2)
    shown = shares.keep_largest(room)
    rows += [[(format_share_row(share, words, seconds, width), Tone.PLAIN)] for words, share in shown.first]
    if shown.other != OwnedShare():
        rows.append([(format_share_row(shown.other, shown.other_label, seconds, width), Tone.FAINT)])
    return [*rows, *lost] if len(rows) > 1 else [*rows, [("idle", Tone.FAINT)]]
