"""A reported counter: a value with unit, step, source and proof, or a reason."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum


class Proof(StrEnum):
    """Kind of evidence for a counter's unit, strongest first."""

    SPEC = "spec"
    CALIBRATED = "calibrated"
    CATALOGUE = "catalogue"
    LEARNED = "learned"
    CANDIDATE = "candidate"


@dataclass(frozen=True, slots=True)
class CounterReading:
    """Counter. `value` and `quantum` are in `unit`. For an unproven counter `value` is None and `reason` is
    set."""

    value: int | None
    unit: str
    quantum: int
    source: str
    proof: Proof
    reason: str | None = None
    caveat: str | None = None
    refresh_s: int | None = None
    # `value` is a lower bound.
    at_least: bool = False

    def without_value(self, reason: str) -> CounterReading:
        """Return this counter without its value, for this reason."""
        return replace(self, value=None, reason=reason, proof=Proof.CANDIDATE)

    def as_lower_bound(self) -> CounterReading:
        """Return this counter with its value as a lower bound."""
        return replace(self, at_least=True)

    def with_caveat(self, caveat: str) -> CounterReading:
        """Return this counter with an additional caveat."""
        return replace(self, caveat=f"{self.caveat}; {caveat}" if self.caveat else caveat)


def make_unknown(reason: str, unit: str = "bytes", source: str = "none") -> CounterReading:
    """Return a counter without a value, with the reason."""
    return CounterReading(None, unit, 0, source, Proof.CANDIDATE, reason)


@dataclass(frozen=True, slots=True)
class DriveFacts:
    """Identity of a drive as reported. A field is None if not reported."""

    protocol: str | None = None
    model: str | None = None
    firmware: str | None = None
    family: str | None = None
    serial: str | None = None
    vendor_id: int | None = None
    capacity_bytes: int | None = None
    lba_bytes: int | None = None
    max_transfer_bytes: int | None = None
    rotational: bool | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class HealthNote:
    """One statement about a drive's health. A serious note requires action."""

    says: str
    source: str
    serious: bool = False


@dataclass(frozen=True, slots=True)
class WearOutlook:
    """Power-on hours until 100 % is reached. `most_hours` is None without an upper bound."""

    by: str
    least_hours: int
    most_hours: int | None
    assumes: str
    # ISO dates, if the time between two polls is known.
    least_date: str | None = None
    most_date: str | None = None


@dataclass(frozen=True, slots=True)
class Pace:
    """Growth rate of a drive's counter, between `least` and `most` in `unit`. `most` is None without an upper
    bound."""

    of: str
    unit: str
    least: float
    most: float | None
    says: str = ""


@dataclass(frozen=True, slots=True)
class LifetimeRatio:
    """NAND bytes per host byte since the drive was new, with bounds set by the counters' steps.

    With `pages_of` the ratio is NAND pages per host page. Host pages that were filled partly raise this
    ratio, so `most` is None.
    """

    ratio: float
    least: float
    most: float | None
    pages_of: str | None = None


@dataclass(frozen=True, slots=True)
class PolledInterval:
    """Interval between two polls: power-on hours, days by the clock if both reports have a time, and write
    amplification or the reason for its absence."""

    least_hours: int
    most_hours: int
    days: float | None
    waf: LifetimeRatio | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class Report:
    """All readings of one drive. `others` holds further sources of the same quantity, by name."""

    drive: DriveFacts
    readings: dict[str, CounterReading]
    others: dict[str, list[CounterReading]] = field(default_factory=dict)
    failures: tuple[str, ...] = ()
    health: tuple[HealthNote, ...] = ()
    outlooks: tuple[WearOutlook, ...] = ()
    lifetime: LifetimeRatio | None = None
    paces: tuple[Pace, ...] = ()
    interval: PolledInterval | None = None
