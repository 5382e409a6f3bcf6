"""Two reports of the same drive: write amplification, pace and prediction for the interval."""

from __future__ import annotations

import copy
import json
import re
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

from opwatch.tools.cli import main

SECTOR = 512
NOW = 1_780_000_000


def make_poll(hours: int, host: int, nand: int, used: int, days: float = 0.0) -> dict[str, Any]:
    """A report on a Samsung PM883, which counts sectors in attributes 241 and 251."""
    raws = {9: hours, 177: 300, 241: host // SECTOR, 251: nand // SECTOR}
    names = {9: "Power_On_Hours", 177: "Wear_Leveling_Count", 241: "Total_LBAs_Written", 251: "NAND_Writes"}
    table = [
        {"id": i, "name": names[i], "value": 99, "raw": {"value": raw, "string": str(raw)}}
        for i, raw in raws.items()
    ]
    wear = {"number": 7, "table": [{"offset": 8, "value": used, "flags": {"valid": True}}]}
    written = {"number": 1, "table": [{"offset": 24, "value": host // SECTOR, "flags": {"valid": True}}]}
    return {
        "smartctl": {"exit_status": 0},
        "device": {"protocol": "ATA", "name": "/dev/sda"},
        "local_time": {"time_t": NOW + int(days * 86400)},
        "model_name": "SAMSUNG MZ7LH1T9HMLT-00005",
        "serial_number": "S1",
        "logical_block_size": SECTOR,
        "user_capacity": {"bytes": 1_920_383_410_176},
        "power_on_time": {"hours": hours},
        "ata_smart_attributes": {"table": table},
        "ata_device_statistics": {"pages": [written, wear]},
    }


OLD = make_poll(10_000, 10**14, 15 * 10**13, 10)
# 2,000 hours in 100 days: 40 TB written, 80 TB programmed, 10 % used.
NEW = make_poll(12_000, 14 * 10**13, 23 * 10**13, 20, days=100)


def run_counters(tmp_path: Path, *polls: dict[str, Any], more: tuple[str, ...] = ()) -> tuple[int, list[str]]:
    paths = []
    for number, one in enumerate(polls):
        paths.append(str(tmp_path / f"{number}.json"))
        Path(paths[-1]).write_text(json.dumps(one))
    return main(["counters", "--from", *paths, *more]), paths


def test_the_interval_has_its_own_amplification_pace_and_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, _ = run_counters(tmp_path, OLD, NEW, more=("--json", "--tbw", "300"))
    made = json.loads(capsys.readouterr().out)
    assert status == 0
    interval = made["interval"]
    assert (interval["least_hours"], interval["most_hours"], interval["days"]) == (1999, 2001, 100)
    assert interval["waf"]["least"] <= 2.0 <= interval["waf"]["most"]
    assert interval["waf"]["most"] - interval["waf"]["least"] < 1e-6
    # The lifetime ratio would be 230/140.
    assert made["lifetime_waf"]["ratio"] == pytest.approx(23 / 14, rel=1e-3)
    paces = {pace["of"]: pace for pace in made["pace"]}
    assert paces["host writes"]["least"] <= 40e12 / 2000 * 24 <= paces["host writes"]["most"]
    assert paces["wear"]["least"] <= 5 <= paces["wear"]["most"]
    by_wear, by_bytes = made["outlook"]
    # 80 % remain at 10 % per 2,000 hours; 160 TB remain at 40 TB per 2,000 hours.
    assert by_wear["least_hours"] < 16_000 < by_wear["most_hours"]
    assert by_bytes["least_hours"] <= 8_000 <= by_bytes["most_hours"] <= 8_010
    end = (date(1970, 1, 1) + timedelta(seconds=NOW, days=100 + 400)).isoformat()
    assert by_bytes["least_date"] <= end <= by_bytes["most_date"]


def test_text_report_has_the_same_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_counters(tmp_path, OLD, NEW)[0] == 0
    output = capsys.readouterr().out
    text = " ".join(output.split())
    assert "interval WAF: 2 (2 to 2) " in text and "(1999 to 2001 power-on hours, 100.0 " in text
    # The paces of the interval, not of the drive's life.
    for pace in ("host writes 480 GB to 480 GB ", "NAND writes 960 GB to 960 GB ", "wear 4.5 to 5.5 % "):
        assert f"pace: {pace}" in text
    assert text.count("pace: ") == 3
    assert all(len(line) <= 80 for line in output.splitlines())


def test_older_report_must_come_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_counters(tmp_path, NEW, OLD)[0] == 2
    assert re.search(r"\b10000 .*\b12000\b", " ".join(capsys.readouterr().err.split()))


@pytest.mark.parametrize(
    ("name", "change"),
    [("serial", {"serial_number": "S2"}), ("protocol", {"device": {"protocol": "NVMe"}})],
)
def test_reports_of_two_drives_make_no_interval(
    name: str, change: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_counters(tmp_path, OLD, {**NEW, **change})[0] == 2
    assert name in capsys.readouterr().err


def test_a_firmware_update_between_the_polls_is_the_same_drive(tmp_path: Path) -> None:
    assert run_counters(tmp_path, {**OLD, "firmware_version": "A"}, {**NEW, "firmware_version": "B"})[0] == 0


def test_missing_serial_numbers_are_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_counters(tmp_path, {**OLD, "serial_number": None}, NEW)[0] == 0
    assert re.search(r"\bfailed: .*\bserial\b", " ".join(capsys.readouterr().out.split()))


@pytest.mark.parametrize(
    "last", [make_poll(10_001, 10**14, 15 * 10**13, 10), make_poll(12_000, 10**14 - 10**9, 15 * 10**13, 10)]
)
def test_interval_without_counts_has_a_reason(
    last: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_counters(tmp_path, OLD, last, more=("--json",))[0] == 0
    made = json.loads(capsys.readouterr().out)
    assert made["interval"]["waf"] is None and made["interval"]["reason"] and made["outlook"] == []


def test_repeated_report_makes_no_interval(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_counters(tmp_path, OLD, OLD, more=("--json",))[0] == 0
    assert json.loads(capsys.readouterr().out)["interval"] is None


def test_the_time_of_a_text_report_is_read() -> None:
    from opwatch.counters.reports.smartctl_text import parse_smartctl_text

    def parse_local_time(words: str) -> int | None:
        return parse_smartctl_text(
            f"=== START OF INFORMATION SECTION ===\nLocal Time is:    {words}\n"
        ).local_time_s

    assert parse_local_time("Sun Mar 29 20:52:14 2026 UTC") == 1_774_817_534
    for wrong in ("Sun Foo 29 20:52:14 2026 UTC", "Sun Feb 30 20:52:14 2026 UTC", "yesterday", ""):
        assert parse_local_time(wrong) is None


def test_lower_bound_does_not_increase_with_the_host_writes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Intel's SandForce drives save attribute 225 only from time to time."""
    old, new = copy.deepcopy((OLD, NEW))
    for one, hosts, pages in ((old, 1000, 1000), (new, 500_000, 9000)):
        one["model_name"] = "INTEL SSDSC2BW240A4"
        del one["ata_device_statistics"]
        one["ata_smart_attributes"]["table"] = [
            {"id": i, "name": name, "value": 99, "raw": {"value": raw, "string": str(raw)}}
            for i, name, raw in ((225, "Host_Writes_32MiB", hosts), (249, "NAND_Writes_1GiB", pages))
        ]
    status, _ = run_counters(tmp_path, old, new, more=("--json", "--tbw", "300"))
    made = json.loads(capsys.readouterr().out)
    assert status == 0 and made["host_written"]["lower_bound"] is True
    assert made["interval"]["waf"] is None and "host" in made["interval"]["reason"]
    assert [pace["of"] for pace in made["pace"]] == ["NAND writes"] and made["outlook"] == []
