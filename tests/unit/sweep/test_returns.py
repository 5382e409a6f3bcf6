from __future__ import annotations

import random
from dataclasses import replace

import pytest

from opwatch.steady.coverage import WriteSpread
from opwatch.steady.rounds import Round
from opwatch.steady.strict import StrictState, StrictVerdict, VerdictInputs, judge_strict
from opwatch.sweep.levels import LevelScale, parse_levels
from opwatch.sweep.outcome import LevelFigures, LevelOutcome
from opwatch.sweep.returns import StepWorth, compute_level_gains, estimate_life_years, find_min_write_rate

SCALE = LevelScale(1 << 40)
ROUNDS = (Round(100, 1.0, 100, 1e6, 200),) * 40
VERDICT = judge_strict(ROUNDS, VerdictInputs(1000, 100, WriteSpread(1, 0, "")))


def make_outcomes(*figures: tuple[float | None, float | None]) -> list[LevelOutcome]:
    """Return levels of 0, 7, 28 and 50 % with the given IOPS and WAF."""
    levels = parse_levels("0,7,28,50%", SCALE)[: len(figures)]
    return [
        LevelOutcome(level, ROUNDS, LevelFigures(iops=iops, waf=waf), None, VERDICT)
        for level, (iops, waf) in zip(levels, figures, strict=True)
    ]


def test_each_step_has_its_gain_per_percent() -> None:
    steps = compute_level_gains(make_outcomes((1000, 8.0), (2000, 4.0)))
    assert len(steps) == 1
    assert steps[0].percents == pytest.approx(7, abs=0.01)
    assert steps[0].iops_ratio == 2.0 and steps[0].waf_ratio == 0.5
    assert (1 + (steps[0].iops_per_percent or 0)) ** steps[0].percents == pytest.approx(2)
    assert steps[0].is_gain is True


def test_levels_are_run_in_order_of_size() -> None:
    levels = make_outcomes((1000, 8.0), (2000, 4.0), (4000, 2.0))
    assert [step.iops_ratio for step in compute_level_gains(levels[::-1])] == [2.0, 2.0]


def test_years_are_of_nand_bytes_at_the_measured_rate() -> None:
    levels = make_outcomes((1000, 8.0), (2000, 4.0))
    assert find_min_write_rate(levels) == 100
    year = 365.25 * 86400
    assert estimate_life_years(levels[0], int(800 * year), 100) == pytest.approx(1)
    assert compute_level_gains(levels, int(800 * year))[0].years == pytest.approx(1)
    assert compute_level_gains(levels)[0].years is None


@pytest.mark.parametrize(
    ("figures", "is_gain"),
    [
        (((1000, 3.0), (1000, 3.0)), False),
        (((1000, 3.0), (1000, None)), None),
        (((None, 3.0), (None, 3.0)), False),
        (((1000, None), (1000, None)), None),
        (((1000, None), (1100, None)), True),
    ],
)
def test_absence_of_a_gain_requires_a_measured_waf(
    figures: tuple[tuple[float, float], ...], is_gain: bool | None
) -> None:
    [step] = compute_level_gains(make_outcomes(*figures))
    assert step.is_gain is is_gain


def test_missing_figures_are_not_a_gain() -> None:
    [step] = compute_level_gains(
        [replace(one, figures=LevelFigures()) for one in make_outcomes((1, 1), (1, 1))]
    )
    assert step.is_gain is None and step.iops_per_percent is None and step.waf_per_percent is None


def make_noisy_verdict(spread: float) -> StrictVerdict:
    """Return a steady verdict with IOPS that vary by this standard deviation."""
    draw = random.Random(3)
    noisy = [Round(100, 1.0, round(1000 * draw.gauss(1, spread)), 1e6, 200) for _ in range(60)]
    verdict = judge_strict(noisy, VerdictInputs(1000, 100, WriteSpread(1, 0, "")))
    assert verdict.state is StrictState.PASS
    return verdict


