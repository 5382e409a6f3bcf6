"""Health statements of drives, and their rate of wear."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from opwatch.collectors.firmware.recorded import decode_evidence, read_recorded
from opwatch.counters.catalogue.families import load_catalogue
from opwatch.counters.decode.smart_log import SmartLog, decode_smart_log
from opwatch.counters.evidence import Attribute, Evidence, Statistics
from opwatch.counters.prove.health import collect_health_notes, compute_rated_pace, compute_wear_pace
from opwatch.counters.prove.lifetime import compute_lifetime_ratio
from opwatch.counters.prove.report import make_report
from opwatch.counters.reading import CounterReading, DriveFacts, Proof, make_unknown
from opwatch.counters.reports.smartctl_json import parse_smartctl_json
from opwatch.counters.reports.smartctl_text import parse_smartctl_text
from opwatch.sinks.counters import build_counters_document, format_counters
from opwatch.tools.cli import main

GOOD = Path(__file__).parents[2] / "fixtures" / "good" / "counters"
NVME = GOOD / "smartctl_exporter" / "nvme-null-SAMSUNG_MZQL23T8HCLS-00A07-nvme9.json"


CATALOGUE = load_catalogue(system=Path("/nonexistent"))


def make_reading(value: int, unit: str, quantum: int = 1) -> CounterReading:
    return CounterReading(value, unit, quantum, "a page", Proof.SPEC)


UNREAD = make_unknown("unread")


def check_notes(evidence: Evidence, *expected: tuple[str, bool], used: CounterReading = UNREAD) -> None:
    """Compare the health notes with regular expressions, in order, and whether the notes are serious."""
    notes = collect_health_notes(evidence, used)
    assert [note.serious for note in notes] == [is_serious for _, is_serious in expected]
    for note, (pattern, _) in zip(notes, expected, strict=True):
        assert re.search(pattern, note.says), note


@pytest.mark.parametrize(
    ("smart", "expected"),
    [
        (SmartLog(critical_warning=0), [("^no critical", False)]),
        (SmartLog(critical_warning=0b1001), [("^critical .*spare", True), ("^critical .*read-only", True)]),
        (SmartLog(available_spare=4, spare_threshold=10), [("^4 % .*spare.* 10 %", True)]),
        (SmartLog(available_spare=40, spare_threshold=10), [("^40 % .*spare.* 10 %", False)]),
        (SmartLog(available_spare=100, spare_threshold=10), []),
        (SmartLog(media_errors=2), [("^2 .*media", True)]),
        (
            SmartLog(unsafe_shutdowns=3, power_cycles=9, error_entries=5),
            [("^5 .*error log", False), ("^3 unsafe .* 9 ", False)],
        ),
        (
            SmartLog(warm_minutes=7, hot_minutes=1),
            [("^1 minutes .*critical", True), ("^7 minutes .*warning", False)],
        ),
        (SmartLog(), []),
    ],
)
def test_health_page_has_its_notes(smart: SmartLog, expected: list[tuple[str, bool]]) -> None:
    check_notes(Evidence(smart=smart), *expected)


def test_attributes_are_used_only_under_their_known_names() -> None:
    named = Attribute(5, "Reallocated_Sector_Ct", 12, "12")
    check_notes(Evidence(attributes=(named,)), ("^12 reallocated ", False))
    for other in (
        replace(named, name="Unknown_Attribute"),
        replace(named, raw=0),
        replace(named, raw=1 << 40),
    ):
        check_notes(Evidence(attributes=(other,)))
    statistics = Statistics({(4, 8): 3, (5, 0x50): 9})
    check_notes(
        Evidence(statistics=statistics), ("^3 uncorrectable ", True), ("^9 minutes .*temperature", False)
    )
    check_notes(Evidence(passed=False), ("failing$", True))
    check_notes(Evidence(), ("^104 % ", True), used=make_reading(104, "percent"))


def test_health_page_bytes_are_decoded() -> None:
    page = bytearray(512)
    page[0], page[3] = 4, 100
    page[176], page[192], page[196] = 5, 6, 7
    smart = decode_smart_log(bytes(page))
    assert (smart.critical_warning, smart.error_entries, smart.warm_minutes, smart.hot_minutes) == (
        4,
        5,
        6,
        7,
    )


@pytest.mark.parametrize("per_cent_h", [123.4, 900.0, 2500.5])
@pytest.mark.parametrize("on", [500, 5_000, 40_000])
@pytest.mark.parametrize("rounded", [int, round, lambda wear: -int(-wear // 1)])
def test_mean_pace_contains_the_true_value_despite_rounding(
    per_cent_h: float, on: int, rounded: object
) -> None:
    assert callable(rounded)
    pace = compute_wear_pace(make_reading(rounded(on / per_cent_h), "percent"), make_reading(on, "hours"))
    assert pace is not None and pace.most is not None
    assert pace.least <= 1000 / per_cent_h <= pace.most


def test_single_poll_has_a_pace_and_no_end() -> None:
    smart = SmartLog(percentage_used=3, power_on_hours=9_000, data_units_written=10**8, write_commands=10**9)
    drive = make_report(Evidence(DriveFacts("nvme"), smart=smart), CATALOGUE)
    assert drive.outlooks == () and build_counters_document(drive, None)["outlook"] == []
    [pace] = build_counters_document(drive, None)["pace"]
    assert pace["least"] == pytest.approx(2000 / 9001) and pace["most"] == pytest.approx(4000 / 9000)


def test_drive_without_wear_has_the_pace_to_reach_its_rating() -> None:
    fresh = compute_wear_pace(make_reading(0, "percent"), make_reading(1000, "hours"))
    assert fresh is not None and (fresh.least, fresh.most) == (0, 1)
    # 100 % in 5 years of 8,766 hours.
    assert re.search(r"; 2\.3 % .*\b1000\b.* 5 ", fresh.says)
    for percent, on in (
        (make_reading(5, "percent"), 0),
        (make_reading(99, "percent").as_lower_bound(), 1000),
    ):
        assert compute_wear_pace(percent, make_reading(on, "hours")) is None
    assert compute_wear_pace(UNREAD, make_reading(1000, "hours")) is None
    assert compute_rated_pace(UNREAD, make_reading(1000, "hours"), 10**15) is None


def test_rated_bytes_have_the_pace_so_far() -> None:
    pace = compute_rated_pace(
        make_reading(10**14, "bytes", 1 << 30), make_reading(10_000, "hours"), 6 * 10**14
    )
    assert pace is not None and pace.most is not None
    assert pace.least <= 240 * 10**9 <= pace.most <= 240.1 * 10**9
    over = compute_rated_pace(make_reading(10**15, "bytes"), make_reading(10_000, "hours"), 6 * 10**14)
    # Only a drive below its rating has a second clause, with the pace that would reach the rating.
    assert over is not None and ("; " in pace.says, "; " in over.says) == (True, False)


def test_real_drive_has_pace_and_end_in_text_and_json() -> None:
    drive_report = make_report(read_recorded([NVME]), load_catalogue(system=Path("/nonexistent")))
    shown = "\n".join(format_counters(drive_report))
    assert f"health: {drive_report.health[0].says} (log 02h)" in shown and "pace: " in shown
    page = json.loads(json.dumps(build_counters_document(drive_report, None)))
    assert {"says", "source", "serious"} == set(page["health"][0])
    assert {"of", "unit", "least", "most", "says"} == set(page["pace"][0])


SAS = {
    "device": {"protocol": "SCSI"},
    "logical_block_size": 512,
    "scsi_grown_defect_list": 3,
    "endurance_used": {"current_percent": 7},
    "scsi_error_counter_log": {
        "read": {"gigabytes_processed": "5000.000", "total_uncorrected_errors": 2},
        "write": {"gigabytes_processed": "7000.000", "total_uncorrected_errors": 0},
        "verify": {"gigabytes_processed": "0.000", "total_uncorrected_errors": 1},
    },
}


def test_sas_drive_reports_wear_and_errors() -> None:
    sas = make_report(parse_smartctl_json(SAS), CATALOGUE)
    assert sas.readings["percentage_used"].value == 7
    assert sas.readings["host_written"].value == 7 * 10**12
    check_notes(parse_smartctl_json(SAS), ("^3 uncorrected ", True), ("^3 grown ", False))
    text = (
        "=== START OF INFORMATION SECTION ===\nVendor: ACME\nProduct: SAS\n"
        "Elements in grown defect list: 3\nPercentage used endurance indicator: 7%\n"
        "read:   0 0 0 0 0    5000.000    2\nwrite:  0 0 0 0 0    7000.000    0\n"
        "verify: 0 0 0 0 0       0.000    1\n"
    )
    assert make_report(parse_smartctl_text(text), CATALOGUE).health == sas.health


def test_a_lifetime_ratio_has_its_bounds() -> None:
    ratio = compute_lifetime_ratio(
        make_reading(10**14, "bytes", 1 << 30), make_reading(2 * 10**14, "bytes", 1 << 30)
    )
    assert ratio is not None and ratio.ratio == 2
    # True values that both counters would round to these readings.
    for host, nand in ((10**14 + (1 << 29), 2 * 10**14), (10**14, 2 * 10**14 + (1 << 30) - 1)):
        assert ratio.most is not None and ratio.least <= nand / host <= ratio.most
    small = make_reading(1 << 30, "bytes", 1 << 30)
    for others in ((small, small), (UNREAD, small), (small, UNREAD)):
        assert compute_lifetime_ratio(*others) is None
    placed = replace(make_reading(10**14, "bytes"), source="log 22h MBMW")
    assert compute_lifetime_ratio(make_reading(10**14, "bytes"), placed) is None
    pm883 = make_report(
        read_recorded([GOOD / "linuxhw" / "samsung_pm883_241host_251nand.txt"]),
        load_catalogue(system=Path("/nonexistent")),
    )
    assert pm883.lifetime is not None and round(pm883.lifetime.ratio, 3) == round(
        39961384704 / 30303463508, 3
    )
    assert any(line.startswith("lifetime WAF: 1.32 ") for line in format_counters(pm883))
    assert build_counters_document(pm883, None)["lifetime_waf"]["least"] <= pm883.lifetime.ratio


@pytest.mark.parametrize(("word", "passed"), [("PASSED", True), ("FAILED!", False), ("whatever", None)])
def test_drive_self_assessment_is_reported(word: str, passed: bool | None) -> None:
    text = (
        "smartctl 7.3\n=== START OF INFORMATION SECTION ===\nDevice Model:     ACME\n"
        f"=== START OF READ SMART DATA SECTION ===\n"
        f"SMART overall-health self-assessment test result: {word}\n"
    )
    assert decode_evidence("a", text.encode()).passed is passed
    status = {"smart_status": {"passed": passed}, "device": {"protocol": "ATA"}}
    raw = json.dumps({"smartctl": {}, **status})
    assert decode_evidence("a", raw.encode()).passed is passed


def test_missing_rating_is_requested(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["counters", "--from", str(NVME), "--tbw", "7008"]) == 0
    assert f" {7008 * 10**12} " in capsys.readouterr().out.replace("\n  ", " ")
    with pytest.raises(SystemExit, match="2"):
        main(["counters", "--from", str(NVME), "--tbw", "none"])
    assert "terabytes" in capsys.readouterr().err


def test_drive_without_data_has_no_health_notes() -> None:
    nothing = make_report(Evidence(DriveFacts("nvme")), load_catalogue(system=Path("/nonexistent")))
    assert nothing.health == () and nothing.outlooks == ()
