"""Sweeps as text and as a document, plans, and the sweep commands."""

from __future__ import annotations

import errno
import importlib
import json
import os
import random
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from opwatch.errors import BadInput
from opwatch.ftl.models import predict_greedy
from opwatch.sinks.sweep.document import build_plan_document, build_result_document
from opwatch.sinks.sweep.figures import format_expectation
from opwatch.sinks.sweep.plan import format_plan
from opwatch.sinks.sweep.table import format_sweep
from opwatch.steady.expect import SteadyExpectation
from opwatch.steady.strict import StrictState, judge_strict
from opwatch.sweep.levels import LevelScale, parse_levels
from opwatch.sweep.outcome import LevelFigures, LevelOutcome
from opwatch.sweep.plan import SweepPace, SweepPlan, SweepRefusal, SweepSpeed, plan_steps
from opwatch.sweep.purges import DISCARD, SECURE_ERASE
from opwatch.sweep.result import ModelScale, SweepResult
from opwatch.tools.cli import main
from tests.unit.steady.test_strict import CALM as ROUND
from tests.unit.steady.test_strict import GROUND
from tests.unit.sweep.test_returns import VERDICT

SCHEMA: dict[str, Any] = json.loads(
    (Path(__file__).parents[3] / "docs" / "schema" / "sweep.json").read_text()
)
SCALE = LevelScale(1 << 40)


def _make_result(*wafs: float | None) -> SweepResult:
    levels = parse_levels("0,7,28%", SCALE)[: len(wafs)]
    outcomes = tuple(
        LevelOutcome(
            level,
            (),
            LevelFigures(
                waf=waf, waf_error=waf and 0.01, iops=waf and 1e5 / waf, missing={"waf": "no pages"}
            ),
            None,
            VERDICT,
        )
        for level, waf in zip(levels, wafs, strict=True)
    )
    return SweepResult("sda", "window", "random 4k", outcomes)


def _find_problems(answer: dict[str, Any]) -> list[str]:
    """Return the schema violations of a document after a round trip through JSON."""
    # JSON has only these types.
    validator = importlib.import_module("jsonschema").Draft202012Validator(SCHEMA)
    return [error.message for error in validator.iter_errors(json.loads(json.dumps(answer)))]


def test_document_matches_its_schema() -> None:
    assert _find_problems(build_result_document(_make_result(5.7, 3.5, 1.9))) == []
    assert _find_problems(build_result_document(_make_result(None, 3.5))) == []
    broken = build_result_document(_make_result(5.7))
    broken["levels"][0]["opwatch"]["state"] = "fine"
    assert _find_problems(broken)


def _join_lines(lines: Iterable[str]) -> str:
    """Return wrapped lines as one line of words."""
    return " ".join(" ".join(lines).split())


def test_table_reports_effective_spare_area_and_returns() -> None:
    document = build_result_document(_make_result(5.713, 3.522, 1.936))
    lines = list(format_sweep(document))
    assert "9.9 %" in _join_lines(lines)
    assert [step["is_gain"] for step in document["returns"]] == [True, True]
    assert "28 %" in document["advice"] and document["advice"] in _join_lines(lines)
    assert max(map(len, lines)) <= 80


def test_missing_figure_has_a_reason() -> None:
    document = build_result_document(_make_result(None, 3.517))
    lines = list(format_sweep(document))
    assert [line for line in lines if line.startswith("0 %, ") and line.endswith(": no pages")]
    assert document["endurance_reason"] in _join_lines(lines)


def test_spare_area_is_not_fitted_without_a_measured_waf() -> None:
    documents = [build_result_document(_make_result(waf, waf)) for waf in (None, 1.0)]
    assert [document["fit"] for document in documents] == [None, None]
    unmeasured, flat = (set(format_sweep(document)) for document in documents)
    # The two causes have different reasons.
    assert any("amplifies" in line for line in flat - unmeasured)
    assert any("WAF" in line and "amplifies" not in line for line in unmeasured - flat)


def test_models_of_uniform_writes_are_not_applied_to_other_loads() -> None:
    shown = build_result_document(replace(_make_result(5.713, 3.522, 1.936), is_uniform=False))
    assert _find_problems(shown) == []
    assert shown["fit"] is None
    assert {level["band"] for level in shown["levels"]} == {None}
    assert {level["predicted_waf"] for level in shown["levels"]} == {None}
    text = " ".join(format_sweep(shown))
    assert "(T-U)/U" not in text and "amplifies" not in text
    assert "uniformly" in text


def test_model_results_are_labelled() -> None:
    model = ModelScale("big", 0.004, 2048, 65536, (0.004, 0.003))
    result = _make_result(5.7, 3.5)
    shown = build_result_document(SweepResult("x", "window", "w", result.outcomes, model=model))
    assert _find_problems(shown) == []
    text = " ".join(format_sweep(shown))
    assert all(fact in text for fact in ("MODEL", "big", "0.4 %", "2048", "65536"))


