"""Imports keep fio's percentiles for replay, dump, report and compare, with their error."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

from opwatch.fio.report import parse_report
from opwatch.fio.results import FioLatency
from opwatch.sinks.fio.comparison import TITLE
from opwatch.tools.cli import main
from tests.unit.sinks.test_schema import forbid_extra_fields

ROOT = Path(__file__).parents[3]
GOOD = ROOT / "tests" / "fixtures" / "good" / "imports"
# JSON without bins, and JSON+ with bins.
NAMES = ["fio-3.1-json.json", "fio-group4.json", "fio-2.2.10.json"]


def read_latency(name: str, op: str) -> FioLatency:
    """Return fio's latency of an operation in the only job."""
    [job] = parse_report((GOOD / name).read_text()).jobs
    measured = job.operations[op].reported_latency
    assert measured
    return measured


@pytest.fixture(params=NAMES)
def imported(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    """Return (report name, its recording)."""
    recording = str(tmp_path / "a.opw")
    assert main(["import", "-q", str(GOOD / request.param), "-o", recording]) == 0
    return request.param, recording


def parse_fio_lines(text: str) -> list[dict[str, Any]]:
    """Return the lines of type fio, validated against the schema."""
    schema = forbid_extra_fields(json.loads((ROOT / "docs" / "schema" / "fio.json").read_text()))
    validator = importlib.import_module("jsonschema").Draft202012Validator(schema)
    lines = [line for line in map(json.loads, text.splitlines()) if line["type"] == "fio"]
    assert not [error.message for line in lines for error in validator.iter_errors(line)]
    return lines


@pytest.mark.parametrize("command", [["replay", "--json"], ["dump", "-O", "jsonl"]])
def test_json_lines_have_every_percentile_with_its_error(
    imported: tuple[str, str], capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    name, recording = imported
    assert main([*command, recording]) == 0
    lines = parse_fio_lines(capsys.readouterr().out)
    assert [line["op"] for line in lines] == ["read", "write"]
    for line in lines:
        measured = read_latency(name, line["op"])
        values = line["fio"]["percentiles_ns"]
        assert {float(key): value for key, value in values.items()} == dict(measured.percentiles)
        assert line["fio"]["latency_ns"]["p99"] == measured.percentiles[99.0]
        assert line["fio"]["percentile_error_ratio"] == 1 / 128
        assert line["fio"]["quantum_ns"] == measured.quantum_ns
        assert line["disks"] == []


def test_percentiles_are_in_the_text_of_replay_report_and_compare(
    imported: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    _, recording = imported
    for command in (["replay"], ["report", "--markdown"], ["compare", recording]):
        assert main([*command, recording]) in (0, 6)
        text = capsys.readouterr().out
        assert "fio" in text and "0.8 %" in text.replace("\\", ""), command
        assert all(len(line) <= 80 for line in text.splitlines() if command[0] != "report")


def test_percentiles_are_in_the_json_of_report_and_compare(
    imported: tuple[str, str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    name, recording = imported
    assert main(["report", "--json", recording]) == 0
    [run] = json.loads(capsys.readouterr().out)["runs"]
    assert [row["fio"]["latency_ns"]["p50"] for row in run["fio"]] == [
        read_latency(name, op).percentiles[50.0] for op in ("read", "write")
    ]
    assert main(["compare", "--json", recording, recording]) == 0
    one, other = json.loads(capsys.readouterr().out)["fio"]
    assert one["rows"] == other["rows"] == run["fio"]
    page = tmp_path / "a.html"
    assert main(["report", "-q", recording, "-o", str(page)]) == 0
    assert TITLE in page.read_text()
