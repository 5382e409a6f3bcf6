"""A rule: what is looked at, and beyond which limit it fires."""

from __future__ import annotations

from enum import StrEnum

from opwatch.frozen import frozen


class Unit(StrEnum):
    """What a metric is measured in."""

    NS = "ns"
    PER_S = "/s"
    MB_PER_S = "MB/s"
    RATIO = "ratio"
    CORES = "cores"


# These are of the whole disk, or of the machine: the others are of an operation each.
WAF, CPU, CPU_IO, STALL = "waf", "cpu", "cpu_io", "stall"
OF_WHOLE = (WAF, CPU, CPU_IO, STALL)
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
    # For how long nothing has completed with requests in flight, at least.
    STALL: Unit.NS,
}


class LimitKind(StrEnum):
    """LEVEL: of the value itself. CHANGE: of its difference from another, in its unit. SHARE: of that
    difference as a share of the other, 0.05 for 5 %."""

    LEVEL = "level"
    CHANGE = "change"
    SHARE = "share"


@frozen
class Rule:
    """A rule that a person wrote. `op` is None for any operation, and for what is of the whole disk. `limit`
    is in the metric's unit: ns for times. `lasting_s`: for so long it has to be beyond; None where nothing
    was said of that."""

    text: str
    op: str | None
    metric: str
    is_above: bool
    limit: float
    kind: LimitKind
    lasting_s: float | None = None

    def is_beyond(self, value: float) -> bool:
        """Whether a value, or a change by the rule's kind, is beyond the limit."""
        return value > self.limit if self.is_above else value < self.limit
