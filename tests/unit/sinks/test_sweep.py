"""Sweeps as text and as a document, plans, and the sweep commands."""

from __future__ import annotations

import importlib
import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from opwatch.errors import BadInput
from opwatch.sinks.sweep.document import build_plan_document, build_result_document
from opwatch.sinks.sweep.plan import format_plan
from opwatch.sinks.sweep.table import format_sweep
from opwatch.steady.strict import StrictState, judge_strict
from opwatch.sweep.levels import LevelScale, parse_levels
from opwatch.sweep.outcome import LevelFigures, LevelOutcome
from opwatch.sweep.plan import SweepPace, SweepPlan, SweepRefusal, SweepSpeed, plan_steps
from opwatch.sweep.purges import SECURE_ERASE
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


def test_table_reports_effective_spare_area_and_returns() -> None:
    text = "\n".join(format_sweep(build_result_document(_make_result(5.713, 3.522, 1.936))))
    assert "behaves like 9.9 % of spare area" in text
    assert "every step up to 28 % has a gain" in text
    assert all(len(line) <= 80 for line in text.split("\n"))


def test_missing_figure_has_a_reason() -> None:
    text = "\n".join(format_sweep(build_result_document(_make_result(None, 3.517))))
    assert "0 %, no WAF: no pages" in text
    assert "no life estimate: the drive does not report" in text


def test_spare_area_is_not_fitted_without_a_measured_waf() -> None:
    text = "\n".join(format_sweep(build_result_document(_make_result(None, None))))
    assert "no level amplifies" not in text
    assert "no WAF was measured, so no spare area can be fitted" in text
    assert "no level amplifies, so no spare area can be fitted" in "\n".join(
        format_sweep(build_result_document(_make_result(1.0, 1.0)))
    )


def test_models_of_uniform_writes_are_not_applied_to_other_loads() -> None:
    shown = build_result_document(replace(_make_result(5.713, 3.522, 1.936), is_uniform=False))
    assert _find_problems(shown) == []
    assert shown["fit"] is None
    assert {level["band"] for level in shown["levels"]} == {None}
    assert {level["predicted_waf"] for level in shown["levels"]} == {None}
    text = " ".join(format_sweep(shown))
    assert "behaves like" not in text and "no level amplifies" not in text
    assert "this workload does not write uniformly" in text


def test_model_results_are_labelled() -> None:
    model = ModelScale("big", 0.004, 2048, 65536, (0.004, 0.003))
    result = _make_result(5.7, 3.5)
    shown = build_result_document(SweepResult("x", "window", "w", result.outcomes, model=model))
    assert _find_problems(shown) == []
    text = " ".join(format_sweep(shown))
    assert "A MODEL of big" in text and "0.4 % of its size" in text


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
    text = "\n".join(format_plan(plan))
    assert text.count("discard the whole drive, 1.10 TB discarded") == 2
    assert "a sweep would be refused:\n  mounts: sda1 is mounted at /; unmount it" in text
    assert "time: unknown" in text and "share of rated life: unknown: not rated" in text
    assert text.endswith("nothing was written") and all(len(line) <= 80 for line in text.split("\n"))
    assert _find_problems(build_plan_document(plan)) == []


def test_a_plan_with_a_speed_has_a_time() -> None:
    plan = _make_plan(speed=SweepSpeed(1e9, 1e8))
    assert "time: " in "\n".join(format_plan(plan)) and "time: unknown" not in "\n".join(format_plan(plan))
    assert _find_problems(build_plan_document(plan)) == []


def test_plan_with_a_purge_of_unknown_duration_has_no_time() -> None:
    plan = _make_plan(speed=SweepSpeed(1e9, 1e8))
    untold = SECURE_ERASE._replace(seconds=None)
    steps = plan_steps(plan.levels, "window", SweepPace(), SweepSpeed(1e9, 1e8), untold)
    plan = replace(plan, steps=steps)
    text = "\n".join(format_plan(plan))
    assert "time: unknown, because the drive does not report how long its purge takes" in text
    assert "discarded" not in text
    assert _find_problems(build_plan_document(plan)) == []


def test_a_sweep_on_simulated_flash_is_kept_and_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "sweep.json"
    words = ["sweep", "run", "--virtual", "ideal", "--op", "28%", "--rounds", "5", "-q", "-o", str(kept)]
    # Five rounds of a tenth are too few for a steady state.
    assert main(words) == 6
    shown = capsys.readouterr().out
    assert "A MODEL of ideal" in shown and "not reached" in shown
    assert main(["sweep", "show", str(kept)]) == 0
    assert capsys.readouterr().out == shown
    assert main(["sweep", "show", str(kept), "--json"]) == 0
    assert _find_problems(json.loads(capsys.readouterr().out)) == []
    assert main(words) == 2
    assert "exists already" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "status", "complaint"),
    [
        (["run"], 2, "name what to measure"),
        (["run", "--virtual", "nope"], 2, "unknown drive profile nope"),
        (["run", "--virtual", "fitted:/nope.journal"], 2, "give the name of a sweep"),
        (["run", "--virtual", "ideal", "--op", "5000%"], 2, "is too large"),
        (["run", "--virtual", "ideal", "--base", "flash", "--op", "1%"], 2, "the visible size"),
        (["run", "--virtual", "ideal", "--bs", "5000"], 2, "power of two"),
        (["run", "--virtual", "ideal", "--destroy"], 2, "--destroy: only with --dev"),
        (["run", "--dev", "sda", "--bs", "4k"], 2, "--bs: only with --virtual"),
        (["plan"], 2, "name what to plan for"),
        (["plan", "--virtual", "ideal", "--method", "magic"], 2, "unknown method 'magic'"),
        (["show", "/nonexistent"], 2, "cannot read"),
    ],
)
def test_contradictory_sweep_options_are_refused(
    words: list[str], status: int, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sweep", *words]) == status
    assert complaint in capsys.readouterr().err


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
    assert "behaves like 19.0 % of spare area, (T-U)/U, at level 7 %" in capsys.readouterr().out


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
    assert "3.52" not in text.split("behaves")[0].split("7 %, not reached")[0].split("\n7 %")[1]
    assert "7 %, not reached: host writes" in text
    assert shown["returns"] == [] and shown["fit"]["rms_ratio"] is None
    assert shown["advice"] == "one level cannot show what more OP gives"
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
    # The fit uses both levels, but the IOPS of one level show no gain.
    assert shown["fit"]["rms_ratio"] is not None and shown["returns"] == []
    # Older documents lack the field and show no WAF.
    for level in shown["levels"]:
        del level["opwatch"]["is_waf_proven"]
    assert "3.52 ±" not in "\n".join(format_sweep(shown))
