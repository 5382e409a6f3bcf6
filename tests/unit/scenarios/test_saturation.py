"""Write saturation: the cliff, the gains, and the reason if there is no verdict."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from opwatch.ftl import profiles
from opwatch.scenarios.claims import CheckVerdict, Finding, ScenarioVerdict
from opwatch.scenarios.saturation import (
    SaturationLevel,
    SaturationResult,
    SaturationTarget,
    evaluate_saturation,
    list_later_steps,
)
from opwatch.scenarios.scenario import load_scenario
from opwatch.steady.rounds import Round
from opwatch.steady.strict import StrictCheck, StrictState, StrictVerdict
from opwatch.steady.window import SteadyWindow
from opwatch.sweep.levels import LevelScale, OpBase, OpLevel, OpShare, parse_levels
from opwatch.sweep.outcome import LevelFigures, LevelOutcome
from opwatch.tools.cli import main

SATURATION = load_scenario("write-saturation")
FLASH = 1 << 30
PASSED = StrictVerdict(StrictState.PASS, (), None)
NOT_REACHED = StrictVerdict(StrictState.NOT_REACHED, (), None)
# Flash that writes 4 KiB in 0.1 ms and relocates no pages until all of it was written.
FRESH = Round(1 << 20, 0.0256, 256, nand_bytes=1 << 20)
DRIVE = """\
description = "A small drive"
source = "Made up"
[drive]
user_bytes = 1073741824
physical_bytes = 1153433600
superblock_bytes = 1048576
policy = "greedy"
dies = 8
[timing]
dies = 8
planes = 1
channels = 2
page_bytes = 16384
block_bytes = 2097152
read_ns = 60000
program_ns = 600000
erase_ns = 3000000
channel_bytes_per_s = 400000000
host_bytes_per_s = 500000000
command_ns = 4000
latency_ns = 20000
buffer_bytes = 4194304
"""


def _make_level(percent: str) -> OpLevel:
    [level] = parse_levels(percent, LevelScale(FLASH, OpShare.WHOLE, OpBase.FLASH, 4096), FLASH)
    return level


def _make_outcome(
    percent: str, iops: float | None, verdict: StrictVerdict = PASSED, fresh: int = 1024
) -> LevelOutcome:
    moving = replace(FRESH, nand_bytes=3 << 20)
    figures = LevelFigures(iops=iops, missing={"waf": "not asked for"})
    return LevelOutcome(_make_level(percent), (*(FRESH,) * fresh, moving, moving), figures, None, verdict)


def _evaluate(outcomes: list[LevelOutcome], target: SaturationTarget) -> SaturationResult:
    return evaluate_saturation(SATURATION, outcomes, target)


def _list_levels(
    *outcomes: LevelOutcome, scale: float = 1.0, has_cache: bool = False
) -> list[SaturationLevel]:
    return list(_evaluate(list(outcomes), SaturationTarget(scale=scale, has_cache=has_cache)).levels)


def _check_gain(*outcomes: LevelOutcome) -> tuple[CheckVerdict, str]:
    """Return whether the second level gains what the models predict."""
    first, *_ = _evaluate(list(outcomes), SaturationTarget()).judgement.checks
    return first.verdict, first.why


def test_cliff_is_where_moves_exceed_writes() -> None:
    [level] = _list_levels(_make_outcome("7%", 1000.0), scale=0.5)
    assert level.cliff is not None and level.predicted_cliff_bytes == FLASH
    # For a model of half the size: twice the bytes and twice the time.
    assert level.cliff.host_bytes == 2 * FLASH
    assert level.cliff.seconds == pytest.approx(2 * 1024 * 0.0256)
    assert level.cliff.within_bytes == 2 << 20
    assert level.fresh_iops == pytest.approx(10_000)


def _make_disturbed_outcome(percent: str, waf: float | None) -> LevelOutcome:
    """Only the IOPS are not steady, as on a busy host."""
    checks = (
        StrictCheck("IOPS", "a drift of at most 2 %", "30 %", is_met=False),
        StrictCheck("WAF", "a drift of at most 2 %", "1 %", is_met=waf is not None),
    )
    window = SteadyWindow(1, 5, FRESH, None, None, None)
    verdict = StrictVerdict(StrictState.NOT_REACHED, checks, window)
    figures = LevelFigures(iops=1234.0, waf=waf or 9.0, waf_error=0.01)
    return replace(_make_outcome(percent, 1234.0, verdict), figures=figures)


def test_busy_host_makes_the_gain_use_waf() -> None:
    first, second, third = _list_levels(
        _make_disturbed_outcome("7%", 7.4),
        _make_disturbed_outcome("18%", 3.1),
        _make_disturbed_outcome("35%", None),
    )
    assert first.likeness is ScenarioVerdict.UNTOLD and first.is_by_waf and "compared with it" in first.why
    assert second.gain == pytest.approx(7.4 / 3.1) and second.is_by_waf
    assert second.gain_error == pytest.approx((0.01 / 7.4 + 0.01 / 3.1) * 7.4 / 3.1)
    assert second.likeness is ScenarioVerdict.REPRODUCED and "by WAF only" in second.why
    # A level without proof has no figure either.
    assert third.gain is None and third.likeness is ScenarioVerdict.UNTOLD


@pytest.mark.parametrize(("part", "verdict"), [(0.995, CheckVerdict.AGREES), (0.97, CheckVerdict.DIFFERS)])
def test_model_error_is_at_least_a_percent(part: float, verdict: CheckVerdict) -> None:
    """The models assume many superblocks, with none open or reserved."""
    _, second = _list_levels(_make_disturbed_outcome("7%", 7.4), _make_disturbed_outcome("18%", 3.1))
    assert second.expected_gain
    exact = replace(_make_disturbed_outcome("7%", 7.4), figures=LevelFigures(waf=7.4, waf_error=0.0))
    waf = 7.4 / (part * second.expected_gain.low)
    other = replace(_make_disturbed_outcome("18%", waf), figures=LevelFigures(waf=waf, waf_error=0.0))
    assert _check_gain(exact, other)[0] is verdict


def test_steady_level_is_compared_by_the_common_figure() -> None:
    at_rest = replace(_make_outcome("7%", 1000.0), figures=LevelFigures(iops=1000.0, waf=7.4, waf_error=0.0))
    _, second = _list_levels(at_rest, _make_disturbed_outcome("18%", 3.1))
    assert second.gain == pytest.approx(7.4 / 3.1) and second.is_by_waf


def test_drive_with_a_cache_has_no_predicted_cliff() -> None:
    [level] = _list_levels(_make_outcome("7%", 1000.0), has_cache=True)
    assert level.cliff is not None and level.predicted_cliff_bytes is None


def test_drive_without_relocation_has_no_cliff() -> None:
    outcome = replace(_make_outcome("7%", 1000.0), rounds=(FRESH,) * 20)
    result = _evaluate([outcome], SaturationTarget("drive"))
    assert result.levels[0].cliff is None
    assert _find_claim(result, "drops once").verdict is ScenarioVerdict.NOT_REPRODUCED


@pytest.mark.parametrize(
    ("iops", "verdict", "why"),
    [
        (2400.0, CheckVerdict.AGREES, "predicted x 2.3"),
        (1500.0, CheckVerdict.DIFFERS, "less"),
        (4000.0, CheckVerdict.DIFFERS, "more"),
    ],
)
def test_gain_is_checked_against_the_models(iops: float, verdict: CheckVerdict, why: str) -> None:
    outcomes = (_make_outcome("7%", 1000.0), _make_outcome("18%", iops))
    first, second = _list_levels(*outcomes)
    assert first.gain == 1.0 and second.gain == pytest.approx(iops / 1000)
    # The author has no figure: any gain is what was found.
    assert second.likeness is ScenarioVerdict.REPRODUCED
    checked, reason = _check_gain(*outcomes)
    assert checked is verdict and why in reason


def test_level_limited_by_its_interface_is_not_checked() -> None:
    checked, why = _check_gain(_make_outcome("7%", 9000.0), _make_outcome("18%", 9900.0))
    assert checked is CheckVerdict.OPEN and "interface" in why


def test_level_without_a_steady_state_is_not_compared() -> None:
    tired = _make_outcome("7%", None, NOT_REACHED)
    first, second = _list_levels(tired, _make_outcome("18%", 2400.0))
    assert (first.gain, second.gain) == (None, None)
    assert first.likeness is second.likeness is ScenarioVerdict.UNTOLD
    assert first.why.startswith(StrictState.NOT_REACHED.value) and "first" in second.why


def _find_claim(result: SaturationResult, words: str) -> Finding:
    [finding] = [one for one in result.judgement.findings if words in one.what]
    return finding


@pytest.mark.parametrize(
    ("iops", "verdict"),
    [(1005.0, ScenarioVerdict.REPRODUCED), (4200.0, ScenarioVerdict.NOT_REPRODUCED)],
)
def test_drive_that_gained_nothing_in_the_review_must_gain_nothing(
    iops: float, verdict: ScenarioVerdict
) -> None:
    outcomes = [_make_outcome("26%", 1000.0), _make_outcome("44%", iops)]
    result = _evaluate(outcomes, SaturationTarget(profile="smart-optimus-400"))
    assert _find_claim(result, "improves nothing").verdict is verdict
    assert result.levels[1].likeness is verdict
    assert not any("is faster" in one.what for one in result.judgement.findings)


def test_step_set_from_the_chart_is_no_evidence_for_the_chart() -> None:
    outcomes = [_make_outcome("7%", 1000.0), _make_outcome("18%", 2400.0)]
    target = SaturationTarget(profile="intel-520-240", has_throttle=True)
    step = _find_claim(_evaluate(outcomes, target), "1500 s")
    assert step.verdict is ScenarioVerdict.UNTOLD and "no evidence" in step.why
    # A profile without throttling does not show the step that the review saw.
    other = _evaluate(outcomes, SaturationTarget(profile="corsair-neutron-gtx-240"))
    assert _find_claim(other, "second step").verdict is ScenarioVerdict.NOT_REPRODUCED


@pytest.mark.parametrize(
    ("profile", "words", "tight", "wide"),
    [
        ("", "scatter", ScenarioVerdict.NOT_REPRODUCED, ScenarioVerdict.REPRODUCED),
        ("smart-optimus-400", "tight", ScenarioVerdict.REPRODUCED, ScenarioVerdict.NOT_REPRODUCED),
    ],
)
def test_scatter_of_a_drive_is_judged_from_its_seconds(
    profile: str, words: str, tight: ScenarioVerdict, wide: ScenarioVerdict
) -> None:
    for dispersion, verdict in ((0.02, tight), (0.12, wide)):
        outcome = _make_outcome("7%", 1000.0)
        outcome = replace(outcome, figures=replace(outcome.figures, iops_cv=dispersion))
        found = _find_claim(_evaluate([outcome], SaturationTarget("drive", profile)), words)
        assert found.verdict is verdict
        # A model has no firmware whose seconds scatter.
        model = _find_claim(_evaluate([outcome], SaturationTarget("model", profile)), words)
        assert model.verdict is ScenarioVerdict.UNTOLD


def _make_course(*parts: tuple[int, float, float]) -> list[Round]:
    """Return rounds of 1 MiB: their number, their WAF, and MB of flash written per second."""
    return [
        Round(
            1 << 20, waf * (1 << 20) / rate / 1e6 * (1 + (at % 5) / 100), 256, nand_bytes=int(waf * (1 << 20))
        )
        for n_rounds, waf, rate in parts
        for at in range(n_rounds)
    ]


def test_slower_flash_after_the_cliff_is_a_second_step() -> None:
    rounds = _make_course((40, 1.0, 100.0), (40, 3.0, 100.0), (60, 4.0, 70.0))
    begin_s = sum(one.seconds for one in rounds[:80])
    [step] = list_later_steps(rounds, 0.5)
    assert step == pytest.approx(2 * begin_s, rel=0.05)


def test_rising_write_amplification_alone_is_no_second_step() -> None:
    """The host becomes slower, the flash does not."""
    assert list_later_steps(_make_course((40, 1.0, 100.0), (40, 2.0, 100.0), (60, 5.0, 100.0)), 1.0) == []
    assert list_later_steps(_make_course((40, 1.0, 100.0)), 1.0) == []


def test_drives_of_the_review_have_their_own_levels() -> None:
    scale = LevelScale(400_088_457_216, OpShare.WHOLE, OpBase.VISIBLE, 4096)
    optimus = SATURATION.make_tested_levels("smart-optimus-400", scale, None)
    # No level uses more than the drive shows.
    assert optimus[0].usable_bytes == 400_088_457_216 and all(
        level.usable_bytes <= scale.capacity_bytes for level in optimus
    )
    assert list(SATURATION.drives["ocz-vertex4-256"]) == ["normal OP", "48 GB OP", "96 GB OP"]
    assert len(SATURATION.drives) == 7
    for name, levels in SATURATION.drives.items():
        sold = profiles.load_profile(name).drive["user_bytes"]
        assert levels["normal OP"] == sold == max(levels.values())
        if "96 GB OP" in levels:
            assert (256 << 30) - levels["96 GB OP"] == 96_000_000_000


def test_small_drive_gains_as_modelled(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    drive, kept = tmp_path / "small.toml", tmp_path / "kept.json"
    drive.write_text(DRIVE)
    words = ("--scenario", "write-saturation", "--virtual", str(drive), "-q", "-o", str(kept))
    assert main(["sweep", "run", *words, "--op", "0,11.85%"]) == 0
    shown = capsys.readouterr().out
    assert all(len(line) <= 80 for line in shown.splitlines())
    scenario = json.loads(kept.read_text())["scenario"]
    for level in scenario["levels"]:
        assert abs(level["cliff"]["host_bytes"] / level["predicted_cliff_bytes"] - 1) < 0.02
    assert [level["likeness"] for level in scenario["levels"]] == ["cannot be told", "reproduced"]
    assert [check["verdict"] for check in scenario["checks"]] == ["agrees", "agrees"]
    assert scenario["differs_in_size_only_from"] == []
    assert scenario["levels"][1]["gain"] == pytest.approx(2.45, rel=0.05)
    # `show` prints the kept document with the same output.
    assert main(["sweep", "show", str(kept)]) == 0
    assert capsys.readouterr().out == shown


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--scenario", "nothing", "--virtual", "ideal"), "write-saturation"),
        (("--scenario", "write-saturation"), "add --virtual intel-520-240"),
        (("--scenario", "write-saturation", "--virtual", "ideal", "--fill", "1"), "itself"),
        (("--scenario", "write-saturation", "--virtual", "ideal", "--reads", "3%"), "without --scenario"),
    ],
)
def test_options_fixed_by_a_scenario_are_refused(
    words: tuple[str, ...], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sweep", "run", *words]) == 2
    assert why in capsys.readouterr().err
