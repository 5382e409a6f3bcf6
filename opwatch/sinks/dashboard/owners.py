"""Owners of an interval's requests in compact form, and as the rows of a panel."""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field

from opwatch.owners.cells import OwnedCounts
from opwatch.owners.sample import Owners
from opwatch.sinks.dashboard.rows import Row, Tone
from opwatch.sinks.owners.shares import HEADER, OwnedShare, RankedShares, ranked_shares, share_row
from opwatch.sinks.owners.words import full_table_lines

# The tallest screen shows no more; all others are combined.
MOST_KEPT = 16
# A header and at least one row.
_LEAST_ROWS = 2
_SHARE = struct.Struct("<5Q")


@dataclass(frozen=True, slots=True)
class OwnersMoment:
    """Owners of one disk in an interval, most bytes first.

    `packed` holds the owners' shares, followed by the share of the `more` others. `no_room` is the part of
    the others not counted individually because the owner table was full.
    """

    by: str
    words: tuple[str, ...]
    packed: bytes
    more: int
    no_room: OwnedCounts = field(default_factory=OwnedCounts)

    def shares(self) -> RankedShares:
        *first, other = (OwnedShare(*numbers) for numbers in _SHARE.iter_unpack(self.packed))
        return RankedShares(list(zip(self.words, first, strict=True)), other, self.more)

    @property
    def rows(self) -> int:
        """Return the rows needed to show all owners."""
        shown = len(self.words) + any(self.packed[-_SHARE.size :]) + any(self.no_room)
        return max(1 + shown, _LEAST_ROWS)


def owners_moment(owners: Owners) -> OwnersMoment:
    """Return the compact form of an interval's owners."""
    kept = ranked_shares(owners).cut(MOST_KEPT)
    packed = b"".join(_SHARE.pack(*share) for share in (*(share for _, share in kept.first), kept.other))
    # Intern the names, because the same few occur in all intervals.
    return OwnersMoment(
        owners.by.value,
        tuple(sys.intern(words) for words, _ in kept.first),
        packed,
        kept.more,
        owners.no_room,
    )


def rows_wanted(moments: Iterable[OwnersMoment | None]) -> int:
    """Return the rows of the largest table, 0 without owners. A fixed height keeps the panel from moving."""
    return max((one.rows for one in moments if one), default=0)


def owner_rows(owners: OwnersMoment | None, seconds: float, most: int, width: int) -> list[Row]:
    """Return a header, the largest owners, the others combined, and the part that found the table full: at
    most `most` rows."""
    if owners is None or most < _LEAST_ROWS:
        return []
    shares = owners.shares()
    rows: list[Row] = [[(f"{HEADER}by {owners.by}, MB/s", Tone.STRONG)]]
    lost: list[Row] = [[(line, Tone.ALARM)] for line in full_table_lines(owners.no_room)]
    if lost and most == _LEAST_ROWS:
        return [*rows, *lost]
    room = most - len(lost) - (1 if owners.rows <= most else 2)
    shown = shares.cut(room)
    rows += [[(share_row(share, words, seconds, width), Tone.PLAIN)] for words, share in shown.first]
    if shown.other != OwnedShare():
        rows.append([(share_row(shown.other, shown.other_words, seconds, width), Tone.FAINT)])
    return [*rows, *lost] if len(rows) > 1 else [*rows, [("idle", Tone.FAINT)]]
