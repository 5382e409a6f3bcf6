"""Polls of a drive as readings. Imports the proof of counters, so import on demand."""

from __future__ import annotations

from dataclasses import replace

from opwatch.counters.catalogue.families import Catalogue
from opwatch.counters.looks.reading import make_poll_report
from opwatch.counters.looks.sample import FirmwareSample
from opwatch.errors import PermissionMissing
from opwatch.metrics.drive_reading import DriveLabels, DriveReading, FailureReason, make_drive_reading


def update_reading(
    before: DriveReading | None,
    sample: FirmwareSample,
    catalogue: Catalogue,
    at_s: float,
    *,
    wwid: str = "",
    transport: str = "",
) -> DriveReading:
    """Return the reading of a drive after another poll, at a Unix time.

    `before` is the reading of the device so far. It does not count if another drive answers under its name. A
    poll that read no value is a failure, and the earlier values stay.
    """
    poll = make_poll_report(sample, catalogue)
    labels = DriveLabels.from_facts(sample.disk, poll.report.drive, wwid=wwid, transport=transport)
    is_same = before is not None and labels.serial in ("", before.labels.serial)
    reading = before if before is not None and is_same else DriveReading(labels)
    if poll.evidence.asleep:
        return reading.as_asleep()
    has_values = any(counter.value is not None for counter in poll.report.readings.values())
    if poll.denied is not None or not has_values:
        is_denied = isinstance(poll.denied, PermissionMissing)
        return reading.with_failure(FailureReason.PERMISSION if is_denied else FailureReason.REFUSED)
    now = make_drive_reading(labels, poll, at_s)
    return reading.update_values(replace(now, kernel_written_bytes=sample.after))