@pytest.mark.parametrize(
    "damage",
    [
        {"type": "watch"},
        {"levels": 5},
        {"levels": [1]},
        {"returns": [{"begin": 1}]},
        {"fit": {"spare_ratio": "much"}},
        {"advice": None},
    ],
)
def test_other_documents_are_not_shown_as_sweeps(damage: dict[str, Any]) -> None:
    with pytest.raises(BadInput):
        list(format_sweep(build_result_document(_make_result(5.7, 3.5)) | damage))


def _make_plan(*refusals: SweepRefusal, speed: SweepSpeed | None = None) -> SweepPlan:
    levels = parse_levels("0,28%", SCALE)
    steps = plan_steps(levels, "window", SweepPace(), speed or SweepSpeed())
    return SweepPlan("sda", "window", "random 4k", levels, steps, refusals, life_reason="not rated")


def test_plan_lists_every_step_and_the_obstacles() -> None:
    refusal = SweepRefusal("mounts", "sda1 is mounted at /", "unmount it")
    plan = _make_plan(refusal)
    lines = list(format_plan(plan))
    text = "\n".join(lines)
    assert text.count(f"{DISCARD.what}, 1.10 TB") == 2
    assert f"  {refusal.rule}: {refusal.what}; {refusal.remedy}" in lines
    assert "time: unknown" in text and f"unknown: {plan.life_reason}" in text
    assert max(map(len, lines)) <= 80
    document = build_plan_document(plan)
    assert (document["seconds"], document["life_ratio"]) == (None, None)
    assert _find_problems(document) == []


def test_a_plan_with_a_speed_has_a_time() -> None:
    plan = _make_plan(speed=SweepSpeed(1e9, 1e8))
    assert "time: " in "\n".join(format_plan(plan)) and "time: unknown" not in "\n".join(format_plan(plan))
    assert _find_problems(build_plan_document(plan)) == []


def test_plan_with_a_purge_of_unknown_duration_has_no_time() -> None:
    plan = _make_plan(speed=SweepSpeed(1e9, 1e8))
    untold = SECURE_ERASE._replace(seconds=None)
    steps = plan_steps(plan.levels, "window", SweepPace(), SweepSpeed(1e9, 1e8), untold)
    plan = replace(plan, steps=steps)
    text = _join_lines(format_plan(plan))
    assert re.search(r"\btime: unknown\b.*\bpurge\b", text)
    assert "discarded" not in text
    document = build_plan_document(plan)
    assert document["seconds"] is None
    assert _find_problems(document) == []


def test_a_sweep_on_simulated_flash_is_kept_and_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "sweep.json"
    words = ["sweep", "run", "--virtual", "ideal", "--op", "28%", "--rounds", "5", "-q", "-o", str(kept)]
    # Five rounds of a tenth are too few for a steady state.
    assert main(words) == 6
    shown = capsys.readouterr().out
    assert "MODEL" in shown and "ideal" in shown and f"28 %, {StrictState.NOT_REACHED}: " in shown
    assert main(["sweep", "show", str(kept)]) == 0
    assert capsys.readouterr().out == shown
    assert main(["sweep", "show", str(kept), "--json"]) == 0
    assert _find_problems(json.loads(capsys.readouterr().out)) == []
    assert main(words) == 2
    assert f"-o {kept}: " in _join_lines(capsys.readouterr().err.splitlines())


