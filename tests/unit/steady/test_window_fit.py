"""The window that a verdict chooses, and the errors fitted to it, for series with known results."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest

from opwatch.steady.approach import estimate_settled
from opwatch.steady.coverage import WriteSpread
from opwatch.steady.rounds import Round, RoundSums, merge_rounds
from opwatch.steady.strict import StrictRule, StrictState, VerdictInputs, judge_strict
from opwatch.steady.window import SteadyWindow

GROUND = VerdictInputs(1000, 100, WriteSpread(1.0, 0.0, "test"))
CALM = Round(100, 1.0, 100, 1e6, 200)
# Rounds before the window: with a WAF of 2, the turnover takes 0.22 drive writes.
BEFORE = [CALM] * 3
# Student's t with 2 degrees of freedom at 5 %, from a table.
T_2 = 4.302653


def make_rounds(nand: Sequence[float]) -> list[Round]:
    return [replace(CALM, host_bytes=100, nand_bytes=round(200 * value)) for value in nand]


def judge_window(rounds: Sequence[Round], ground: VerdictInputs = GROUND) -> SteadyWindow:
    window = judge_strict(rounds, ground).window
    assert window
    return window


def test_constant_series_has_no_error() -> None:
    value = estimate_settled([5.0] * 30, 1.0)
    assert value and value.mean == value.expected == 5.0
    assert (value.error, value.is_approaching) == (0.0, False)


def test_error_by_chance_is_that_of_slow_waves() -> None:
    """A single slow wave of amplitude a has all power in one of two waves: its mean error is t a / 2."""
    wave = [1 + 0.01 * math.cos(2 * math.pi * (at + 0.5) / 30) for at in range(30)]
    value = estimate_settled(wave, 1.0)
    assert value and value.chance == pytest.approx(T_2 * 0.01 / 2)
    # Three times the visible change from its lowest to its highest point.
    assert value.change == pytest.approx(3 * 0.02, rel=0.01)


def test_fast_wave_is_no_change() -> None:
    value = estimate_settled([1 + 0.01 * (-1) ** at for at in range(32)], 1.0)
    assert value and value.change == 0 and value.chance < 0.002


@pytest.mark.parametrize("constant", [0.35, 1.0])
def test_exponential_approach_is_extrapolated_to_its_end(constant: float) -> None:
    parts = [3 * (1 + 0.2 * math.exp(-(at + 0.5) / 32 / constant)) for at in range(32)]
    value = estimate_settled(parts, 1.0)
    assert value and value.is_approaching and value.constant == constant
    assert value.expected == pytest.approx(3, rel=1e-3)
    assert value.approach >= 1 - 3 / value.mean


def test_too_few_parts_have_no_estimate() -> None:
    assert estimate_settled([1.0] * 4, 1.0) is None
    assert estimate_settled([1.0] * 5, 1.0) is not None
    assert estimate_settled([0.0] * 9, 1.0) is None


def test_writes_and_coverage_of_exactly_the_limit_pass() -> None:
    ground = replace(GROUND, spread=WriteSpread(0.999, 0.0, "test"))
    assert judge_strict([CALM] * 33, ground).state is StrictState.PASS
    assert judge_strict([CALM] * 32, ground).window is None
    less = judge_strict([CALM] * 40, replace(ground, spread=WriteSpread(0.9989, 0.0, "test")))
    assert [check.name for check in less.checks if not check.is_met] == ["coverage"]


def test_window_has_at_least_five_rounds() -> None:
    large = Round(1000, 1.0, 100, 1e6, 2000)
    window = judge_window([large] * 6)
    assert (window.first_round, window.rounds) == (2, 5)
    assert judge_strict([large] * 5, GROUND).window is None


def test_window_starts_after_the_spare_area_and_the_turnover() -> None:
    assert judge_window([CALM] * 33).first_round == 4
    # A WAF of 8 collects superblocks with fewer stale pages: the spare area takes longer than the turnover.
    steep = [replace(CALM, nand_bytes=800)] * 33
    assert judge_window(steep, replace(GROUND, spare_bytes=300)).first_round == 4
    assert judge_strict(steep, replace(GROUND, spare_bytes=301)).window is None
    written = replace(GROUND, spare_bytes=301, written_bytes=1)
    assert judge_window(steep, written).first_round == 4


def test_shortest_window_without_a_failure_is_chosen() -> None:
    assert judge_window([CALM] * 103).rounds == 30
    # Thirty rounds with one fast cycle per fifteen rounds are too few, sixty are not.
    cycle = [1 + 0.02 * math.sin(2 * math.pi * at / 15) for at in range(120)]
    verdict = judge_strict([*BEFORE, *make_rounds([100 * one for one in cycle])], GROUND)
    assert verdict.state is StrictState.PASS and verdict.window and verdict.window.rounds > 30
    never = judge_strict([*BEFORE, *make_rounds([100 + at for at in range(120)])], GROUND)
    assert never.state is StrictState.NOT_REACHED and never.window and never.window.rounds == 30


def test_variable_that_is_0_in_one_part_has_an_error() -> None:
    window = judge_window([*BEFORE, *make_rounds([0.0] + [1.0] * 29)])
    assert window.waf and window.waf.error > 0.02
    assert judge_window([*BEFORE, *make_rounds([0.0] * 30)]).waf is None


def test_running_sums_merge_like_the_rounds() -> None:
    rounds = [
        Round(100 + at, 1.5, 10 * at, None if at == 5 else 1e6 * at, None if at == 9 else at)
        for at in range(12)
    ]
    sums = RoundSums(rounds)
    for begin, end in ((0, 12), (0, 5), (6, 9), (10, 12)):
        assert sums.merge(begin, end) == merge_rounds(rounds[begin:end])


def test_merged_rounds_are_sums_with_the_mean_of_the_tails() -> None:
    one, two = Round(100, 1.0, 10, 2e6, 300), Round(300, 3.0, 20, 4e6, 500)
    whole = merge_rounds([one, two])
    assert whole == Round(400, 4.0, 30, 3e6, 800)
    assert whole.iops == 7.5 and whole.waf == 2.0
    assert merge_rounds([one, replace(two, p99_ns=None)]).p99_ns is None
    assert merge_rounds([one, replace(two, nand_bytes=None)]).nand_bytes is None


def test_round_without_host_writes_or_counters_has_no_waf() -> None:
    assert replace(CALM, host_bytes=0).waf is None
    assert replace(CALM, nand_bytes=None).waf is None


def test_rounds_and_inputs_that_cannot_be_divided_by_are_flawed() -> None:
    assert CALM.find_flaw() is None and replace(CALM, seconds=0.0).find_flaw()
    assert GROUND.find_flaw() is None and replace(GROUND, active_bytes=0).find_flaw()


def test_report_has_the_reason_and_the_rounds_of_the_window() -> None:
    passed = judge_strict([CALM] * 40, GROUND).to_report()
    assert (passed.state, passed.reason, passed.window) == (StrictState.PASS, None, (4, 40))
    assert passed.is_waf_proven and passed.iops_error_ratio == passed.waf_error_ratio == 0
    assert passed.written_drive_writes == 4 and passed.turnover_drive_writes == pytest.approx(
        0.222, abs=0.001
    )
    verdict = judge_strict([CALM] * 20 + [replace(CALM, ios=90)] * 20, GROUND)
    report = verdict.to_report()
    assert report.reason == verdict.reason != ""
    assert report.is_waf_proven and report.checks == verdict.checks
    early = judge_strict([CALM] * 3, GROUND)
    assert early.to_report().window is None and not early.is_amplification_proven


def draw_line(rise: float) -> list[float]:
    """Return factors around 1 on a line that rises by this share over ten parts."""
    return [1 + rise * (at // 3 - 4.5) / 9 for at in range(30)]


@pytest.mark.parametrize(("is_met", "rise"), [(True, 0.0999), (False, 0.1001)])
def test_default_limit_of_the_tail_is_the_documented_one(rise: float, *, is_met: bool) -> None:
    rounds = [replace(CALM, p99_ns=1e6 * factor) for factor in draw_line(rise)]
    checks = {check.name: check.is_met for check in judge_strict([*BEFORE, *rounds], GROUND).checks}
    assert checks == dict.fromkeys(checks, True) | {"p99": is_met}


@pytest.mark.parametrize("name", ["IOPS", "WAF"])
def test_error_of_exactly_the_limit_passes(name: str) -> None:
    noise = [1 + 0.002 * (-1) ** (at * at // 3) for at in range(30)]
    rounds = [
        *BEFORE,
        *(
            [replace(CALM, ios=round(1e6 * one)) for one in noise]
            if name == "IOPS"
            else make_rounds([1000 * one for one in noise])
        ),
    ]
    window = judge_window(rounds)
    value = window.iops if name == "IOPS" else window.waf
    assert value and value.error > 0
    for limit, is_met in ((value.error, True), (value.error * 0.999, False)):
        verdict = judge_strict(rounds, GROUND, StrictRule(error=limit, noise=0.0))
        assert {check.name: check.is_met for check in verdict.checks}[name] is is_met