def test_gain_within_host_noise_is_unknown() -> None:
    verdict = make_noisy_verdict(0.03)
    levels = [replace(one, strict=verdict) for one in make_outcomes((1000, None), (1025, None))]
    [step] = compute_level_gains(levels)
    assert step.is_gain is None and step.iops and 0.02 < step.iops.error_ratio < 0.08
    # A step far above the uncertainty is a gain all the same, and so is less WAF.
    sure = [replace(one, strict=verdict) for one in make_outcomes((1000, 3.0), (1500, 2.99))]
    assert compute_level_gains(sure)[0].is_gain is True
    less = [replace(one, strict=verdict) for one in make_outcomes((1000, 3.0), (1000, 2.5))]
    assert compute_level_gains(less)[0].is_gain is True


def set_load_cpu(one: LevelOutcome, ratio: float) -> LevelOutcome:
    return replace(one, figures=replace(one.figures, load_cpu_ratio=ratio))


def test_host_limited_iops_are_not_a_loss_of_the_drive() -> None:
    first, last = make_outcomes((1500, 4.0), (1300, 2.0))
    assert compute_level_gains([first, set_load_cpu(last, 0.5)])[0].has_iops_loss
    assert not compute_level_gains([first, set_load_cpu(last, 0.97)])[0].has_iops_loss


def test_more_iops_are_a_gain_only_where_the_host_was_not_the_limit_before() -> None:
    first, last = make_outcomes((1000, None), (1500, None))
    [step] = compute_level_gains([set_load_cpu(first, 0.5), set_load_cpu(last, 0.97)])
    assert step.is_gain is True
    [step] = compute_level_gains([set_load_cpu(first, 0.97), set_load_cpu(last, 0.97)])
    assert step.is_gain is None and step.worth is StepWorth.UNKNOWN


@pytest.mark.parametrize(
    ("figures", "worth"),
    [
        # From 0 to 7 % a byte in use becomes 7 % more expensive.
        (((1000, 4.0), (1100, 3.99)), StepWorth.PAYS),
        (((1000, 4.0), (1000, 3.6)), StepWorth.PAYS),
        (((1000, 4.0), (1050, 3.9)), StepWorth.COSTS_MORE),
        (((1000, 4.0), (1000, 3.85)), StepWorth.COSTS_MORE),
        (((1000, 4.0), (1005, 3.99)), StepWorth.NOTHING),
        # Less WAF is the reason for more IOPS: without the one there is no other.
        (((None, 4.0), (None, 3.99)), StepWorth.NOTHING),
        # An interface that limits IOPS says nothing about WAF.
        (((1000, None), (1005, None)), StepWorth.UNKNOWN),
        (((1000, None), (1200, None)), StepWorth.PAYS),
        (((None, None), (None, None)), StepWorth.UNKNOWN),
    ],
)
def test_step_pays_if_it_gains_more_than_the_capacity_that_it_costs(
    figures: tuple[tuple[float | None, float | None], ...], worth: StepWorth
) -> None:
    [step] = compute_level_gains(make_outcomes(*figures))
    assert step.cost_ratio == pytest.approx(0.07, rel=1e-3)
    assert step.worth is worth


def test_small_gain_for_much_capacity_does_not_pay() -> None:
    """From 150 to 200 % a sixth of the capacity is given up."""
    levels = [
        LevelOutcome(level, (), LevelFigures(iops=1000, waf=waf, waf_error=0.001), None, VERDICT)
        for level, waf in zip(parse_levels("150,200%", SCALE), (1.083, 1.042), strict=True)
    ]
    [step] = compute_level_gains(levels)
    assert step.waf_ratio == pytest.approx(0.962, abs=0.001) and step.worth is StepWorth.COSTS_MORE


def test_error_of_waf_can_hide_a_gain() -> None:
    levels = [
        replace(one, figures=replace(one.figures, waf_error=0.3))
        for one in make_outcomes((None, 4), (None, 3.7))
    ]
    assert compute_level_gains(levels)[0].worth is StepWorth.UNKNOWN
