"""The common clock: CLOCK_MONOTONIC in ns, as in bpf_ktime_get_ns(). Anchors convert it to wall time."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime


@dataclass(frozen=True, slots=True)
class Anchor:
    """A simultaneous reading of both clocks; wall time is accurate to `slack_ns`."""

    mono_ns: int
    wall_ns: int
    slack_ns: int

    def to_wall_time(self, mono_ns: int) -> datetime:
        """Convert a monotonic time to wall time in UTC."""
        return datetime.fromtimestamp((self.wall_ns + mono_ns - self.mono_ns) / 1e9, UTC)


def read_anchor() -> Anchor:
    """Read the monotonic clock and the wall clock together."""
    before = time.monotonic_ns()
    wall = time.time_ns()
    after = time.monotonic_ns()
    return Anchor((before + after) // 2, wall, (after - before + 1) // 2)


def format_span(begin: datetime, end: datetime) -> str:
    """Format two moments as local times, in a form that --from and --to take; with dates if they differ."""
    first, last = begin.astimezone(), end.astimezone()
    form = "%H:%M:%S" if first.date() == last.date() else "%Y-%m-%dT%H:%M:%S"
    return f"{first:{form}} to {last:{form}}"
