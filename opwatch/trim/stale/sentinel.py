"""Judge a trim by reading blocks with known contents. Pure."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from opwatch.trim.space.extents import Extents

BLOCK = 4096


class ReadsAs(enum.StrEnum):
    """Contents of a block after the trim."""

    ZEROS = "zeros"
    ONES = "ones"
    UNCHANGED = "unchanged"
    OTHER = "other"
    REALLOCATED = "reallocated"  # in use again, so not conclusive
    UNREADABLE = "unreadable"


def is_near_boundary(at: int, granule_bytes: int, cuts: tuple[int, int] | None) -> bool:
    """Return True if a block may share a granule with a boundary that the filesystem's discards never cross.
    `cuts` is (distance, offset) of these boundaries, in bytes. Separate discards cover the two sides of such
    a granule, and neither frees the granule."""
    if cuts is None or granule_bytes <= 512:
        return False
    size, offset = cuts
    behind = (at - offset) % size
    return behind < granule_bytes or behind + BLOCK > size - granule_bytes


@dataclass(frozen=True, slots=True)
class SentinelResult:
    """Results for a sentinel's blocks on one device. `inside`: blocks in granules that belong entirely to the
    sentinel, which a trim must reach. `edges`: blocks in granules shared with other data. `reason`: why
    nothing was judged. `free`: blocks that are still free."""

    size_bytes: int
    device: str
    encrypted: bool
    offsets: tuple[int, ...]
    inside: Counter[ReadsAs]
    edges: Counter[ReadsAs]
    reason: str | None = None
    free: Extents = field(default_factory=Extents)

    @property
    def conclusive_blocks(self) -> int:
        """Conclusive blocks of `inside`."""
        return sum(self.inside.values()) - self.inside[ReadsAs.REALLOCATED] - self.inside[ReadsAs.UNREADABLE]


def find_common_state(judgements: Iterable[SentinelResult], device: str | None = None) -> ReadsAs | None:
    """Return the common state of all judged blocks (of a device): OTHER if the blocks differ, None if no
    block was judged."""
    total: Counter[ReadsAs] = Counter()
    for judgement in judgements:
        if device in (None, judgement.device):
            total += judgement.inside
    for silent in (ReadsAs.REALLOCATED, ReadsAs.UNREADABLE):
        del total[silent]
    if not total:
        return None
    return next(iter(total)) if len(total) == 1 else ReadsAs.OTHER
