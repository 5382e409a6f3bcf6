"""Derive a drive's timeline from its counter samples: host and NAND bytes, health and temperature."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from opwatch.compare.amplification import COUNTERS_REPLACED, HALFWAY, NOT_READ
from opwatch.counters.catalogue.families import Catalogue
from opwatch.counters.looks.reading import make_poll_report
from opwatch.counters.looks.sample import FirmwareSample
from opwatch.counters.reading import DriveFacts
from opwatch.waf.measure import NOT_THERE, MeasuredWaf, Measurement
from opwatch.waf.polls import make_poll_from_sample
from opwatch.waf.span import IntervalBytes
from opwatch.waf.trail import Trail

# A point of write amplification extends until its error is at most this share of the value.
MAX_ERROR = 0.05
# A fit with a larger residual than this share of the NAND bytes is rejected.
_MAX_RESIDUAL = 0.1
_HEALTH = ("temperature", "percentage_used", "available_spare")


@dataclass(frozen=True, slots=True)
class HealthPoint:
    """Health values that a drive reported at one moment; None for values it did not report."""

    at_ns: int
    temperature: int | None
    percentage_used: int | None
    available_spare: int | None


@dataclass(frozen=True, slots=True)
class WafPart:
    """Write amplification of a part of a run. `written` is the total of host bytes from the first sample to
    the end of the part."""

    end_ns: int
    seconds: float
    host_bytes: int
    nand_bytes: int
    error_bytes: int
    written: int

    @property
    def begin_ns(self) -> int:
        return self.end_ns - round(self.seconds * 1e9)

    @property
    def waf(self) -> float | None:
        """Return NAND bytes per host byte, or None if the host wrote nothing."""
        return self.nand_bytes / self.host_bytes if self.host_bytes else None

    @property
    def error(self) -> float:
        return self.error_bytes / self.host_bytes if self.host_bytes else 0.0


@dataclass(frozen=True, slots=True)
class DriveTimeline:
    """A drive during a run. `measured` covers the whole run; None if not measured, with a `reason`.

    `growth` are (begin_ns, end_ns, NAND bytes) between fresh readings of the drive's counter.
    `flows` are the bytes between changes of the drive's counters. `parts` are flows merged until the error is
    small enough.
    """

    name: str
    facts: DriveFacts
    health: tuple[HealthPoint, ...] = ()
    measured: MeasuredWaf | None = None
    reason: str | None = None
    flows: tuple[IntervalBytes, ...] = ()
    parts: tuple[WafPart, ...] = ()
    growth: tuple[tuple[int, int, int], ...] = ()

    @property
    def is_even(self) -> bool:
        """Return whether host-driven and time-driven writes explain the NAND bytes of all flows.

        If the drive changes its behaviour during the run, a split into the two would be meaningless.
        """
        split = self.measured.split if self.measured else None
        if split is None or split.a is None:
            return False
        squares = math.fsum(float(flow.nand_bytes) ** 2 for flow in self.flows)
        return split.residual <= _MAX_RESIDUAL**2 * squares

    @property
    def waf(self) -> float | None:
        return self.measured.waf if self.measured else None

    @property
    def error(self) -> float | None:
        return self.measured.error if self.measured else None


def build_drive_timeline(
    name: str, looks: Sequence[FirmwareSample], catalogue: Callable[[], Catalogue]
) -> DriveTimeline | None:
    """Return the timeline from all samples of a drive, or None without samples.

    The overall figure equals the figure that `opwatch compare` reports.
    """
    if not looks:
        return None
    trail, health, facts = Trail(), list[HealthPoint](), looks[0].drive
    for look in looks:
        read = make_poll_report(look, Catalogue(()) if look.refused else catalogue())
        if read.denied:
            continue
        trail.add_poll(make_poll_from_sample(look, read.report))
        facts = read.report.drive
        readings = (read.report.readings.get(reading) for reading in _HEALTH)
        values = [reading.value if reading else None for reading in readings]
        if any(value is not None for value in values):
            health.append(HealthPoint(look.end_ns, *values))
    if any(look.counted_on != looks[0].counted_on for look in looks):
        return DriveTimeline(name, facts, tuple(health), reason=COUNTERS_REPLACED)
    if len(trail.moments) < 2:
        return DriveTimeline(name, facts, tuple(health), reason=NOT_THERE if trail.moments else NOT_READ)
    return _measure_drive(name, facts, tuple(health), trail)


def _measure_drive(
    name: str, facts: DriveFacts, health: tuple[HealthPoint, ...], trail: Trail
) -> DriveTimeline:
    measurement = Measurement(trail, 0, len(trail.moments) - 1)
    measured = measurement.make_result()
    flows = tuple(measurement.iter_intervals(measured.stretch, HALFWAY)) if measured.stretch else ()
    return DriveTimeline(
        name=name,
        facts=facts,
        health=health,
        measured=measured,
        reason=measured.reason,
        flows=flows,
        parts=tuple(merge_flows(flows)),
        growth=tuple(measured.stretch.track.iter_growth()) if measured.stretch else (),
    )


def merge_flows(flows: Iterable[IntervalBytes]) -> Iterable[WafPart]:
    """Merge neighbours until the error is small relative to the bytes. An unfinished remainder yields no
    part."""
    written = host = nand = error = 0
    seconds = 0.0
    for flow in flows:
        host, nand, seconds = host + flow.host_bytes, nand + flow.nand_bytes, seconds + flow.seconds
        written += flow.host_bytes
        # Counter granularity causes an error at the two ends only, regardless of the length.
        error = max(error, flow.error_bytes)
        if host and nand and error <= MAX_ERROR * nand:
            yield WafPart(flow.end_ns, seconds, host, nand, error, written)
            host, nand, error, seconds = 0, 0, 0, 0.0
