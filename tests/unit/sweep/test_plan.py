from __future__ import annotations

import pytest

from opwatch.steady.coverage import WriteSpread
from opwatch.steady.rounds import Round
from opwatch.steady.strict import StrictState, judge_strict
from opwatch.sweep.figures import make_verdict_inputs
from opwatch.sweep.levels import LevelScale, OpLevel, parse_levels
from opwatch.sweep.plan import (
    StepKind,
    SweepPace,
    SweepPlan,
    SweepSpeed,
    SweepStep,
    estimate_seconds_left,
    plan_steps,
)
from opwatch.sweep.purges import SECURE_ERASE
from opwatch.times import format_estimate

GIB = 1 << 30
LEVELS = parse_levels("0,28%", LevelScale(64 * GIB), flash_bytes=70 * GIB)
PACE = SweepPace(fill_passes=2, round_ratio=0.1, most_rounds=60, settle_s=60)


def _make_plan(speed: SweepSpeed, life_bytes: int | None = None) -> SweepPlan:
    steps = plan_steps(LEVELS, "window", PACE, speed)
    return SweepPlan("sda", "window", "random 4k", LEVELS, steps, life_bytes=life_bytes)


def test_every_level_has_every_step_in_order_and_the_end_restores() -> None:
    kinds = [step.kind for step in _make_plan(SweepSpeed()).steps]
    of_one = [kind for kind in StepKind if kind not in (StepKind.RESTORE, StepKind.PROBE)]
    assert kinds == [*of_one, *of_one, StepKind.RESTORE]


def test_planned_bytes_are_fills_plus_rounds() -> None:
    plan = _make_plan(SweepSpeed())
    rounds = [step for step in plan.steps if step.kind is StepKind.ROUND]
    fills = sum(2 * level.usable_bytes for level in LEVELS)
    assert plan.write_bytes == (
        fills + sum(step.at_least * step.write_bytes for step in rounds),
        fills + sum(60 * step.write_bytes for step in rounds),
    )
    for step, level in zip(rounds, LEVELS, strict=True):
        assert step.write_bytes == pytest.approx(0.1 * level.usable_bytes, abs=4096)
        # A verdict needs the first use of the spare area plus three drive writes, in whole rounds, or
        # more if the turnover takes longer.
        needed = 70 * GIB + 2 * level.usable_bytes
        assert 0 <= step.at_least * step.write_bytes - needed < 6 * step.write_bytes


def test_time_left_is_the_plan_minus_finished_steps() -> None:
    speed = SweepSpeed(GIB, GIB / 4)
    whole = _make_plan(speed).seconds
    [first, _] = [step for step in _make_plan(speed).steps if step.kind is StepKind.ROUND]
    assert whole and first.seconds
    # The settling time and the fills of the first level are over when its rounds have started.
    before = PACE.settle_s + 2 * LEVELS[0].usable_bytes / GIB
    for rounds in (0, 3):
        left = estimate_seconds_left(LEVELS, "window", PACE, speed, rounds)
        assert left == pytest.approx([one - before - rounds * first.seconds for one in whole])
    # At least one more round, however many there were.
    least, most = estimate_seconds_left(LEVELS[:1], "window", PACE, speed, PACE.most_rounds - 1) or (0, 0)
    assert least == most == pytest.approx(first.seconds)
    # The first level's purge is over too; the second level's purge is still to come.
    slow = SECURE_ERASE._replace(seconds=3600.0)
    purged = estimate_seconds_left(LEVELS, "window", PACE, speed, 3, slow)
    assert purged == pytest.approx([one + 3600 for one in left or ()])
    assert estimate_seconds_left(LEVELS, "window", PACE, speed, 3, slow._replace(seconds=None)) is None
    assert estimate_seconds_left(LEVELS, "window", PACE, SweepSpeed(), 3) is None
    assert estimate_seconds_left(LEVELS, "window", PACE, SweepSpeed(None, GIB), 3) is None


@pytest.mark.parametrize(
    ("seconds", "said"), [(3, "3 s"), (90, "1.5 min"), (3 * 3600, "3.0 h"), (86400 * 2.25, "2.2 d")]
)
def test_durations_are_rounded_like_estimates(seconds: float, said: str) -> None:
    assert format_estimate(seconds) == said


def _list_rounds(levels: tuple[OpLevel, ...], pace: SweepPace) -> list[SweepStep]:
    steps = plan_steps(levels, "window", pace, SweepSpeed())
    return [step for step in steps if step.kind is StepKind.ROUND]


@pytest.mark.parametrize("flash_bytes", [None, 70 * GIB])
def test_plan_predicts_at_least_the_bytes_of_a_verdict(flash_bytes: int | None) -> None:
    levels = parse_levels("0,28%", LevelScale(64 * GIB), flash_bytes)
    for level, step in zip(levels, _list_rounds(levels, PACE), strict=True):
        few = [Round(step.write_bytes, 1.0, 1000)] * (step.at_least - 1)
        ground = make_verdict_inputs(level, WriteSpread(1.0, 0.0, "a test"))
        assert judge_strict(few, ground).state is StrictState.NOT_REACHED
        enough = judge_strict([*few, few[0]], ground)
        assert enough.window and enough.state is StrictState.UNPROVEN


def test_plan_reports_too_few_rounds_for_a_verdict() -> None:
    [few] = _list_rounds(LEVELS[:1], SweepPace(most_rounds=10))
    assert (few.at_least, few.at_most) == (10, 10)
    assert "round 33" in few.what
    [enough] = _list_rounds(LEVELS[:1], SweepPace(most_rounds=33))
    assert "round" not in enough.what and few.what.startswith(enough.what)


def test_plan_has_no_time_without_a_speed() -> None:
    assert _make_plan(SweepSpeed()).seconds is None
    assert _make_plan(SweepSpeed(fill_bytes_per_s=1e9)).seconds is None
    times = _make_plan(SweepSpeed(1e9, 1e8)).seconds
    assert times
    rounds = sum(
        60 * step.write_bytes for step in _make_plan(SweepSpeed()).steps if step.kind is StepKind.ROUND
    )
    fills = sum(2 * level.usable_bytes for level in LEVELS)
    assert times[1] == pytest.approx(2 * 60 + fills / 1e9 + rounds / 1e8)


def test_share_of_life_requires_a_rating() -> None:
    assert _make_plan(SweepSpeed()).life_ratio is None
    plan = _make_plan(SweepSpeed(), life_bytes=1 << 50)
    assert plan.life_ratio == (plan.write_bytes[0] / (1 << 50), plan.write_bytes[1] / (1 << 50))
