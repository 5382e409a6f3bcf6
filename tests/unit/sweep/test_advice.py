"""Advice from sweeps of drives whose true behaviour is known."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from opwatch.errors import UsageError
from opwatch.sweep.advice.advice import AdviceKind, SweepAdvice, advise
from opwatch.sweep.advice.targets import SweepTargets, TargetVerdict
from opwatch.sweep.returns import YEAR_S, StepWorth
from tests.unit.support.sweeps import (
    CAPACITY,
    ENDURANCE,
    ERROR,
    find_true_iops,
    find_true_waf,
    find_true_years,
    make_sweep,
    spoil_iops,
)


def get_label(advice: SweepAdvice) -> str | None:
    return advice.chosen.label if advice.chosen else None


def test_smallest_level_that_meets_all_targets_is_chosen() -> None:
    """Random targets against the true values of each level."""
    sweep, draw = make_sweep("0,7,14,28,50,100%"), random.Random(1)
    chosen = set()
    for _ in range(60):
        daily = 10 ** draw.uniform(11, 13)
        targets = SweepTargets(round(daily), draw.uniform(0.5, 10), daily / 86400 / 4096 * draw.uniform(1, 2))
        advice = advise(sweep, targets)
        true = [
            find_true_years(one.level.usable_bytes, daily) >= (targets.life_years or 0)
            and find_true_iops(one.level.usable_bytes) >= (targets.iops or 0)
            for one in sweep.outcomes
        ]
        chosen.add(get_label(advice))
        if advice.chosen:
            # A level within its error of a target is not certain to meet it, and is named.
            place = [one.level.label for one in sweep.outcomes].index(advice.chosen.label)
            certain = {one.label for one in advice.undecided}
            assert true[place]
            assert all(
                not met or one.level.label in certain
                for met, one in zip(true[:place], sweep.outcomes, strict=False)
            )
        elif advice.kind is AdviceKind.NONE:
            assert not any(true)
    assert len(chosen) > 3


def test_level_between_two_measured_levels_meets_the_targets_in_truth() -> None:
    sweep, draw, found = make_sweep("0,7,14,28,50,100%"), random.Random(2), 0
    for _ in range(30):
        targets = SweepTargets(round(10 ** draw.uniform(11.5, 12.5)), draw.uniform(1, 8))
        advice = advise(sweep, targets)
        if not advice.between:
            continue
        found += 1
        used, years = advice.between.used_bytes, targets.life_years or 0
        assert find_true_years(used, targets.daily_bytes or 1) >= years
        # A little less spare area would not be enough: the suggestion is not far above what is needed.
        assert find_true_years(used * 1.03, targets.daily_bytes or 1) < years
    assert found > 4


def test_levels_that_no_model_reproduces_are_not_interpolated() -> None:
    sweep = make_sweep("0,7,14,28,50,100%")
    targets = SweepTargets(round(2e12), 3.3)
    assert advise(sweep, targets).between
    outcomes = [
        replace(one, figures=replace(one.figures, waf=(one.figures.waf or 0) * (1.12 if place == 2 else 1)))
        for place, one in enumerate(sweep.outcomes)
    ]
    odd = replace(sweep, outcomes=tuple(outcomes))
    assert get_label(advise(odd, targets)) and not advise(odd, targets).between
    assert not advise(replace(sweep, is_uniform=False), targets).between


def test_tail_latency_is_never_interpolated() -> None:
    sweep = make_sweep("0,7,14,28%", p99_ns=(20e6, 12e6, 8e6, 4e6))
    advice = advise(sweep, SweepTargets(p99_ns=5e6))
    assert get_label(advice) == "28 %" and advice.between is None
    # If both levels meet it, a level between them does so too.
    both = advise(sweep, SweepTargets(iops=find_true_iops(CAPACITY / 1.2), p99_ns=9e6))
    assert get_label(both) == "28 %" and both.between and 0.2 <= both.between.of_used_ratio < 0.23


def test_nearest_level_is_named_if_none_meets_the_targets() -> None:
    sweep = make_sweep("0,7,28%", p99_ns=(9e6, 6e6, 7e6))
    advice = advise(sweep, SweepTargets(p99_ns=5e6))
    assert advice.kind is AdviceKind.NONE and advice.chosen is None
    assert advice.nearest and advice.nearest.label == "7 %"
    [check] = advice.nearest.checks
    assert check.shortfall == pytest.approx(1.2)


def test_target_within_the_error_is_undecided() -> None:
    sweep = make_sweep("0,7%", p99_ns=(9e6, 5e6))
    advice = advise(sweep, SweepTargets(p99_ns=5e6))
    assert advice.kind is AdviceKind.UNDECIDED and [one.label for one in advice.undecided] == ["7 %"]


def test_busy_host_leaves_an_answer_from_waf_alone() -> None:
    sweep = make_sweep("0,7,28%")
    busy = replace(sweep, outcomes=tuple(map(spoil_iops, sweep.outcomes)))
    targets = SweepTargets(round(1e12), 4.0)
    assert get_label(advise(busy, targets)) == get_label(advise(sweep, targets)) == "28 %"
    assert advise(busy, targets).kind is AdviceKind.LEVEL
    assert [step.worth for step in advise(busy, SweepTargets()).steps] == [StepWorth.PAYS] * 2
    # A target of IOPS cannot be judged then, but the others are.
    both = advise(busy, SweepTargets(round(1e12), 4.0, 20000))
    assert both.kind is AdviceKind.UNDECIDED and get_label(both) == "28 %"
    assert [check.kind.value for check in both.unjudged] == ["iops"]


def test_life_is_not_judged_without_endurance() -> None:
    sweep = make_sweep("0,7,28%", endurance_bytes=None)
    advice = advise(sweep, SweepTargets(round(1e12), 4.0))
    assert advice.kind is AdviceKind.UNDECIDED
    assert [check.kind.value for check in advice.unjudged] == ["life"]
    known = advise(sweep.with_endurance(ENDURANCE), SweepTargets(round(1e12), 4.0))
    assert known.kind is AdviceKind.LEVEL


def test_knee_is_where_bytes_per_capacity_are_largest() -> None:
    """Up to the knee a step raises capacity in use times life; beyond it that product falls."""
    sweep = make_sweep("0,7,14,28,50,75,100,150,200%")
    products = {one.level.label: one.level.usable_bytes / (one.figures.waf or 1) for one in sweep.outcomes}
    knee = advise(sweep, SweepTargets()).knee
    assert knee and knee.level.label == max(products, key=lambda label: products[label])


def test_life_is_that_of_the_true_drive() -> None:
    sweep, daily = make_sweep("0,28%"), round(5e11)
    for one in advise(sweep, SweepTargets(daily)).levels:
        used = one.outcome.level.usable_bytes
        assert one.years and one.years.value == pytest.approx(find_true_years(used, daily))
        assert one.years.error == pytest.approx(ERROR * one.years.value)
        assert one.tbw_bytes and one.tbw_bytes.value == pytest.approx(ENDURANCE / find_true_waf(used))
        days = 5 * YEAR_S / 86400
        assert one.dwpd and one.dwpd.value * used * days == pytest.approx(one.tbw_bytes.value)


def test_beyond_a_level_without_gain_more_is_worth_nothing() -> None:
    sweep = make_sweep("0,28,50%")
    flat = [
        replace(one, figures=replace(one.figures, waf=1.9 if place else 4.0, iops=9e4 if place else 5e4))
        for place, one in enumerate(sweep.outcomes)
    ]
    advice = advise(replace(sweep, outcomes=tuple(flat)), SweepTargets())
    assert advice.worthless_from and advice.worthless_from.level.label == "28 %"
    assert advise(sweep, SweepTargets()).worthless_from is None


def test_drive_too_slow_for_the_daily_amount_misses_it() -> None:
    sweep = make_sweep("0,28%")
    daily = round(find_true_iops(CAPACITY) * 4096 * 86400 * 1.5)
    advice = advise(sweep, SweepTargets(daily, 0.01))
    assert advice.levels[0].verdict is TargetVerdict.MISSED and get_label(advice) == "28 %"


@pytest.mark.parametrize(
    "targets",
    [
        SweepTargets(life_years=5),
        SweepTargets(daily_bytes=10**13, iops=20000.0),
    ],
)
def test_targets_that_contradict_each_other_are_refused(targets: SweepTargets) -> None:
    with pytest.raises(UsageError):
        advise(make_sweep("0,28%"), targets)
