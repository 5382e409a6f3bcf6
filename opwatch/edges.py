"""When a page that is refreshed in the background really changed, from polling it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

# The longest that the OCP specification allows, and a tenth more.
LONGEST_NS = 660 * 10**9
_MIN_GAPS = 4


@dataclass(frozen=True, slots=True)
class Edge:
    """A change of value: it happened after `before_ns` and not after `mono_ns`."""

    before_ns: int
    mono_ns: int
    value: int


def edges(polled: Sequence[tuple[int, int]]) -> list[Edge]:
    """The changes in (mono_ns, value) pairs, in their order. The first value is none: its age is unknown."""
    return [Edge(before, now, value) for (before, old), (now, value) in pairwise(polled) if value != old]


def refresh_ns(found: Sequence[Edge]) -> int | None:
    """How old the page gets under steady writes: its longest gap between changes. None after too few."""
    gaps = [later.mono_ns - earlier.before_ns for earlier, later in pairwise(found)]
    return min(max(gaps), LONGEST_NS) if len(gaps) >= _MIN_GAPS else None


def settled(polled: Sequence[tuple[int, int]], period_ns: int | None) -> bool:
    """Whether the value has stood still for a whole period, so that it shows all that happened before."""
    if not polled:
        return False
    changes = edges(polled)
    since = changes[-1].mono_ns if changes else polled[0][0]
    return polled[-1][0] - since >= (LONGEST_NS if period_ns is None else period_ns)


def stale_bytes(age_ns: int, bytes_per_s: float) -> int:
    """What may be missing in a page of this age, at the rate at which it grows."""
    return int(age_ns * bytes_per_s / 1e9) + 1 if age_ns > 0 and bytes_per_s > 0 else 0
