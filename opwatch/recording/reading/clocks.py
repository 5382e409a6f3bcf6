"""Clock readings of a recording."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable
from typing import Any

from opwatch.clock import Anchor


class RecordedClocks:
    """Readings of both clocks, ordered by time."""

    def __init__(self, rows: Iterable[tuple[Any, ...]]) -> None:
        # Arrays, because a million readings as separate integers would take 200 MiB.
        self._mono_ns, self._wall_ns, self._slack_ns = array("q"), array("q"), array("q")
        for mono_ns, wall_ns, slack_ns in rows:
            self._mono_ns.append(mono_ns)
            self._wall_ns.append(wall_ns)
            self._slack_ns.append(slack_ns)

    def find_anchor(self, mono_ns: int) -> Anchor | None:
        """Return the last reading before `mono_ns`, or the first; None without readings."""
        at = max(bisect_right(self._mono_ns, mono_ns) - 1, 0)
        if at >= len(self._mono_ns):
            return None
        return Anchor(self._mono_ns[at], self._wall_ns[at], self._slack_ns[at])
