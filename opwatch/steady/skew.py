"""How unevenly a workload writes, and how long the coldest data that matter take to turn over. Pure.

After a sequential fill, blocks of cold data hold hardly any stale pages. Until they do, garbage collection
has the spare area for hot data alone and the drive looks faster than it will be. A uniform workload ends that
within a drive write. If 1 % of the writes go to 99 % of the data, it takes about thirty.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

# Stale space that cold data may still lack, as a share of the spare area.
_LACKING_RATIO = 0.01
# Parts whose densities differ by less than this factor are merged.
_ALIKE = 1.3
_HALVINGS = 60
# Drive writes after which data that still lack stale pages count as static: no drive lives that long.
STATIC_AFTER = 300.0


class WritePart(NamedTuple):
    """A part of the data in use: its share of the space, and its share of the random writes."""

    space_ratio: float
    write_ratio: float

    @property
    def density(self) -> float:
        """Return how often a page of the part is overwritten per drive write."""
        return self.write_ratio / self.space_ratio

    def find_flaw(self) -> str | None:
        return None if self.space_ratio > 0 <= self.write_ratio else "a part of the data has no size"


UNIFORM = (WritePart(1.0, 1.0),)


def merge_parts(parts: Iterable[WritePart]) -> tuple[WritePart, ...]:
    """Return the parts as shares of 1 from the coldest to the hottest, those of similar density merged."""
    ordered = sorted((part for part in parts if part.space_ratio > 0), key=lambda part: part.density)
    space, writes = (sum(part[at] for part in ordered) for at in (0, 1))
    if not space or not writes:
        return ()
    merged: list[WritePart] = []
    coldest = 0.0
    for part in ordered:
        part = WritePart(part.space_ratio / space, part.write_ratio / writes)
        if merged and (part.density <= coldest * _ALIKE or not part.density):
            merged[-1] = WritePart(*(one + other for one, other in zip(merged[-1], part, strict=True)))
        else:
            merged.append(part)
            coldest = part.density
    return tuple(merged)


def is_uniform(parts: Sequence[WritePart]) -> bool:
    return len(parts) == 1


class Turnover(NamedTuple):
    """The drive writes until cold data hold as many stale pages as in steady state.

    Data that are never written have no turnover. `static_ratio` is the share of space that is written, but
    too rarely to turn over within 300 drive writes, and that counts as static too.
    """

    drive_writes: float
    static_ratio: float


def compute_turnover(parts: tuple[WritePart, ...], spare_ratio: float, waf: float | None = None) -> float:
    """Return the drive writes until the cold data hold as many stale pages as they will in steady state."""
    return find_turnover(parts, spare_ratio, waf).drive_writes


@functools.lru_cache(4096)
def find_turnover(parts: tuple[WritePart, ...], spare_ratio: float, waf: float | None = None) -> Turnover:
    """Return the turnover of the parts, from the coldest to the hottest.

    `spare_ratio` is (T-U)/U. A block is collected when a share of 1/WAF of its pages is stale, so a lower
    present WAF gives a longer time. The spare area limits that share too: it cannot hold more stale pages.
    A part matters if the stale pages that it still lacks exceed 1 % of the spare area.
    """
    cold = sum(part.space_ratio for part in parts if part.density <= 1) or 1.0
    share = min(2 * spare_ratio / cold, 1 / max(waf or 1.0, 1.0), 1 - 1e-3)
    allowed = _LACKING_RATIO * spare_ratio
    written = [part for part in parts if part.density]
    static = 0.0
    while written and _compute_lack(written, share, STATIC_AFTER) > allowed:
        static += written.pop(0).space_ratio
    low, high = 0.0, STATIC_AFTER
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if _compute_lack(written, share, middle) > allowed else (low, middle)
    return Turnover(high, static)


def _compute_lack(parts: Iterable[WritePart], share: float, turns: float) -> float:
    """Return the stale space that the parts still lack after this many drive writes."""
    return sum(part.space_ratio * max(share + math.expm1(-part.density * turns), 0.0) for part in parts)