@pytest.mark.parametrize(
    ("words", "status", "complaint"),
    [
        (["run"], 2, "--dev .*--virtual "),
        (["run", "--virtual", "nope"], 2, "nope.*ideal"),
        (["run", "--virtual", "fitted:/nope.journal"], 2, f"/nope.journal: {os.strerror(errno.ENOENT)}"),
        (["run", "--virtual", "ideal", "--op", "5000%"], 2, "--op 5000% .*1000%"),
        (["run", "--virtual", "ideal", "--base", "flash", "--op", "1%"], 2, f"--op 1 % .*{16 << 30}"),
        (["run", "--virtual", "ideal", "--bs", "5000"], 2, "--bs 5000: .*4096"),
        (["run", "--virtual", "ideal", "--destroy"], 2, "--destroy: .*--dev"),
        (["run", "--dev", "sda", "--bs", "4k"], 2, "--bs: .*--virtual"),
        (["plan"], 2, "--dev .*--virtual "),
        (["plan", "--virtual", "ideal", "--method", "magic"], 2, "'magic'.*window"),
        (["show", "/nonexistent"], 2, f"/nonexistent: {os.strerror(errno.ENOENT)}"),
    ],
)
def test_contradictory_sweep_options_are_refused(
    words: list[str], status: int, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sweep", *words]) == status
    assert re.search(complaint, _join_lines(capsys.readouterr().err.splitlines()))


def test_plan_and_list_print_their_values(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", "plan", "--virtual", "wd-blue-1tb", "--rated", "400TB", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert _find_problems(plan) == [] and plan["life_ratio"]["least"] > 0.01 and plan["is_model"]
    assert main(["sweep", "list", "--json"]) == 0
    names = json.loads(capsys.readouterr().out)
    assert [test["name"] for test in names["pts_tests"]][:2] == ["wsat", "iops"]
    assert main(["sweep", "list"]) == 0
    assert "wd-blue-1tb" in capsys.readouterr().out


FIXTURES = Path(__file__).parents[2] / "fixtures"
BAD = sorted((FIXTURES / "bad" / "sweeps").glob("*.json"))


def test_a_sweep_that_was_kept_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", "show", str(FIXTURES / "good" / "sweeps" / "two-levels.json")]) == 0
    # 11.2 % of the advertised capacity, plus 7 % that the level leaves free.
    assert re.search(r" 19\.0 % .*\(T-U\)/U.* 7 %", _join_lines(capsys.readouterr().out.splitlines()))


@pytest.mark.parametrize("path", BAD, ids=[path.stem for path in BAD])
def test_damaged_sweep_documents_are_refused(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", "show", str(path)]) == 1
    answer = capsys.readouterr()
    assert answer.err.startswith("opwatch: ") and not answer.out


def test_unsteady_level_has_no_figures_or_conclusions() -> None:
    steady, other = _make_result(5.713, 3.522).outcomes
    restless = replace(other, strict=judge_strict([ROUND] * 6, GROUND))
    result = SweepResult("sda", "window", "w", (steady, restless))
    shown = build_result_document(result)
    text = "\n".join(format_sweep(shown))
    assert "5.71 ±" in text and "3.52 ±" not in text
    assert f"7 %, {StrictState.NOT_REACHED}: " in text
    assert shown["returns"] == [] and shown["fit"]["rms_ratio"] is None
    assert shown["advice"].startswith("One level cannot show what more OP gives.")
    assert all(len(line) <= 80 for line in text.split("\n"))


def test_level_disturbed_by_a_busy_host_keeps_only_its_waf() -> None:
    steady, other = _make_result(5.713, 3.522).outcomes
    draw = random.Random(7)
    rounds = [replace(ROUND, ios=round(ROUND.ios * draw.gauss(1, 0.3))) for _ in range(40)]
    verdict = judge_strict(rounds, GROUND)
    assert verdict.state is StrictState.NOT_REACHED
    outcome = replace(other, figures=replace(other.figures, iops=4321.0), strict=verdict)
    shown = build_result_document(SweepResult("sda", "window", "w", (steady, outcome)))
    assert _find_problems(shown) == []
    text = "\n".join(format_sweep(shown))
    row = next(line for line in text.split("\n") if line.startswith("7 %") and line.endswith("no"))
    assert "3.52 ± 0.01" in row and "4321" not in text
    assert "7 %: only its WAF is proven, which host noise does not affect" in text
    # The proven WAF is not expected again, with another error.
    assert "expected" in text and "expected WAF" not in text
    # The fit uses both levels, and so does the step, by WAF alone.
    assert shown["fit"]["rms_ratio"] is not None
    [step] = shown["returns"]
    assert step["iops_ratio"] is None and step["waf_ratio"] == pytest.approx(3.522 / 5.713)
    assert step["worth"] == "pays" and "rests on WAF alone" in shown["advice"]
    # Older documents lack the field and show no WAF.
    for level in shown["levels"]:
        del level["opwatch"]["is_waf_proven"]
    assert "3.52 ±" not in "\n".join(format_sweep(shown))


def test_level_without_an_expected_figure_reports_the_writes_of_a_proof() -> None:
    expected = SteadyExpectation(drive_writes=404.8, seconds=1108.0)
    assert format_expectation(expected).startswith("a proof needs about 405 more drive writes (18.5 min)")
    known = replace(expected, waf=4.2, waf_error=0.4)
    assert format_expectation(known) == "expected WAF 4.2 ± 0.4 after about 405 more drive writes (18.5 min)"


def test_spare_area_is_a_range_if_superblocks_are_not_known() -> None:
    """Greedy with superblocks of 64 pages needs less spare area for the same WAF than with large ones."""
    alphas = [(1 << 40) * 1.125 / level.usable_bytes for level in parse_levels("0,7,28%", SCALE)]
    result = _make_result(*(predict_greedy(alpha, 64) for alpha in alphas))
    fit = build_result_document(result)["fit"]
    assert fit["least_spare_ratio"] == pytest.approx(0.125, abs=0.001) and fit["spare_ratio"] > 0.133
    assert "with 64 pages each, 12.5 %" in " ".join(
        " ".join(format_sweep(build_result_document(result))).split()
    )
    known = build_result_document(replace(result, superblock_pages=64))["fit"]
    assert "least_spare_ratio" not in known and known["spare_ratio"] == pytest.approx(0.125, abs=0.001)
