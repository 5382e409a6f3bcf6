"""`opwatch sweep advise --history`: answers, refusals and exit statuses."""

from __future__ import annotations

import importlib
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from opwatch.tools.cli import main
from tests.section import DOCS
from tests.unit.support.histories import ACTIVE, DRIVE, UNITS, make_requests, write_history
from tests.unit.support.sweeps import write_journal

SCHEMA: dict[str, Any] = json.loads((DOCS / "schema" / "history-advice.json").read_text())
WAF = ["--waf", "3.5"]


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_history(tmp_path_factory.mktemp("h") / "d.history", make_requests(4 * ACTIVE)))


def read_answer(words: list[str], capsys: pytest.CaptureFixture[str], status: int = 0) -> dict[str, Any]:
    assert main(["sweep", "advise", *words, "--json"]) == status
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    validator = importlib.import_module("jsonschema").Draft202012Validator(SCHEMA)
    assert [error.message for error in validator.iter_errors(answer)] == []
    return answer


def run_words(words: list[str]) -> int | str | None:
    """Return the exit status, also of words that the parser refuses."""
    try:
        return main(["sweep", "advise", *words])
    except SystemExit as error:
        return error.code


def find_change(answer: dict[str, Any], label: str) -> dict[str, Any]:
    found: dict[str, Any] = next(one for one in answer["changes"] if one["label"] == label)
    return found


def test_answer_has_a_band_for_each_possible_change(history: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--history", history, *WAF, "--op", "10,50%", "--endurance", "1TB", "--price-per-tb", "80EUR"]
    answer = read_answer(words, capsys)
    trim, some, both = (find_change(answer, one) for one in ("trim", "10 % OP", "10 % OP and trim"))
    assert answer["now"] == {"low": 3.5, "high": 3.5} and answer["change"] == "trim"
    assert 1 <= trim["waf"]["low"] < trim["waf"]["high"] < some["waf"]["high"] < 3.5
    assert both["waf"] == pytest.approx(trim["waf"], rel=0.05)
    assert trim["life_factor"]["low"] == pytest.approx(3.5 / trim["waf"]["high"])
    # A year of the recorded rate at the WAF of the band.
    daily = 4 * ACTIVE * 4096 * 24
    assert trim["years"]["low"] == pytest.approx(1e12 / (daily * 365.25 * trim["waf"]["high"]), rel=0.01)
    assert trim["price"] == 0 < some["price"]
    assert find_change(answer, "50 % OP")["worth"] == "impossible"
    assert "25.0 %" in find_change(answer, "50 % OP")["reason"]


def test_known_flash_never_widens_a_band(history: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--history", history, *WAF, "--op", "10%"]
    wide = read_answer(words, capsys)
    narrow = read_answer([*words, "--physical", str(int(UNITS * 4096 * 1.4)) + "B"], capsys)
    for label in ("trim", "10 % OP"):
        one, other = find_change(wide, label)["waf"], find_change(narrow, label)["waf"]
        assert one["low"] <= other["low"] < other["high"] <= one["high"]
    assert len(narrow["collectors"]) < len(wide["collectors"])


def test_without_free_space_a_trim_is_unknown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_history(tmp_path / "h", make_requests(4 * ACTIVE), None)
    answer = read_answer(["--history", str(path), *WAF, "--op", "10%"], capsys)
    assert find_change(answer, "trim")["worth"] == "unknown" and answer["free_bytes"] is None
    assert find_change(answer, "10 % OP")["worth"] == "helps"
    assert any("may hold data" in one for one in answer["assumptions"])


def test_drive_that_does_not_amplify_gains_nothing(history: str, capsys: pytest.CaptureFixture[str]) -> None:
    answer = read_answer(["--history", history, "--waf", "1.01"], capsys)
    assert answer["change"] is None and answer["sentences"][0].startswith("Nothing")
    assert {one["worth"] for one in answer["changes"] if one["waf"]} == {"nothing"}


def test_exit_status_tells_whether_a_change_meets_the_target(
    history: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ask = ["sweep", "advise", "--history", history, *WAF, "--op", "10%", "--daily", "1GB", "--life", "1y"]
    assert main([*ask, "--endurance", "5TB"]) == 0
    assert main([*ask, "--endurance", "700GB"]) == 0
    assert main([*ask, "--endurance", "100GB"]) == 1
    capsys.readouterr()
    assert read_answer(ask[2:], capsys, 6)["sentences"][0].endswith("(--endurance).")


def test_page_fits_80_columns(history: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", "advise", "--history", history, *WAF, "--op", "10%"]) == 0
    lines = capsys.readouterr().out.split("\n")
    assert all(len(line) <= 80 for line in lines)


@pytest.mark.parametrize(
    ("words", "status", "reason"),
    [
        ([], 6, "without the drive's WAF or its flash"),
        ([*WAF, "--iops", "20k"], 2, "--iops needs a sweep"),
        ([*WAF, "--p99", "5ms"], 2, "--p99 needs a sweep"),
        ([*WAF, "--op", "7"], 2, "write a percentage with its sign"),
        ([*WAF, "--op", "7,7%"], 2, "are the same"),
        ([*WAF, "--price-per-tb", "cheap"], 2, "is not a price"),
        ([*WAF, "--endurance", "500"], 2, "has no unit"),
        ([*WAF, "--physical", "16MiB"], 2, "needs more flash than"),
        ([*WAF, "--journals", "/tmp"], 2, "--journals needs a SWEEP"),
        (["--waf", "0.9"], 2, "out of range"),
        (["--waf", "3%"], 2, "is not a write amplification"),
        (["--waf", "2+-3"], 2, "out of range"),
        (["--waf", "40"], 6, "no collector"),
    ],
)
def test_bad_questions_are_refused(
    history: str, words: list[str], status: int, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_words(["--history", history, *words]) == status
    shown = " ".join(capsys.readouterr().err.split())
    assert reason in shown


def test_options_of_a_history_are_refused_for_a_sweep(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", "advise", "s.json", *WAF]) == 2
    assert "--waf needs --history" in capsys.readouterr().err
    assert main(["sweep", "advise"]) == 2


def test_damaged_histories_are_refused(
    history: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cut = tmp_path / "cut.history"
    cut.write_bytes(Path(history).read_bytes()[:-4096])
    other = tmp_path / "other.opw"
    other.write_bytes(os.urandom(4096))
    for path, reason in (
        (cut, "not a readable history"),
        (other, "not"),
        (tmp_path / "none", "No such file"),
    ):
        assert main(["sweep", "advise", "--history", str(path), *WAF]) == 1
        assert reason in capsys.readouterr().err


def test_short_histories_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for count, reason in ((ACTIVE // 2, "went to places"), (100, "are needed")):
        path = write_history(tmp_path / str(count), make_requests(count))
        assert main(["sweep", "advise", "--history", str(path), *WAF]) == 6
        assert reason in " ".join(capsys.readouterr().err.split())
    path = write_history(
        tmp_path / "small", make_requests(400, active=64), None, replace(DRIVE, sectors=1 << 15)
    )
    assert main(["sweep", "advise", "--history", str(path), *WAF, "--op", "28%"]) == 6
    assert "too small" in capsys.readouterr().err


def test_sweep_of_another_drive_is_refused(
    history: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = write_journal(tmp_path, "0,7,28%")
    assert main(["sweep", "advise", name, "--journals", str(tmp_path), "--history", history, *WAF]) == 3
    assert "another drive" in capsys.readouterr().err
