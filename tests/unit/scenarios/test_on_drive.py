"""Experiments on a drive: levels, pace, and verdicts for a drive with an unknown flash size."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from opwatch.codec import decode, encode
from opwatch.errors import UsageError
from opwatch.journal.request import SweepRequest
from opwatch.scenarios.claims import ScenarioVerdict
from opwatch.scenarios.on_drive import choose_drive_pace, make_drive_levels, split_outcomes
from opwatch.scenarios.saturation import SaturationTarget, evaluate_saturation, find_steady_iops
from opwatch.scenarios.scenario import load_scenario
from opwatch.tools.cli import main
from tests.unit.sweep.test_journal import RECORD, REQUEST

GIB = 1 << 30
SATURATION, FREE = load_scenario("write-saturation"), load_scenario("free-space")


def test_saturation_levels_are_shares_of_the_capacity() -> None:
    levels = make_drive_levels(SATURATION, 240 * GIB, None)
    assert [level.label for level in levels] == ["0 %", "11.4 %", "30.1 %"]
    shares = [level.usable_bytes / (240 * GIB) for level in levels]
    assert shares == pytest.approx([1, 0.886, 0.699], abs=1e-4)


def test_free_space_repeats_its_levels_on_three_quarters() -> None:
    whole, reserved = (
        make_drive_levels(FREE, 320 * GIB, None)[:3],
        make_drive_levels(FREE, 320 * GIB, None)[3:],
    )
    assert [one.usable_bytes for one in whole] == [one.usable_bytes for one in reserved]
    assert {one.scale.capacity_bytes for one in reserved} == {240 * GIB}
    assert [one.label for one in reserved] == [f"{one.label}, reserved" for one in whole]
    with pytest.raises(UsageError, match=rf"^--op: .* 25 % .*\b{240 * GIB} bytes$"):
        make_drive_levels(FREE, 320 * GIB, None, "10,50%")


def test_outcomes_are_split_into_two_lines() -> None:
    outcome = RECORD.make_outcome(REQUEST.levels[1])
    assert split_outcomes([outcome] * 6) == ([outcome] * 3, [outcome] * 3)


def test_saturation_starts_on_a_new_drive() -> None:
    assert choose_drive_pace(SATURATION, None, None).fill_passes == 0
    pace = choose_drive_pace(FREE, 0.25, 7)
    assert (pace.fill_passes, pace.round_ratio, pace.most_rounds) == (1, 0.25, 7)


def test_experiment_without_levels_is_refused_for_a_whole_drive() -> None:
    with pytest.raises(UsageError, match=r"untrimmed-cliff: .*\(--dev\)"):
        make_drive_levels(load_scenario("untrimmed-cliff"), GIB, None)


def test_journal_keeps_the_experiments_name() -> None:
    document = encode(REQUEST)
    assert decode(SweepRequest, document, "it").scenario is None
    named = document | {"scenario": "free-space"}
    assert decode(SweepRequest, named, "it").scenario == "free-space"


def test_unsteady_figures_are_not_a_steady_rate() -> None:
    outcome = RECORD.make_outcome(make_drive_levels(SATURATION, GIB, None)[0])
    [level] = evaluate_saturation(SATURATION, [outcome], SaturationTarget("drive")).levels
    assert find_steady_iops(outcome) is None
    # Only the WAF is proven.
    assert level.is_by_waf and re.search(r"WAF .* IOPS are not\b", level.why)
    unproven = replace(outcome, strict=replace(outcome.strict, window=None))
    [level] = evaluate_saturation(SATURATION, [unproven], SaturationTarget("drive")).levels
    assert level.gain is None
    assert level.likeness is ScenarioVerdict.UNTOLD


@pytest.mark.parametrize("words", [["--virtual", "ideal"], ["--test", "wsat"]])
def test_options_unfit_for_a_drive_are_refused_before_the_drive_is_opened(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sweep", "plan", "--scenario", "write-saturation", "--dev", "nothing", *words]) == 2
    assert capsys.readouterr().err.startswith(f"opwatch: {words[0]}: ")
