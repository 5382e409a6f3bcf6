"""The plan of a run with a known cause."""

from __future__ import annotations

import random

import pytest

from tests.why.causes import CAUSES
from tests.why.plan import CAPACITY_IOPS, LOADS, SHAPES, find_rates, plan_phases, plan_windows


@pytest.mark.parametrize("seconds", [15, 120, 900])
def test_windows_lie_apart_within_the_run(seconds: float) -> None:
    for seed in range(50):
        windows = plan_windows(random.Random(seed), seconds)
        edges = [0.0, *(edge for window in windows for edge in (window.begin_s, window.end_s)), seconds]
        assert edges == sorted(edges)
        share = sum(window.end_s - window.begin_s for window in windows) / seconds
        assert 0.05 < share < 0.4


def test_a_seed_gives_the_same_windows_and_faults() -> None:
    for cause in CAUSES.values():
        assert cause.faults(random.Random(7)) == cause.faults(random.Random(7))
    assert plan_windows(random.Random(7), 120) == plan_windows(random.Random(7), 120)
    assert plan_windows(random.Random(7), 120) != plan_windows(random.Random(8), 120)


def test_load_levels_are_shares_of_what_the_drive_can_do() -> None:
    totals = [sum(find_rates(load)) for load in LOADS]
    assert totals == pytest.approx([0.1 * CAPACITY_IOPS, 0.5 * CAPACITY_IOPS, 0.9 * CAPACITY_IOPS], abs=1)


def test_each_cause_but_none_has_a_truth() -> None:
    for name, cause in CAUSES.items():
        assert bool(cause.act or cause.episodes or cause.counter or cause.is_constant) == (name != "none")


@pytest.mark.parametrize("shape", SHAPES)
def test_phases_of_a_load_follow_each_other_within_the_run(shape: str) -> None:
    for seed in range(20):
        phases = plan_phases(shape, random.Random(seed), 120)
        edges = [0, *(edge for phase in phases for edge in (phase.begin_s, phase.end_s)), 120]
        assert edges == sorted(edges)
        assert all(phase.begin_s < phase.end_s and 0 < phase.share <= 1 for phase in phases)
        has_pauses = sum(phase.end_s - phase.begin_s for phase in phases) < 110
        assert has_pauses == (shape in ("pauses", "spells"))


def test_load_of_two_halves_changes_by_a_factor_of_two() -> None:
    shares = {
        shape: [phase.share for phase in plan_phases(shape, random.Random(1), 120)]
        for shape in ("halved", "doubled")
    }
    assert shares == {"halved": [1.0, 0.5], "doubled": [0.5, 1.0]}
