"""Percentage used: bounds, attributes if no page reports it, and failing attributes."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from opwatch.counters.catalogue.families import load_catalogue
from opwatch.counters.decode.smart_log import SmartLog
from opwatch.counters.evidence import Attribute, Evidence, Statistics
from opwatch.counters.prove.report import make_report
from opwatch.counters.reading import DriveFacts, Report
from opwatch.counters.reports.smartctl_json import parse_smartctl_json
from opwatch.counters.reports.smartctl_text import parse_smartctl_text
from opwatch.sinks.counters import build_counters_document, format_counters

CATALOGUE = load_catalogue(system=Path("/nonexistent"))
SAMSUNG = DriveFacts("ata", "Samsung SSD 860 PRO 256GB", family="Samsung based SSDs")
INTEL_520 = DriveFacts("ata", "INTEL SSDSC2CW480A3", family="Intel 520 Series SSDs")
PHISON = DriveFacts("ata", "GOODRAM", family="Phison Driven SSDs")
CRUCIAL = DriveFacts("ata", "CT2000MX500SSD1", family="Crucial/Micron MX500 SSDs")


def report_evidence(evidence: Evidence) -> Report:
    return make_report(evidence, CATALOGUE)


def get_used_percentage(evidence: Evidence) -> int | None:
    return report_evidence(evidence).readings["percentage_used"].value


def make_worn_evidence(protocol: str) -> Evidence:
    """A drive that passes its self-assessment, with a saturated wear byte."""
    if protocol == "nvme":
        smart = SmartLog(percentage_used=255, power_on_hours=30_000, critical_warning=0)
        return Evidence(DriveFacts("nvme"), smart=smart, passed=True)
    wear = Attribute(177, "Wear_Leveling_Count", 7065, "7065", 1)
    return Evidence(SAMSUNG, statistics=Statistics({(7, 8): 255}), attributes=(wear,), passed=True)


@pytest.mark.parametrize("protocol", ["nvme", "ata"])
def test_wear_byte_of_255_is_a_bound_with_a_serious_note(protocol: str) -> None:
    drive = report_evidence(make_worn_evidence(protocol))
    reading = build_counters_document(drive, None)["percentage_used"]
    assert (reading["value"], reading["lower_bound"]) == (255, True)
    [note] = [note for note in drive.health if note.serious]
    assert note.says.startswith("255 % or more ")
    shown = "\n".join(format_counters(drive))
    assert "255 % or more" in shown and "HEALTH: 255 % or more" in shown
    assert drive.paces == ()
    assert all(len(line) <= 80 for line in format_counters(drive))


@pytest.mark.parametrize("value", [254, 100, 7])
def test_wear_byte_below_255_is_not_a_bound(value: int) -> None:
    drive = report_evidence(Evidence(DriveFacts("nvme"), smart=SmartLog(percentage_used=value)))
    reading = build_counters_document(drive, None)["percentage_used"]
    assert (reading["value"], reading["lower_bound"]) == (value, False)


def test_statistics_that_an_attribute_of_wear_contradicts_are_refused() -> None:
    """All 46 captured Intel 520, 525, 330 and 335 report 255 at any wear."""
    full = Statistics({(7, 8): 255})
    wear = Attribute(233, "Media_Wearout_Indicator", 0, "0", 98)
    drive = report_evidence(Evidence(INTEL_520, statistics=full, attributes=(wear,)))
    assert drive.readings["percentage_used"].value == 2
    assert re.search(r"\b233 .* 98 % .* 255 %", drive.others["percentage_used"][0].reason or "")
    assert not any(note.serious for note in drive.health)
    ids = {201: 0, 204: 0, 230: 100, 231: 0, 233: 20058, 234: 9}
    unnamed = tuple(Attribute(key, "Unknown_SSD_Attribute", raw, str(raw), 100) for key, raw in ids.items())
    assert get_used_percentage(Evidence(DriveFacts("ata"), statistics=full, attributes=unnamed)) is None


@pytest.mark.parametrize(
    ("drive", "attribute", "expected"),
    [
        (SAMSUNG, (177, "Wear_Leveling_Count", 716, 52), 48),
        (SAMSUNG, (173, "Wear_Leveling_Count", 499, 76), 24),
        (SAMSUNG, (173, "Wear_Leveling_Count", 8478, 1), 99),
        (SAMSUNG, (173, "Wear_Leveling_Count", 744357912, 96), None),
        (replace(SAMSUNG, family=None), (177, "Wear_Leveling_Count", 716, 52), None),
        (INTEL_520, (233, "Media_Wearout_Indicator", 0, 52), 48),
        (INTEL_520, (233, "Media_Wearout_Indicator", 56946846, 100), None),
        (CRUCIAL, (202, "Percent_Lifetime_Remain", 8, 92), 8),
        (CRUCIAL, (202, "Percent_Lifetime_Remain", 155, 201), 155),
        (CRUCIAL, (202, "Percent_Lifetime_Remain", 69, 69), None),
        (PHISON, (231, "SSD_Life_Left", 85, 100), 15),
        (PHISON, (231, "SSD_Life_Left", 0, 100), None),
        (PHISON, (231, "Temperature_Celsius", 85, 100), None),
    ],
)
def test_wear_is_read_from_a_vendor_attribute(
    drive: DriveFacts, attribute: tuple[int, str, int, int], expected: int | None
) -> None:
    number, name, raw, value = attribute
    evidence = Evidence(drive, attributes=(Attribute(number, name, raw, str(raw), value),))
    reading = report_evidence(evidence).readings["percentage_used"]
    assert reading.value == expected
    assert expected is None or f"attribute {number} {name}" in reading.source


def test_exhausted_wear_attribute_is_a_bound() -> None:
    wear = Attribute(177, "Wear_Leveling_Count", 7065, "7065", 1)
    drive = report_evidence(Evidence(SAMSUNG, attributes=(wear,), power_on_hours=9000))
    assert build_counters_document(drive, None)["percentage_used"]["lower_bound"] is True
    assert any(note.serious and note.says.startswith("99 % ") for note in drive.health)
    assert drive.paces == ()


def test_the_page_comes_before_the_attribute_and_a_difference_is_shown() -> None:
    wear = Attribute(177, "Wear_Leveling_Count", 635, "635", 65)
    near = Evidence(SAMSUNG, statistics=Statistics({(7, 8): 37}), attributes=(wear,))
    assert get_used_percentage(near) == 37 and not report_evidence(near).others["percentage_used"]
    far = replace(near, statistics=Statistics({(7, 8): 80}))
    assert get_used_percentage(far) == 80
    assert [other.value for other in report_evidence(far).others["percentage_used"]] == [35]


def test_the_endurance_of_a_sata_drive_is_not_a_scsi_log() -> None:
    raw = {"smartctl": {}, "device": {"protocol": "ATA"}, "endurance_used": {"current_percent": 7}}
    reading = report_evidence(parse_smartctl_json(raw)).readings["percentage_used"]
    assert reading.value == 7 and "endurance_used" in reading.source and reading.proof.value == "candidate"
    assert parse_smartctl_json({**raw, "device": {"protocol": "NVMe"}}).scsi is None
    sas = parse_smartctl_json({**raw, "device": {"protocol": "SCSI"}})
    assert report_evidence(sas).readings["percentage_used"].source == "SCSI log 11h"


TABLE = """smartctl 7.3 2022-02-28
=== START OF INFORMATION SECTION ===
Device Model:     ACME SSD
=== START OF READ SMART DATA SECTION ===
SMART overall-health self-assessment test result: PASSED
ID# ATTRIBUTE_NAME          FLAG     VALUE WORST THRESH TYPE      UPDATED  WHEN_FAILED RAW_VALUE
  5 Reallocated_Sector_Ct   0x0033   001   001   010    Pre-fail  Always   FAILING_NOW 2040
 10 Spin_Retry_Count        0x0033   100   005   010    Pre-fail  Always   In_the_past 0
 12 Power_Cycle_Count       0x0032   100   100   000    Old_age   Always       -       50
