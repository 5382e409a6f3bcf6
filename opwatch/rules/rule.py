"""A rule: the metric, and the limit beyond which the rule fires."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Unit(StrEnum):
    """The unit of a metric."""

    NS = "ns"
    PER_S = "/s"
    MB_PER_S = "MB/s"
    RATIO = "ratio"
    CORES = "cores"


# Metrics of a whole disk or of the machine. All others are per operation.
WAF, CPU, CPU_IO, STALL = "waf", "cpu", "cpu_io", "stall"
DISK_METRICS = (WAF, CPU, CPU_IO, STALL)
METRICS: dict[str, Unit] = {
    "iops": Unit.PER_S,
    "mbps": Unit.MB_PER_S,
    "mean": Unit.NS,
    "p50": Unit.NS,
    "p99": Unit.NS,
    "p99.9": Unit.NS,
    "max": Unit.NS,
    WAF: Unit.RATIO,
    CPU: Unit.CORES,
    CPU_IO: Unit.NS,
    # Minimum time without a completion while requests were in flight.
    STALL: Unit.NS,
}


class LimitKind(StrEnum):
    """The quantity a limit applies to.

    LEVEL: the value itself. CHANGE: the difference from another value, in the metric's unit. SHARE: the same
    difference as a share of the other value, 0.05 for 5 %.
    """

    LEVEL = "level"
    CHANGE = "change"
    SHARE = "share"


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule written by a user.

    `op` is None for any operation and for metrics of the whole disk. `limit` is in the metric's unit: ns for
    times. `lasting_s` is the time the value must stay beyond the limit, or None if not given.
    """

    text: str
    op: str | None
    metric: str
    is_above: bool
    limit: float
    kind: LimitKind
    lasting_s: float | None = None

    def is_beyond(self, value: float) -> bool:
        """Return whether a value (or a change, depending on the rule's kind) is beyond the limit."""
        return value > self.limit if self.is_above else value < self.limit
