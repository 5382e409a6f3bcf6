"""Free space: two lines that coincide or differ, and the flash size implied by the author's rates."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from opwatch.ftl import models
from opwatch.scenarios.claims import CheckVerdict, ScenarioVerdict
from opwatch.scenarios.free_space import FilledDrive, evaluate_free_space
from opwatch.scenarios.scenario import load_scenario
from opwatch.steady.strict import StrictState, StrictVerdict
from opwatch.sweep.levels import LevelScale, OpShare, parse_levels
from opwatch.sweep.outcome import LevelFigures, LevelOutcome
from opwatch.tools.cli import main
from tests.unit.scenarios.test_saturation import DRIVE

PASSED = StrictVerdict(StrictState.PASS, (), None)
SCALE = LevelScale(400 << 20, OpShare.WHOLE)


def _make_outcomes(*iops: float | None) -> list[LevelOutcome]:
    levels = parse_levels("75,50,25%", SCALE)
    return [
        LevelOutcome(level, (), LevelFigures(iops=rate), None, PASSED)
        for level, rate in zip(levels, iops, strict=True)
    ]


def _list_verdicts(result: FilledDrive) -> list[ScenarioVerdict]:
    return [finding.verdict for finding in result.judgement.findings]


def _make_free_space(
    whole: Sequence[float | None],
    reserved: Sequence[float | None],
    published: Sequence[float] = (10, 8, 4),
    on: str = "drive",
) -> FilledDrive:
    scenario = replace(load_scenario("free-space"), published_rates=tuple(published))
    return evaluate_free_space(scenario, _make_outcomes(*whole), _make_outcomes(*reserved), 4096, on)


def test_published_result_is_reproduced() -> None:
    result = _make_free_space((1000.0, 800.0, 400.0), (1010.0, 800.0, 396.0))
    assert _list_verdicts(result) == [ScenarioVerdict.REPRODUCED] * 3
    point = result.points[2]
    assert (point.whole, point.relative, point.published) == (400 * 4096, 0.4, 0.4)
    assert point.apart_ratio == pytest.approx(-0.01)


def test_diverging_lines_are_not_equal() -> None:
    result = _make_free_space((1000.0, 800.0, 400.0), (1000.0, 850.0, 400.0))
    assert result.judgement.findings[0].verdict is ScenarioVerdict.NOT_REPRODUCED
    assert "6.2 % apart" in result.judgement.findings[0].why


def test_lines_of_a_model_coincide_by_construction_which_is_no_claim() -> None:
    rates = (1000.0, 800.0, 400.0)
    result = _make_free_space(rates, rates, on="model")
    assert [finding.what for finding in result.judgement.findings] == [
        "the larger the file, the slower",
        "by as much as published",
    ]
    [check] = result.judgement.checks
    assert check.verdict is CheckVerdict.AGREES and "by construction" in check.why
    # On a drive it is the author's claim, and nothing is checked beside it.
    assert _make_free_space(rates, rates).judgement.checks == ()


def test_rates_that_rise_again_are_not_a_fall() -> None:
    assert _list_verdicts(_make_free_space((1000.0, 500.0, 600.0), (1000.0, 500.0, 600.0)))[1] is (
        ScenarioVerdict.NOT_REPRODUCED
    )


def test_constant_rates_leave_the_verdict_open() -> None:
    fall = _make_free_space((1000.0, 1000.0, 999.0), (1000.0, 1000.0, 999.0)).judgement.findings[1]
    assert fall.verdict is ScenarioVerdict.UNTOLD and "interface" in fall.why


def test_missing_steady_state_leaves_the_verdict_open() -> None:
    assert (
        _list_verdicts(_make_free_space((1000.0, None, 400.0), (1000.0, 800.0, 400.0)))
        == [ScenarioVerdict.UNTOLD] * 3
    )


def test_unpublished_levels_have_no_comparison() -> None:
    result = _make_free_space((1000.0, 800.0, 400.0), (1000.0, 800.0, 400.0), published=(10, 4))
    assert (
        result.judgement.findings[2].verdict is ScenarioVerdict.UNTOLD and result.flash_as_published is None
    )


@pytest.mark.parametrize("flash", [350 << 20, 420 << 20, 700 << 20])
def test_implied_flash_of_published_rates_matches_the_model(flash: int) -> None:
    waf = [models.predict_fifo(flash / level.level.usable_bytes) for level in _make_outcomes(1.0, 1.0, 1.0)]
    result = _make_free_space(
        (1000.0, 990.0, 960.0), (1000.0, 990.0, 960.0), published=[1 / one for one in waf]
    )
    assert result.flash_as_published == pytest.approx(flash, rel=1e-6)


def test_lines_coincide_on_a_small_drive(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    drive, kept = tmp_path / "small.toml", tmp_path / "kept.json"
    drive.write_text(DRIVE)
    words = ("--scenario", "free-space", "--virtual", str(drive), "--bs", "4K", "-q", "-o", str(kept))
    assert main(["sweep", "run", *words]) == 0
    shown = capsys.readouterr().out
    assert all(len(line) <= 80 for line in shown.splitlines())
    scenario = json.loads(kept.read_text())["scenario"]
    rates = [point["whole"] for point in scenario["points"]]
    assert rates == sorted(rates, reverse=True)
    assert all(abs(point["apart_ratio"]) < 0.03 for point in scenario["points"])
    assert scenario["statements"][0]["verdict"] == "reproduced"
    assert [one["verdict"] for one in scenario["checks"]] == ["agrees"]
    assert main(["sweep", "show", str(kept)]) == 0
    assert capsys.readouterr().out == shown


def test_file_beyond_the_free_space_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    drive = tmp_path / "small.toml"
    drive.write_text(DRIVE)
    words = ("--scenario", "free-space", "--virtual", str(drive), "--bs", "4K", "-q", "--op", "60,10%")
    assert main(["sweep", "run", *words]) == 2
    assert re.search(r"--op uses 966365184 bytes, .* 25 % .* 805306368$", capsys.readouterr().err)
