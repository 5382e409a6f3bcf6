"""Write saturation: the cliff, the gains, and the reason if there is no verdict."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from opwatch.scenarios.claims import ScenarioVerdict
from opwatch.scenarios.saturation import evaluate_saturation
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


def test_cliff_is_where_moves_exceed_writes() -> None:
    [level] = evaluate_saturation(SATURATION, [_make_outcome("7%", 1000.0)], 0.5)
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
    first, second, third = evaluate_saturation(
        SATURATION,
        [
            _make_disturbed_outcome("7%", 7.4),
            _make_disturbed_outcome("18%", 3.1),
            _make_disturbed_outcome("35%", None),
        ],
        1.0,
    )
    assert first.likeness is ScenarioVerdict.REPRODUCED and first.is_by_waf
    assert second.gain == pytest.approx(7.4 / 3.1) and second.is_by_waf
    assert second.gain_error == pytest.approx((0.01 / 7.4 + 0.01 / 3.1) * 7.4 / 3.1)
    assert second.likeness is ScenarioVerdict.REPRODUCED and "by WAF only" in second.why
    # A level without proof has no figure either.
    assert third.gain is None and third.likeness is ScenarioVerdict.UNTOLD


@pytest.mark.parametrize(
    ("part", "likeness"), [(0.995, ScenarioVerdict.REPRODUCED), (0.97, ScenarioVerdict.NOT_REPRODUCED)]
)
def test_model_error_is_at_least_a_percent(part: float, likeness: ScenarioVerdict) -> None:
    """The models assume many superblocks, with none open or reserved."""
    [_, second] = evaluate_saturation(
        SATURATION, [_make_disturbed_outcome("7%", 7.4), _make_disturbed_outcome("18%", 3.1)], 1.0
    )
    assert second.expected_gain
    exact = replace(_make_disturbed_outcome("7%", 7.4), figures=LevelFigures(waf=7.4, waf_error=0.0))
    waf = 7.4 / (part * second.expected_gain.low)
    other = replace(_make_disturbed_outcome("18%", waf), figures=LevelFigures(waf=waf, waf_error=0.0))
    [_, level] = evaluate_saturation(SATURATION, [exact, other], 1.0)
    assert level.likeness is likeness


def test_steady_level_is_compared_by_the_common_figure() -> None:
    at_rest = replace(_make_outcome("7%", 1000.0), figures=LevelFigures(iops=1000.0, waf=7.4, waf_error=0.0))
    [_, second] = evaluate_saturation(SATURATION, [at_rest, _make_disturbed_outcome("18%", 3.1)], 1.0)
    assert second.gain == pytest.approx(7.4 / 3.1) and second.is_by_waf


def test_drive_with_a_cache_has_no_predicted_cliff() -> None:
    [level] = evaluate_saturation(SATURATION, [_make_outcome("7%", 1000.0)], 1.0, has_cache=True)
    assert level.cliff is not None and level.predicted_cliff_bytes is None


def test_drive_without_relocation_has_no_cliff() -> None:
    outcome = replace(_make_outcome("7%", 1000.0), rounds=(FRESH,) * 20)
    [level] = evaluate_saturation(SATURATION, [outcome], 1.0)
    assert level.cliff is None


@pytest.mark.parametrize(
    ("iops", "likeness", "why"),
    [
        (2400.0, ScenarioVerdict.REPRODUCED, "within"),
        (1500.0, ScenarioVerdict.NOT_REPRODUCED, "less"),
        (4000.0, ScenarioVerdict.NOT_REPRODUCED, "more"),
    ],
)
def test_gain_is_compared_with_the_models(iops: float, likeness: ScenarioVerdict, why: str) -> None:
    first, second = evaluate_saturation(
        SATURATION, [_make_outcome("7%", 1000.0), _make_outcome("18%", iops)], 1.0
    )
    assert (first.gain, first.likeness) == (1.0, ScenarioVerdict.REPRODUCED)
    assert second.gain == pytest.approx(iops / 1000)
    assert second.likeness is likeness and why in second.why


def test_level_limited_by_its_interface_leaves_the_verdict_open() -> None:
    _, second = evaluate_saturation(
        SATURATION, [_make_outcome("7%", 9000.0), _make_outcome("18%", 9900.0)], 1.0
    )
    assert second.likeness is ScenarioVerdict.UNTOLD and "interface" in second.why


def test_level_without_a_steady_state_is_not_compared() -> None:
    tired = _make_outcome("7%", None, NOT_REACHED)
    first, second = evaluate_saturation(SATURATION, [tired, _make_outcome("18%", 2400.0)], 1.0)
    assert (first.gain, second.gain) == (None, None)
    assert first.likeness is second.likeness is ScenarioVerdict.UNTOLD
    assert first.why.startswith(StrictState.NOT_REACHED.value) and "first" in second.why


def test_small_drive_gains_as_modelled(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    drive, kept = tmp_path / "small.toml", tmp_path / "kept.json"
    drive.write_text(DRIVE)
    words = ("--scenario", "write-saturation", "--virtual", str(drive), "-q", "-o", str(kept))
    assert main(["sweep", "run", *words, "--op", "7,18%"]) == 0
    shown = capsys.readouterr().out
    assert all(len(line) <= 80 for line in shown.splitlines())
    scenario = json.loads(kept.read_text())["scenario"]
    for level in scenario["levels"]:
        assert abs(level["cliff"]["host_bytes"] / level["predicted_cliff_bytes"] - 1) < 0.02
        assert level["likeness"] == "reproduced"
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
