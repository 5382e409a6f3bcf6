from __future__ import annotations

import pytest

from opwatch.sweep.levels import LevelScale, parse_levels
from opwatch.sweep.plan import StepKind, SweepPace, SweepPlan, SweepSpeed, plan_steps

GIB = 1 << 30
LEVELS = parse_levels("0,28%", LevelScale(64 * GIB), flash_bytes=70 * GIB)
PACE = SweepPace(fill_passes=2, round_ratio=0.1, most_rounds=40, settle_s=60)


def _plan(speed: SweepSpeed, life_bytes: int | None = None) -> SweepPlan:
    steps = plan_steps(LEVELS, "window", PACE, speed)
    return SweepPlan("sda", "window", "random 4k", LEVELS, steps, life_bytes=life_bytes)


def test_every_level_has_every_step_in_order_and_the_end_restores() -> None:
    kinds = [step.kind for step in _plan(SweepSpeed()).steps]
    of_one = [kind for kind in StepKind if kind is not StepKind.RESTORE]
    assert kinds == [*of_one, *of_one, StepKind.RESTORE]


def test_bytes_are_those_of_fills_and_rounds() -> None:
    plan = _plan(SweepSpeed())
    rounds = [step for step in plan.steps if step.kind is StepKind.ROUND]
    fills = sum(2 * level.usable_bytes for level in LEVELS)
    assert plan.write_bytes == (
        fills + sum(step.at_least * step.write_bytes for step in rounds),
        fills + sum(40 * step.write_bytes for step in rounds),
    )
    for step, level in zip(rounds, LEVELS, strict=True):
        assert step.write_bytes == pytest.approx(0.1 * level.usable_bytes, abs=4096)
        # No verdict before the spare area and once more what is in use were written.
        assert step.at_least * step.write_bytes >= 70 * GIB > (step.at_least - 1) * step.write_bytes


def test_without_a_speed_there_is_no_time() -> None:
    assert _plan(SweepSpeed()).seconds is None
    assert _plan(SweepSpeed(fill_bytes_per_s=1e9)).seconds is None
    times = _plan(SweepSpeed(1e9, 1e8)).seconds
    assert times
    rounds = sum(40 * step.write_bytes for step in _plan(SweepSpeed()).steps if step.kind is StepKind.ROUND)
    fills = sum(2 * level.usable_bytes for level in LEVELS)
    assert times[1] == pytest.approx(2 * 60 + fills / 1e9 + rounds / 1e8)


def test_a_share_of_life_needs_a_rating() -> None:
    assert _plan(SweepSpeed()).life_ratio is None
    plan = _plan(SweepSpeed(), life_bytes=1 << 50)
    assert plan.life_ratio == (plan.write_bytes[0] / (1 << 50), plan.write_bytes[1] / (1 << 50))
