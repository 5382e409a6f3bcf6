"""`opwatch writes --blame`: the table and the document of a history, refusals and exit statuses."""

from __future__ import annotations

import argparse
import importlib
import json
from array import array
from pathlib import Path
from typing import Any

import pytest

from opwatch.errors import NotEnoughData, OpwatchError, UsageError
from opwatch.tools.cli import main
from opwatch.tools.runs.blaming import add_blame_arguments, run_blame
from tests.section import DOCS
from tests.unit.support.histories import ACTIVE, UNITS, make_requests, write_history

SCHEMA: dict[str, Any] = json.loads((DOCS / "schema" / "writes-blame.json").read_text())
NAMES = ("/system.slice/postgresql@15-main.service", "/log.service")
WAF = ["--waf", "3.5+-0.1"]


def run_words(*words: str) -> int:
    parser = argparse.ArgumentParser()
    add_blame_arguments(parser)
    parser.add_argument("--json", action="store_true")
    return run_blame(parser.parse_args(words))


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A history in which two groups write evenly to a half of the active space each."""
    row = make_requests(4 * ACTIVE)
    owners = array("H", (1 if sector < ACTIVE * 8 // 2 else 2 for sector in row.sectors))
    path = tmp_path_factory.mktemp("h") / "d.history"
    return str(write_history(path, row._replace(owners=owners), owners=NAMES))


def test_groups_with_the_same_load_have_the_same_shares(
    history: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_words("--blame", history, *WAF, "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    validator = importlib.import_module("jsonschema").Draft202012Validator(SCHEMA)
    assert [error.message for error in validator.iter_errors(answer)] == []
    written = answer["written_bytes"]
    assert answer["nand_bytes"] == pytest.approx({"low": 3.4 * written, "high": 3.6 * written})
    assert answer["absent"] == "its data stays" and answer["refusal"] is None and answer["collectors"]
    first, second = answer["owners"]
    assert {first["name"], second["name"]} == set(NAMES)
    for field in ("moved_for", "caused", "saved_without"):
        assert first[field] == pytest.approx(second[field], rel=0.1)
    assert first["caused"]["low"] < 1.75 * written < first["caused"]["high"]
    assert [(one["by"], one["of"]) for one in answer["interference"]] == [
        (first["name"], second["name"]),
        (second["name"], first["name"]),
    ]


def test_page_fits_80_columns_and_says_what_absent_means(
    history: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_words("--blame", history, *WAF, "--absent", "freed") == 0
    page = capsys.readouterr().out
    assert all(len(line) <= 80 for line in page.split("\n"))
    assert "WAF 3.5 ± 0.1" in page and "its space is free" in page and "/log.service" in page


def test_counter_that_no_model_explains_leaves_pro_rata_shares(
    history: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_words("--blame", history, "--waf", "90") == NotEnoughData.exit_status
    assert "Pro rata only: " in capsys.readouterr().out


def test_wrong_questions_are_refused(history: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="needs --waf"):
        run_words("--blame", history)
    with pytest.raises(UsageError, match="more flash"):
        run_words("--blame", history, *WAF, "--physical", f"{UNITS * 4096}B")
    with pytest.raises(OpwatchError, match="No such file"):
        run_words("--blame", str(tmp_path / "none"), *WAF)
    without = write_history(tmp_path / "old", make_requests(4 * ACTIVE))
    with pytest.raises(NotEnoughData, match="no owners"):
        run_words("--blame", str(without), *WAF)


def test_command_answers_from_the_history_alone(history: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["writes", "--blame", history, "--waf", "90"]) == NotEnoughData.exit_status
    assert "Pro rata only: " in capsys.readouterr().out
    assert main(["writes", "--blame", history, *WAF, "--for", "1s"]) == UsageError.exit_status
    assert "leave out --for" in capsys.readouterr().err
    assert main(["writes", "/", "--waf", "2"]) == UsageError.exit_status
    assert "--waf needs --blame" in capsys.readouterr().err
