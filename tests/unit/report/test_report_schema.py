"""docs/schema/report.json against the printed output, in both directions."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

from opwatch.tools.cli import main
from tests.unit.compare.counted_disk import generate_entries, write_recording
from tests.unit.sinks.test_schema import forbid_extra_fields
from tests.unit.support.recordings import generate_short_run, record_run
from tests.unit.support.sample_run import make_sample_run
from tests.unit.why.test_command import make_bursts

SCHEMA: dict[str, Any] = json.loads(
    (Path(__file__).parents[3] / "docs" / "schema" / "report.json").read_text()
)


def make_documents(folder: Path, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    rates = [2000 + at % 5 if at < 30 else 600 + at % 4 for at in range(70)]
    write_recording(folder / "cliff.opw", generate_entries([{"write": {400_000: rate}} for rate in rates]))
    write_recording(folder / "slow.opw", generate_entries(make_bursts()))
    record_run(folder / "short.opw", generate_short_run())
    record_run(folder / "drive.opw", make_sample_run(ticks=9))
    printed = []
    for names in (["cliff"], ["short"], ["drive"], ["slow"], ["cliff", "cliff"]):
        assert main(["report", *(str(folder / f"{name}.opw") for name in names), "--json"]) == 0
        printed.append(json.loads(capsys.readouterr().out))
    return printed


def test_every_printed_name_is_described(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    validator = importlib.import_module("jsonschema").Draft202012Validator
    validator.check_schema(SCHEMA)
    every = make_documents(tmp_path, capsys)
    for document in every:
        errors = validator(forbid_extra_fields(SCHEMA)).iter_errors(document)
        assert [f"{list(error.path)}: {error.message}" for error in errors] == []
    runs = [run for document in every for run in document["runs"]]
    assert any(change["steps"] for run in runs for disk in run["devices"] for change in disk["changes"])
    assert any(drive["health"] and drive["split"] for run in runs for drive in run["drives"])
    assert any(run["events"] for run in runs)
    assert any(slow["causes"] and slow["needs"] for run in runs for slow in run["slow"])
    assert list(validator(SCHEMA).iter_errors({**every[0], "schema": "opwatch/2"}))
