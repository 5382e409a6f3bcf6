"""The state of a drive's firmware counters at an answer, as the exporter keeps it between readings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opwatch.counters.decode.smart_log import SmartLog
    from opwatch.counters.looks.reading import PollReport
    from opwatch.counters.reading import CounterReading, DriveFacts, Report


# The byte counters, by their label and their name in a report.
BYTE_COUNTERS = {"host": "host_written", "host_read": "host_read", "media": "nand_written"}
# Fields of DriveHealth that only increase.
_HEALTH_COUNTERS = ("media_errors", "power_on_hours", "power_cycles")
_NUMBER = re.compile(r"(?<![\w.])\d[\d.,]*(?!\w)")


class FailureReason(StrEnum):
    """Why a drive could not be read."""

    TIMEOUT = "timeout"
    REFUSED = "refused"
    PERMISSION = "permission"


@dataclass(frozen=True, slots=True)
class DriveLabels:
    """Identity of the drive behind a device. Unknown texts are empty."""

    device: str
    serial: str = ""
    model: str = ""
    firmware: str = ""
    wwid: str = ""
    transport: str = ""
    is_rotational: bool | None = None
    capacity_bytes: int | None = None

    @classmethod
    def from_facts(
        cls, device: str, facts: DriveFacts, *, wwid: str = "", transport: str = ""
    ) -> DriveLabels:
        """Return the labels from the drive's own facts."""
        return cls(
            device=device,
            serial=facts.serial or "",
            model=facts.model or "",
            firmware=facts.firmware or "",
            wwid=wwid,
            transport=transport or facts.protocol or "",
            is_rotational=facts.rotational,
            capacity_bytes=facts.capacity_bytes,
        )


@dataclass(frozen=True, slots=True)
class DriveHealth:
    """Health values of a reading. A value is None if the drive does not report it."""

    spare_percent: int | None = None
    spare_threshold_percent: int | None = None
    used_percent: int | None = None
    temperature_celsius: int | None = None
    media_errors: int | None = None
    power_on_hours: int | None = None
    power_cycles: int | None = None
    # Bits as in log page 02h.
    critical_warning: int | None = None
    # Power-on hours until the rated endurance is used up; the second is None without an upper bound.
    hours_left: tuple[float, float | None] | None = None


@dataclass(frozen=True, slots=True)
class DriveReading:
    """The last successful reading of a drive, and what happened since.

    `counters` are by the labels of BYTE_COUNTERS; a refused counter has its reason. `read_at_s` is the Unix
    time of the reading, None if the drive was never read. `failures` counts failed readings. `is_asleep`: the
    last attempt found the drive in standby. `kernel_written_bytes` and `kernel_read_bytes` are the kernel's
    counts since boot. `highest` are the largest values of the counters so far, by their names here.
    """

    labels: DriveLabels
    counters: Mapping[str, CounterReading] = field(default_factory=dict)
    health: DriveHealth = field(default_factory=DriveHealth)
    read_at_s: float | None = None
    failures: Mapping[FailureReason, int] = field(default_factory=dict)
    is_asleep: bool = False
    kernel_written_bytes: int | None = None
    kernel_read_bytes: int | None = None
    highest: Mapping[str, int] = field(default_factory=dict)

    def with_failure(self, reason: FailureReason) -> DriveReading:
        """Return the reading after another attempt that failed."""
        return replace(self, failures={**self.failures, reason: self.failures.get(reason, 0) + 1})

    def as_asleep(self) -> DriveReading:
        """Return the reading after an attempt that found the drive in standby, and did not wake it."""
        return replace(self, is_asleep=True)

    def update_values(self, now: DriveReading) -> DriveReading:
        """Return a newer reading of the same drive, with the failures so far.

        A counter that decreased is left out until it reaches its largest value again, unless the firmware
        changed. A byte counter then has a reason.
        """
        highest = dict(self.highest) if self.labels.firmware == now.labels.firmware else {}

        def has_decreased(name: str, value: int | None) -> bool:
            if value is None:
                return False
            highest[name] = max(value, highest.get(name, 0))
            return value < highest[name]

        counters = {
            name: counter.without_value("the drive reported a larger value before")
            if has_decreased(name, counter.value)
            else counter
            for name, counter in now.counters.items()
        }
        missing = dict.fromkeys(
            name for name in _HEALTH_COUNTERS if has_decreased(name, getattr(now.health, name))
        )
        health = replace(now.health, **missing) if missing else now.health
        return replace(now, counters=counters, health=health, failures=self.failures, highest=highest)


def make_drive_reading(labels: DriveLabels, poll: PollReport, read_at_s: float) -> DriveReading:
    """Return the reading of a poll that was not denied, at a Unix time."""
    readings = poll.report.readings
    return DriveReading(
        labels=labels,
        counters={label: readings[name] for label, name in BYTE_COUNTERS.items() if name in readings},
        health=make_health(poll.report, poll.evidence.smart),
        read_at_s=read_at_s,
    )


def make_health(report: Report, smart: SmartLog | None) -> DriveHealth:
    """Return the health values of a report, and of log page 02h if it was read."""
    used, hours = report.readings.get("percentage_used"), _read_value(report, "power_on_hours")
    return DriveHealth(
        spare_percent=_read_value(report, "available_spare"),
        spare_threshold_percent=_read_value(report, "spare_threshold"),
        used_percent=used.value if used else None,
        temperature_celsius=_read_value(report, "temperature"),
        media_errors=smart.media_errors if smart else None,
        power_on_hours=hours,
        power_cycles=_read_value(report, "power_cycles"),
        critical_warning=smart.critical_warning if smart else None,
        hours_left=predict_hours_left(used, hours) if used and hours else None,
    )


def _read_value(report: Report, name: str) -> int | None:
    reading = report.readings.get(name)
    return reading.value if reading else None


def predict_hours_left(used: CounterReading, hours: int) -> tuple[float, float | None] | None:
    """Return the power-on hours until 100 % is used at the drive's average pace, as bounds.

    Both values are integers: the wear is less than one step from its percentage, the time less than an hour
    from its hours. The upper bound is None if the wear may be zero; both are unknown if the wear is not
    reported, or only as a lower bound.
    """
    percent = used.value
    if percent is None or used.at_least or hours <= 0:
        return None
    fastest, slowest = (percent + used.quantum) / hours, max(percent - used.quantum, 0) / (hours + 1)
    early = max(100 - percent - used.quantum, 0) / fastest
    late = max(100 - percent + used.quantum, 0) / slowest if slowest else None
    return early, late


def mask_numbers(reason: str) -> str:
    """Return a reason with its numbers replaced by N, so that the label does not change with a counter."""
    return _NUMBER.sub("N", reason)
