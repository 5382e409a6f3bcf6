"""One clock: CLOCK_MONOTONIC in ns, that of bpf_ktime_get_ns(). Wall time enters through anchors only."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from opwatch.frozen import frozen


@frozen
class Anchor:
    """The two clocks read together; wall time is right within `slack_ns`."""

    mono_ns: int
    wall_ns: int
    slack_ns: int

    def wall(self, mono_ns: int) -> datetime:
        """The wall time of a moment of the monotonic clock, as UTC."""
        return datetime.fromtimestamp((self.wall_ns + mono_ns - self.mono_ns) / 1e9, UTC)


def read_anchor() -> Anchor:
    """Pair the monotonic clock with the wall clock."""
    before = time.monotonic_ns()
    wall = time.time_ns()
    after = time.monotonic_ns()
    return Anchor((before + after) // 2, wall, (after - before + 1) // 2)