"""
BRIEF = """smartctl 7.3 2022-02-28
=== START OF INFORMATION SECTION ===
Device Model:     ACME SSD
=== START OF READ SMART DATA SECTION ===
ID# ATTRIBUTE_NAME          FLAGS    VALUE WORST THRESH FAIL RAW_VALUE
  5 Reallocated_Sector_Ct   PO--CK   001   001   010    NOW  2040
 10 Spin_Retry_Count        PO--CK   100   005   010    Past 0
 12 Power_Cycle_Count       -O--CK   100   100   000    -    50
"""
ROWS = [(5, "Reallocated_Sector_Ct", 1, 2040, "now"), (10, "Spin_Retry_Count", 100, 0, "past")]
AS_JSON = {
    "device": {"protocol": "ATA"},
    "smart_status": {"passed": True},
    "ata_smart_attributes": {
        "table": [
            {"id": i, "name": n, "value": v, "when_failed": f, "raw": {"value": r, "string": str(r)}}
            for i, n, v, r, f in [*ROWS, (12, "Power_Cycle_Count", 100, 50, "")]
        ]
    },
}


@pytest.mark.parametrize(
    "evidence", [parse_smartctl_text(TABLE), parse_smartctl_text(BRIEF), parse_smartctl_json(AS_JSON)]
)
def test_failing_attributes_are_noted_even_if_the_drive_passes(evidence: Evidence) -> None:
    report = report_evidence(evidence)
    notes = [note for note in report.health if note.source.startswith("attribute ")]
    assert [(note.source, note.serious) for note in notes] == [
        ("attribute 5 Reallocated_Sector_Ct", True),
        ("attribute 10 Spin_Retry_Count", False),
        # Its raw value.
        ("attribute 5 Reallocated_Sector_Ct", False),
    ]
    assert "2040" in notes[2].says
    document = json.loads(json.dumps(build_counters_document(report, None)))
    assert [note["source"] for note in document["health"] if note["serious"]] == [notes[0].source]
