"""What reading says of blocks whose contents were known before a trim. Pure."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable

from opwatch.frozen import field, frozen
from opwatch.trim.space.extents import Extents

BLOCK = 4096


class ReadsAs(enum.StrEnum):
    """How a block reads after the trim."""

    ZEROS = "zeros"
    ONES = "ones"
    UNCHANGED = "unchanged"
    OTHER = "other"
    REALLOCATED = "reallocated"  # in use again: it says nothing
    UNREADABLE = "unreadable"


def is_cut(at: int, granule_bytes: int, cuts: tuple[int, int] | None) -> bool:
    """Whether a block may share a granule with a border that no discard of its filesystem crosses, (bytes,
    offset) from one to the next: what lies on both sides of it is told in two parts, and freed by neither."""
    if cuts is None or granule_bytes <= 512:
        return False
    size, offset = cuts
    behind = (at - offset) % size
    return behind < granule_bytes or behind + BLOCK > size - granule_bytes


@frozen
class Judgement:
    """The blocks of one sentinel on one device. `inside` are those in whole granules of it, which a trim
    must reach; `edges` those that share a granule with something else. `reason`: why nothing was judged;
    `free`: the blocks that are still free."""

    size_bytes: int
    device: str
    encrypted: bool
    offsets: tuple[int, ...]
    inside: Counter[ReadsAs]
    edges: Counter[ReadsAs]
    reason: str | None = None
    free: Extents = field(default_factory=Extents)

    @property
    def judged(self) -> int:
        """Blocks of `inside` that say something."""
        return sum(self.inside.values()) - self.inside[ReadsAs.REALLOCATED] - self.inside[ReadsAs.UNREADABLE]


def verdict(judgements: Iterable[Judgement], device: str | None = None) -> ReadsAs | None:
    """The one way in which all judged blocks (of a device) read; OTHER when they do not agree, None when
    none was judged."""
    total: Counter[ReadsAs] = Counter()
    for judgement in judgements:
        if device in (None, judgement.device):
            total += judgement.inside
    for silent in (ReadsAs.REALLOCATED, ReadsAs.UNREADABLE):
        del total[silent]
    if not total:
        return None
    return next(iter(total)) if len(total) == 1 else ReadsAs.OTHER
