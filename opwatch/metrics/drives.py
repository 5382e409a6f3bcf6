"""Metrics of a drive's firmware counters."""

from __future__ import annotations

from opwatch.metrics.drive_reading import (
    DriveHealth,
    DriveLabels,
    DriveReading,
    FailureReason,
    mask_numbers,
)
from opwatch.metrics.family import MetricFamily, MetricSamples
from opwatch.metrics.table import (
    ASLEEP,
    CRITICAL_WARNING,
    DRIVE_CAPACITY,
    DRIVE_INFO,
    ENDURANCE_END,
    ENDURANCE_USED,
    HOST_READ,
    HOST_WRITTEN,
    MEDIA_ERRORS,
    MEDIA_WRITTEN,
    POWER_CYCLES,
    POWER_ON,
    QUANTUM,
    READ_FAILURES,
    READ_TIMESTAMP,
    REFUSED,
    SPARE,
    SPARE_THRESHOLD,
    TEMPERATURE,
    WARNING_KINDS,
)

_HOUR_S = 3600
_BYTES: dict[str, tuple[MetricFamily, tuple[str, ...]]] = {
    "host": (HOST_WRITTEN, ("firmware",)),
    "host_read": (HOST_READ, ("firmware",)),
    "media": (MEDIA_WRITTEN, ()),
}
# Counters with a quantum: write amplification is computed from both.
_WITH_QUANTUM = ("host", "media")


def add_drive_metrics(samples: MetricSamples, reading: DriveReading) -> None:
    """Add the metrics of a drive. A refused counter has a reason in place of a value."""
    identity = reading.labels
    drive = identity.device, identity.serial
    _add_identity(samples, identity)
    samples.add(ASLEEP, int(reading.is_asleep), *drive)
    for reason in FailureReason:
        samples.add(READ_FAILURES, reading.failures.get(reason, 0), *drive, reason.value)
    if reading.kernel_written_bytes is not None:
        samples.add(HOST_WRITTEN, reading.kernel_written_bytes, *drive, "kernel")
    if reading.kernel_read_bytes is not None:
        samples.add(HOST_READ, reading.kernel_read_bytes, *drive, "kernel")
    if reading.read_at_s is not None:
        samples.add(READ_TIMESTAMP, reading.read_at_s, *drive)
    _add_byte_counters(samples, reading, drive)
    _add_health(samples, reading.health, reading.read_at_s, drive)


def _add_identity(samples: MetricSamples, identity: DriveLabels) -> None:
    kinds = {True: "hdd", False: "ssd", None: ""}
    labels = (
        *(identity.device, identity.serial, identity.model, identity.firmware),
        *(identity.wwid, identity.transport, kinds[identity.is_rotational]),
    )
    samples.add(DRIVE_INFO, 1, *labels)
    if identity.capacity_bytes is not None:
        samples.add(DRIVE_CAPACITY, identity.capacity_bytes, identity.device, identity.serial)


def _add_byte_counters(samples: MetricSamples, reading: DriveReading, drive: tuple[str, str]) -> None:
    for name, counter in reading.counters.items():
        if counter.value is None or counter.unit != "bytes":
            reason = counter.reason or f"it counts {counter.unit}, not bytes"
            samples.add(REFUSED, 1, *drive, name, mask_numbers(reason))
            continue
        family, labels = _BYTES[name]
        samples.add(family, counter.value, *drive, *labels)
        if name in _WITH_QUANTUM:
            samples.add(QUANTUM, counter.quantum, *drive, name)


def _add_health(
    samples: MetricSamples, health: DriveHealth, read_at_s: float | None, drive: tuple[str, str]
) -> None:
    percentages = (
        (SPARE, health.spare_percent),
        (SPARE_THRESHOLD, health.spare_threshold_percent),
        (ENDURANCE_USED, health.used_percent),
    )
    for family, percent in percentages:
        if percent is not None:
            samples.add(family, percent / 100, *drive)
    plain = (
        (TEMPERATURE, health.temperature_celsius),
        (MEDIA_ERRORS, health.media_errors),
        (POWER_ON, None if health.power_on_hours is None else health.power_on_hours * _HOUR_S),
        (POWER_CYCLES, health.power_cycles),
    )
    for family, value in plain:
        if value is not None:
            samples.add(family, value, *drive)
    if health.critical_warning is not None:
        for bit, kind in enumerate(WARNING_KINDS):
            samples.add(CRITICAL_WARNING, health.critical_warning >> bit & 1, *drive, kind)
    if health.hours_left is not None and read_at_s is not None:
        early, late = health.hours_left
        samples.add(ENDURANCE_END, round(read_at_s + early * _HOUR_S), *drive, "early")
        if late is not None:
            samples.add(ENDURANCE_END, round(read_at_s + late * _HOUR_S), *drive, "late")
