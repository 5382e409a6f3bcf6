"""Merging of two reports about one drive."""

from __future__ import annotations

from dataclasses import fields

import pytest

from opwatch.counters.evidence import (
    Attribute,
    Evidence,
    ScsiCounters,
    Statistics,
    VendorPage,
    merge_evidence,
)
from opwatch.counters.reading import DriveFacts
from opwatch.errors import UsageError

FULL = Evidence(
    drive=DriveFacts(serial="S1", model="M"),
    vendor=(VendorPage(0xC0),),
    attributes=(Attribute(241, "Total_LBAs_Written", 5, "5"),),
    statistics=Statistics({(1, 0x18): 7}),
    scsi=ScsiCounters(written_mb=3),
    power_on_hours=10,
    temperature_celsius=40,
    passed=True,
    endurance_used=2,
    asleep=True,
    local_time_s=1_700_000_000,
    failures=("log C0h: refused",),
)


@pytest.mark.parametrize("name", [column.name for column in fields(Evidence)])
def test_merge_keeps_a_field_that_one_report_has(name: str) -> None:
    alone = Evidence(**{name: getattr(FULL, name)})
    assert merge_evidence(alone, Evidence()) == merge_evidence(Evidence(), alone) == alone


def test_merge_combines_records_field_by_field() -> None:
    written, read = Evidence(scsi=ScsiCounters(written_mb=3)), Evidence(scsi=ScsiCounters(read_mb=4))
    assert merge_evidence(written, read).scsi == ScsiCounters(written_mb=3, read_mb=4)


@pytest.mark.parametrize(
    "other",
    [
        Evidence(scsi=ScsiCounters(written_mb=4)),
        Evidence(statistics=Statistics({(1, 0x18): 8})),
        Evidence(passed=False),
        Evidence(drive=DriveFacts(serial="S2")),
    ],
    ids=["record", "value", "flag", "drive"],
)
def test_merge_refuses_reports_that_contradict_each_other(other: Evidence) -> None:
    with pytest.raises(UsageError):
        merge_evidence(FULL, other)


def test_merge_keeps_the_first_of_two_moments() -> None:
    later = Evidence(power_on_hours=11, temperature_celsius=50)
    merged = merge_evidence(FULL, later)
    assert (merged.power_on_hours, merged.temperature_celsius) == (10, 40)
