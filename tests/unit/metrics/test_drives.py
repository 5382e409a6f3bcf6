"""Metrics of a drive's counters."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from opwatch.counters.looks.reading import make_poll_report
from opwatch.counters.looks.sample import FirmwareSample, Refusal, RefusalKind, SmartctlOutput
from opwatch.counters.reading import CounterReading, DriveFacts, Proof
from opwatch.metrics.drive_polls import update_reading
from opwatch.metrics.drive_reading import (
    DriveHealth,
    DriveLabels,
    DriveReading,
    FailureReason,
    make_drive_reading,
    mask_numbers,
    predict_hours_left,
)
from opwatch.metrics.drives import add_drive_metrics
from opwatch.metrics.family import MetricSamples, MetricValue
from opwatch.metrics.table import (
    ASLEEP,
    CRITICAL_WARNING,
    ENDURANCE_END,
    HOST_READ,
    HOST_WRITTEN,
    MEDIA_WRITTEN,
    QUANTUM,
    READ_FAILURES,
    READ_TIMESTAMP,
    REFUSED,
    SPARE,
)
from tests.unit.support.drive_readings import read_drive
from tests.unit.support.metric_answers import make_counter, make_reading
from tests.unit.support.virtual_drive import CATALOGUE, OCP, VirtualDrive

DRIVE = ("nvme0n1", "S64GNE0R700001X")


def collect(reading: DriveReading) -> dict[str, dict[tuple[str, ...], MetricValue]]:
    """Return the values by family and labels without device and serial."""
    samples = MetricSamples()
    add_drive_metrics(samples, reading)
    assert all(labels[:2] == DRIVE for rows in samples.rows.values() for labels, _ in rows)
    return {name: {labels[2:]: value for labels, value in rows} for name, rows in samples.rows.items()}


def test_reported_values_have_series() -> None:
    rows = collect(make_reading())
    assert rows[HOST_WRITTEN.name] == {("firmware",): 10**14, ("kernel",): 123456789012}
    assert rows[HOST_READ.name] == {("firmware",): 2 * 10**14, ("kernel",): 223456789012}
    assert rows[MEDIA_WRITTEN.name] == {(): 3 * 10**14}
    assert rows[QUANTUM.name] == {("host",): 512_000, ("media",): 1}
    assert rows[SPARE.name] == {(): 1.0}
    assert rows[READ_FAILURES.name] == dict.fromkeys([("timeout",), ("refused",), ("permission",)], 0)
    assert rows[CRITICAL_WARNING.name] == {
        ("spare",): 1,
        ("temperature",): 0,
        ("reliability",): 1,
        ("read_only",): 0,
        ("backup",): 0,
    }
    assert rows[ENDURANCE_END.name] == {("early",): 1.78e9 + 3.6e8, ("late",): 1.78e9 + 7.2e8}
    assert REFUSED.name not in rows


def test_refused_counter_has_a_reason_in_place_of_a_value() -> None:
    reading = make_reading()
    counters = {
        "host": make_counter(None, reason="1234567 bytes in 2,000 commands"),
        "media": make_counter(5),
    }
    rows = collect(DriveReading(reading.labels, counters))
    assert rows[REFUSED.name] == {("host", "N bytes in N commands"): 1}
    assert rows[MEDIA_WRITTEN.name] == {(): 5}
    assert HOST_WRITTEN.name not in rows
    assert rows[QUANTUM.name] == {("media",): 1}


def test_drive_that_was_never_read_has_its_identity_and_failures() -> None:
    reading = DriveReading(make_reading().labels).with_failure(FailureReason.TIMEOUT)
    rows = collect(reading.with_failure(FailureReason.TIMEOUT).as_asleep())
    assert rows[READ_FAILURES.name]["timeout",] == 2
    assert rows[ASLEEP.name] == {(): 1}
    assert not {READ_TIMESTAMP.name, SPARE.name, HOST_WRITTEN.name, REFUSED.name} & set(rows)


def test_counter_that_decreases_is_refused_until_it_exceeds_its_largest_value() -> None:
    labels, empty = make_reading().labels, DriveReading(make_reading().labels)
    values = []
    reading = empty.with_failure(FailureReason.REFUSED)
    for value in (10, 20, 15, 19, 20, 30):
        reading = reading.update_values(DriveReading(labels, {"host": make_counter(value)}))
        values.append(reading.counters["host"].value)
    assert values == [10, 20, None, None, 20, 30]
    assert reading.failures == {FailureReason.REFUSED: 1}


def test_counters_may_restart_with_a_new_firmware() -> None:
    old, new = (make_reading(firmware=version).labels for version in ("1", "2"))
    reading = DriveReading(old).update_values(DriveReading(old, {"media": make_counter(10)}))
    assert reading.update_values(DriveReading(new, {"media": make_counter(5)})).counters["media"].value == 5


@pytest.mark.parametrize("name", ["media_errors", "power_on_hours", "power_cycles"])
def test_health_counter_that_decreased_is_left_out_until_it_is_as_large_again(name: str) -> None:
    labels = make_reading().labels
    reading, served = DriveReading(labels), []
    for value in (50, 40, 41, 50, 60):
        reading = reading.update_values(DriveReading(labels, health=DriveHealth(**{name: value})))  # type: ignore[arg-type]
        served.append(getattr(reading.health, name))
    assert served == [50, None, None, 50, 60]


def make_used(percent: int | None, *, at_least: bool = False) -> CounterReading:
    return CounterReading(percent, "percent", 1, "log 02h", Proof.SPEC, at_least=at_least)


@pytest.mark.parametrize("wear", [0.4, 3.5, 12.2, 57.9, 99.5])
@pytest.mark.parametrize("hours", [100.5, 8760.2, 43800.9])
def test_true_end_is_within_the_bounds(wear: float, hours: float) -> None:
    left = (100 - wear) * hours / wear
    for percent in (int(wear), int(wear) + 1):
        bounds = predict_hours_left(make_used(percent), int(hours))
        assert bounds
        early, late = bounds
        assert early <= left <= (late if late is not None else float("inf"))


def test_end_is_unknown_without_wear() -> None:
    assert predict_hours_left(make_used(None), 100) is None
    assert predict_hours_left(make_used(255, at_least=True), 100) is None
    assert predict_hours_left(make_used(0), 0) is None
    assert predict_hours_left(make_used(0), 1000) == (99_000, None)
    assert predict_hours_left(make_used(120), 1000) == (0, 0)


def test_only_plain_numbers_are_masked() -> None:
    assert (
        mask_numbers("log 02h: 1,234 of 5.5 TB in sda1, nothing at 3")
        == "log 02h: N of N TB in sda1, nothing at N"
    )
    assert mask_numbers("wrapped at 2^32 sectors") == mask_numbers("wrapped at 4^16 sectors")


def test_poll_of_a_drive_becomes_a_reading() -> None:
    drive = VirtualDrive(OCP, 1)
    poll = make_poll_report(read_drive(drive), CATALOGUE)
    labels = DriveLabels.from_facts("nvme0n1", poll.report.drive, wwid="eui.1")
    reading = make_drive_reading(labels, poll, 1.7e9)
    assert reading.counters["host"].value == poll.report.readings["host_written"].value
    assert reading.counters["media"] == poll.report.readings["nand_written"]
    assert poll.evidence.smart
    assert reading.health.media_errors == poll.evidence.smart.media_errors
    assert reading.health.critical_warning == poll.evidence.smart.critical_warning
    assert reading.labels.model == poll.report.drive.model
    assert isinstance(reading.health, DriveHealth)


def test_polls_update_a_reading() -> None:
    drive = VirtualDrive(OCP, 1)
    first = update_reading(None, read_drive(drive), CATALOGUE, 1.0, wwid="eui.1")
    drive.advance_time(60)
    sample = read_drive(drive)
    second = update_reading(first, sample, CATALOGUE, 2.0)
    assert (first.read_at_s, second.read_at_s) == (1.0, 2.0)
    assert second.kernel_written_bytes == sample.after
    before, after = (one.counters["host"].value for one in (first, second))
    assert before is not None
    assert after is not None
    assert after >= before


def make_refused(kind: RefusalKind, serial: str | None = None) -> FirmwareSample:
    return FirmwareSample(
        disk="nvme0n1",
        drive=DriveFacts(name="nvme0n1", serial=serial),
        begin_ns=1,
        end_ns=2,
        before=None,
        after=None,
        refused=Refusal(kind, "refused"),
    )


def test_failed_polls_keep_the_values_and_are_counted() -> None:
    first = make_reading()
    second = update_reading(first, make_refused(RefusalKind.PERMISSION), CATALOGUE, 5.0)
    third = update_reading(second, make_refused(RefusalKind.OTHER, DRIVE[1]), CATALOGUE, 6.0)
    assert third.counters == first.counters
    assert third.read_at_s == first.read_at_s
    assert third.failures == {FailureReason.PERMISSION: 1, FailureReason.REFUSED: 1}


def test_another_drive_under_the_same_name_starts_without_values() -> None:
    other = update_reading(make_reading(), make_refused(RefusalKind.OTHER, "S2"), CATALOGUE, 5.0)
    assert other.labels.serial == "S2"
    assert (other.counters, other.read_at_s) == ({}, None)


def test_sleeping_drive_keeps_its_values() -> None:
    message = {"string": "Device is in STANDBY mode, exit(2)", "severity": "information"}
    document = {"smartctl": {"exit_status": 2, "messages": [message]}}
    asleep = SmartctlOutput(2, json.dumps(document).encode())
    sample = replace(make_refused(RefusalKind.OTHER), refused=None, smartctl=asleep)
    reading = update_reading(make_reading(), sample, CATALOGUE, 5.0)
    assert reading.is_asleep
    assert reading.counters == make_reading().counters
    assert not reading.failures
