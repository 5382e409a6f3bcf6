"""Counters of real drives checked against each other: no number that the drive's other counters
contradict."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from opwatch.counters.catalogue.families import load_catalogue
from opwatch.counters.evidence import Attribute, Evidence, ScsiCounters, Statistics
from opwatch.counters.prove import sanity
from opwatch.counters.prove.report import make_report
from opwatch.counters.reading import CounterReading, DriveFacts, Proof
from opwatch.counters.reports.numbers import parse_integer, parse_json_number
from opwatch.counters.reports.smartctl_text import parse_smartctl_text
from opwatch.sinks.counters import build_counters_document, format_counters
from tests.learning.rows import drop_statistics, read_rows

ROWS = Path(__file__).parents[2] / "fixtures" / "good" / "smart_rows" / "drives.jsonl"
CATALOGUE = load_catalogue(system=Path("/nonexistent"))
DRIVES = {f"{drive.drive.model} {drive.drive.firmware}": drive for drive in read_rows(ROWS)}
MIB16, GIB = 1 << 24, 1 << 30


def get_host_reading(evidence: Evidence) -> CounterReading:
    return make_report(evidence, CATALOGUE).readings["host_written"]


# Expected bytes from attributes alone, then with device statistics.
EXPECTED = {
    "SanDisk SD8SB8U-128G-1006 X4120006": (636384 * MIB16, 636384 * MIB16),
    "SK hynix SC311 SATA 128GB 70000P10": (9588736748 * 512, 9588736748 * 512),
    "XF1230-1A0240 ST200355": (5084 * GIB, 10661946025 * 512),
    "MZ7KM480HMHQ0D3 GD57": (12202679391 * 512, 12202679391 * 512),
    "GIGABYTE GP-GSTFS31240GNTD SBFM61.3": (5463 * GIB, 11457541761 * 512),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_units_are_correct_despite_misleading_names(name: str) -> None:
    alone, together = EXPECTED[name]
    assert get_host_reading(drop_statistics(DRIVES[name])).value == alone
    value = get_host_reading(DRIVES[name]).value
    assert value is not None and abs(value - together) <= 2 * get_host_reading(DRIVES[name]).quantum


def test_statistics_contradicted_by_erases_are_refused() -> None:
    # 3.18 PB with 325 erases of 128 GB.
    reading = get_host_reading(DRIVES["SanDisk SD7SB3Q128G1001 X2160001"])
    assert reading.value is None and "325 erases" in (reading.reason or "")


@pytest.mark.parametrize("with_statistics", [True, False])
@pytest.mark.parametrize("firmware", ["X6103006", "X6104006", "X4143106"])
def test_statistics_that_repeat_attributes_prove_no_unit(firmware: str, *, with_statistics: bool) -> None:
    # 489162 is both attribute 241 and the statistics' sector count. In GiB this is 525 TB, with 5 erases of
    # 256 GB; 16 and 32 MiB fit the erases equally well.
    ours = DRIVES["SanDisk SD9SB8W-256G-1006 X6103006"]
    drive = replace(ours, drive=replace(ours.drive, firmware=firmware))
    reading = get_host_reading(drive if with_statistics else drop_statistics(drive))
    assert reading.value is None and reading.reason
    assert get_host_reading(DRIVES["SanDisk SD8SB8U-128G-1006 X4120006"]).value == 636384 * MIB16


def test_counterfeit_is_not_treated_as_the_genuine_model() -> None:
    ours = DRIVES["Ssmsung SSD 870 EVO 250GB FW200807"]
    names = tuple(replace(attribute, name="Unknown_Attribute") for attribute in ours.attributes)
    fake = replace(ours, drive=replace(ours.drive, model="Samsung SSD 870 EVO 250GB"), attributes=names)
    # 262770 sectors would be 135 MB.
    value = get_host_reading(drop_statistics(fake)).value
    assert value is None or abs(value - (262770 << 25)) <= 1 << 25
    assert get_host_reading(ours).value == 17220894720 * 512


def get_nand_reading(name: str) -> CounterReading:
    return make_report(DRIVES[name], CATALOGUE).readings["nand_written"]


def test_nand_writes_unconfirmed_by_erases_are_refused() -> None:
    # 71,245 GiB of TLC are 1.12 times 68 erases of 1 TB; 259,021 GiB of SLC are 3.8 times as much.
    for model in ("SanDisk SSD PLUS 1000GB UH5100RL", "WD Blue SA510 2.5 250GB 52008100"):
        refused = get_nand_reading(model)
        assert refused.value is None and "233" in (refused.reason or "")


def test_page_count_gives_bytes_when_host_pages_were_full() -> None:
    assert get_nand_reading("Crucial_CT250MX200SSD1 MU02").value == (593061801 + 334502269) * 16384
    # 174 TB do not fit in 208,645,945 pages: the page count has wrapped.
    refused = get_nand_reading("Crucial_CT250MX200SSD1 MU01")
    assert refused.value is None and f"{208_645_945 * 16384} bytes" in (refused.reason or "")


def test_pages_of_unknown_size_give_only_a_ratio() -> None:
    mx500 = parse_smartctl_text((ROWS.parents[1] / "counters/linuxhw/mx500_devstat_wrap32.txt").read_text())
    said = make_report(mx500, CATALOGUE)
    life = said.lifetime
    assert life and life.most is None and abs(life.ratio - (2525283724 + 1507252867) / 2525283724) < 1e-12
    assert said.readings["nand_written"].value is None and life.least < life.ratio
    assert any(re.match(r"lifetime WAF: 1\.6 .*: 1\.6 .*pages", line) for line in format_counters(said))
    assert build_counters_document(said, None)["lifetime_waf"]["of"] == "pages"
    none = tuple(a if a.id != 247 else replace(a, raw=0) for a in mx500.attributes)
    assert make_report(replace(mx500, attributes=none), CATALOGUE).lifetime is None


def test_lagging_attribute_is_not_a_contradiction() -> None:
    reading = get_host_reading(DRIVES["INTEL SSDSC2BW120A4 DC32"])
    assert reading.proof is Proof.SPEC


def scale_statistics(evidence: Evidence, factor: float) -> Evidence:
    assert evidence.statistics
    values = {where: round(value * factor) for where, value in evidence.statistics.values.items()}
    return replace(evidence, statistics=Statistics(values))


@pytest.mark.parametrize("factor", [0.1, 2, 10])
@pytest.mark.parametrize(
    "name",
    ["SK hynix SC311 SATA 128GB 70000P10", "XF1230-1A0240 ST200355", "Ssmsung SSD 870 EVO 250GB FW200807"],
)
def test_scaled_statistics_are_contradicted(name: str, factor: float) -> None:
    reading = get_host_reading(scale_statistics(DRIVES[name], factor))
    assert reading.value is None and reading.reason


def make_acme_evidence(
    sectors: int, hours: int | None, capacity: int | None, *attributes: Attribute
) -> Evidence:
    return Evidence(
        DriveFacts("ata", "ACME", capacity_bytes=capacity),
        attributes=attributes,
        statistics=Statistics({(1, 0x18): sectors}),
        power_on_hours=hours,
    )


@pytest.mark.parametrize(
    ("evidence", "reason"),
    [
        (make_acme_evidence(10**13, 100, None), " in 100 hours "),
        (make_acme_evidence(10**13, None, 10**11), " 40000 times "),
        # An implausible hour count does not make the value possible.
        (make_acme_evidence(10**13, 10**6, 10**11), " 40000 times "),
        (
            make_acme_evidence(10**11, 9000, 10**11, Attribute(173, "Avg_Write/Erase_Count", 11, "11")),
            "11 erases",
        ),
        (
            make_acme_evidence(10**11, 9000, None, Attribute(241, "Total_LBAs_Written", 777, "777")),
            "attribute 241 Total_LBAs_Written ",
        ),
        # 512,000 and 10^6 bytes are units of other protocols.
        (
            make_acme_evidence(10**9, 9000, None, Attribute(241, "Total_LBAs_Written", 10**6, "1")),
            "attribute 241 Total_LBAs_Written ",
        ),
        (
            make_acme_evidence(10**9, 9000, None, Attribute(241, "Total_LBAs_Written", 512000, "1")),
            "attribute 241 Total_LBAs_Written ",
        ),
    ],
)
def test_statistics_beyond_the_drives_limits_are_refused(evidence: Evidence, reason: str) -> None:
    reading = get_host_reading(evidence)
    assert reading.value is None and reason in (reading.reason or "")


def test_implausible_power_on_hours_are_ignored() -> None:
    kingdian = next(drive for name, drive in DRIVES.items() if name.startswith("KingDian"))
    hours = make_report(kingdian, CATALOGUE).readings["power_on_hours"]
    assert hours.value is None and f"{kingdian.power_on_hours} hours" in (hours.reason or "")


@pytest.mark.parametrize(
    ("text", "units"),
    [
        ("275 000 000 [140 TB]", 275_000_000),
        ("275\u202f000\u202f000 [141 TB]", 275_000_000),
        ("275\u2009000\u2009000 [141 TB]", 275_000_000),
        ("275,000,000 [140 TB]", 275_000_000),
        # Indian digit grouping.
        ("27,50,00,000 [141 TB]", 275_000_000),
        ("275.000.000 [140,8 TB]", 275_000_000),
        ("1 [512 KB]", 1),
        ("0 [0]", 0),
        # A truncated number, as the size in brackets shows; or two numbers.
        ("275 [140 TB]", None),
        ("275 000 000 [131 TB]", None),
        ("275 00 000", None),
    ],
)
def test_blanks_between_thousands_are_accepted(text: str, units: int | None) -> None:
    lines = (
        "=== START OF INFORMATION SECTION ===",
        "Model Number:                       ACME",
        "SMART/Health Information (NVMe Log 0x02)",
        f"Data Units Written:                 {text}",
    )
    smart = parse_smartctl_text("\n".join(lines)).smart
    assert smart is not None and smart.data_units_written == units


def test_numbers_of_any_length_end_soon() -> None:
    assert parse_integer("9" * 5000) is None
    assert parse_json_number("9" * 5000) is None
    assert (
        parse_json_number(1e15) == 10**15
        and parse_json_number(1e300) is None
        and parse_json_number(0.5) is None
    )
    assert sanity.check_mean_write(10**4000, 10**3000, 512, None)
    assert sanity.check_erase_maximum(10**4000, 10, 10**12)


def test_scsi_counters_that_are_equal_agree() -> None:
    counters = ScsiCounters(written_mb=10**6, read_mb=10**6, blocks_received=10**12 // 512)
    readings = make_report(Evidence(DriveFacts("scsi", lba_bytes=512), scsi=counters), CATALOGUE).readings
    assert readings["host_written"].value == readings["host_read"].value == 10**12
