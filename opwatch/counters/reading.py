"""One counter as it is reported: a number with its unit, step, source and proof, or a reason."""

from __future__ import annotations

from enum import StrEnum

from opwatch.frozen import field, frozen, replace


class Proof(StrEnum):
    """How the unit of a counter is known, the strongest first."""

    SPEC = "spec"
    CALIBRATED = "calibrated"
    CATALOGUE = "catalogue"
    LEARNED = "learned"
    CANDIDATE = "candidate"


@frozen
class CounterReading:
    """One counter as it was read. `value` and `quantum` are in `unit`. A value that is not proven is None,
    and `reason` says why."""

    value: int | None
    unit: str
    quantum: int
    source: str
    proof: Proof
    reason: str | None = None
    caveat: str | None = None
    refresh_s: int | None = None
    # The true value is this or more.
    at_least: bool = False

    def refused(self, reason: str) -> CounterReading:
        """This counter without its number, for this reason."""
        return replace(self, value=None, reason=reason, proof=Proof.CANDIDATE)

    def bounded(self) -> CounterReading:
        """This counter with its value as a lower bound."""
        return replace(self, at_least=True)

    def noted(self, caveat: str) -> CounterReading:
        """This counter with one more caveat."""
        return replace(self, caveat=f"{self.caveat}; {caveat}" if self.caveat else caveat)


def unknown(reason: str, unit: str = "bytes", source: str = "none") -> CounterReading:
    """A counter of which nothing is known but why."""
    return CounterReading(None, unit, 0, source, Proof.CANDIDATE, reason)


@frozen
class DriveFacts:
    """What a drive says it is. A field is None when it was not told."""

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


@frozen
class HealthNote:
    """One sentence about a drive's health. What is serious wants somebody to act."""

    says: str
    source: str
    serious: bool = False


@frozen
class WearOutlook:
    """Hours powered on until 100 % of something. `most_hours` is None where nothing bounds it."""

    by: str
    least_hours: int
    most_hours: int | None
    assumes: str
    # ISO dates, where the time between two polls is known.
    least_date: str | None = None
    most_date: str | None = None


@frozen
class Pace:
    """How fast a counter of the drive grew: the truth is between `least` and `most` in `unit`. `most` is
    None where nothing bounds it."""

    of: str
    unit: str
    least: float
    most: float | None
    says: str = ""


@frozen
class LifetimeRatio:
    """NAND bytes for each byte of the host since the drive was new, with what the steps leave open. With
    `pages_of` it is pages for a page: those that the host filled in part make more of it, so that `most` is
    None."""

    ratio: float
    least: float
    most: float | None
    pages_of: str | None = None


@frozen
class PolledInterval:
    """What lies between two polls: hours powered on, days by the clock if both reports have it, and the write
    amplification of the interval or the reason why there is none."""

    least_hours: int
    most_hours: int
    days: float | None
    waf: LifetimeRatio | None
    reason: str | None


@frozen
class Report:
    """Everything about one drive. `others` are further counters of the same quantity, by its name."""

    drive: DriveFacts
    readings: dict[str, CounterReading]
    others: dict[str, list[CounterReading]] = field(default_factory=dict)
    failures: tuple[str, ...] = ()
    health: tuple[HealthNote, ...] = ()
    outlooks: tuple[WearOutlook, ...] = ()
    lifetime: LifetimeRatio | None = None
    paces: tuple[Pace, ...] = ()
    interval: PolledInterval | None = None
