"""Plan the steps of a test before the start. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from opwatch.pts.loads import PtsLoad, build_round_loads, build_stage_loads
from opwatch.pts.order import PtsOrder
from opwatch.steady.pts_tests import PtsTest
from opwatch.sweep.levels import OpLevel
from opwatch.sweep.plan import StepKind, SweepPace, SweepSpeed, SweepStep, make_purge_step
from opwatch.sweep.purges import DISCARD, PurgeMethod

# Capacities written before write saturation ends.
SATURATION_PASSES = 4
_WINDOW = 5


def bound_test_bytes(part: PtsTest, capacity_bytes: int) -> int | None:
    """Return the upper bound of a part's writes in bytes, or None if dependent on the drive's speed."""
    if part.name != "wsat":
        return None
    return SATURATION_PASSES * capacity_bytes


def make_part_levels(order: PtsOrder, whole: OpLevel) -> tuple[OpLevel, ...]:
    """Return the active range of every part as a level."""
    used = order.active_bytes(whole.scale.capacity_bytes)
    return tuple(OpLevel(part.name, used, whole.scale, whole.flash_bytes) for part in order.parts)


def plan_part_steps(
    order: PtsOrder,
    levels: Sequence[OpLevel],
    pace: SweepPace,
    speed: SweepSpeed,
    purge: PurgeMethod = DISCARD,
) -> tuple[SweepStep, ...]:
    """Return all steps of a test, in order.

    The bytes a load writes are known only if the drive's speed is.
    """
    steps = [
        step
        for part, level in zip(order.parts, levels, strict=True)
        for step in _plan_part(order, part, level, pace, speed, purge)
    ]
    return (*steps, SweepStep(StepKind.RESTORE, "discard the whole drive, and undo all changes to it"))


def _plan_part(
    order: PtsOrder, part: PtsTest, level: OpLevel, pace: SweepPace, speed: SweepSpeed, purge: PurgeMethod
) -> Iterable[SweepStep]:
    capacity = level.scale.capacity_bytes
    yield SweepStep(StepKind.GUARD, "the same drive, without other users", level)
    yield make_purge_step(level, purge)
    yield SweepStep(StepKind.SETTLE, "wait while the drive erases", level, seconds=pace.settle_s)
    passes = order.count_fill_passes(part, capacity)
    if passes:
        yield SweepStep(
            StepKind.FILL,
            f"write the active range in order, {part.precondition_block_bytes} bytes at a time",
            level,
            write_bytes=level.usable_bytes,
            seconds=level.usable_bytes / speed.fill_bytes_per_s if speed.fill_bytes_per_s else None,
            at_least=passes,
            at_most=passes,
        )
    if rounds := build_round_loads(order, part, 0):
        yield SweepStep(
            StepKind.ROUND,
            f"{len(rounds)} test points" if len(rounds) > 1 else "one test point",
            level,
            write_bytes=_count_written(rounds, speed),
            seconds=sum(load.seconds for load in rounds),
            at_least=_WINDOW,
            at_most=order.most_rounds(part),
        )
    for load in build_stage_loads(order, part):
        yield SweepStep(
            StepKind.ROUND,
            load.stage,
            level,
            write_bytes=_count_written([load], speed),
            seconds=load.seconds + load.pause_s,
            at_least=load.times,
            at_most=load.times,
        )
    verdict = "steady or not, by SNIA's rule" if part.steady else "the recovery, section by section"
    yield SweepStep(StepKind.VERDICT, verdict, level)


def _count_written(loads: Iterable[PtsLoad], speed: SweepSpeed) -> int:
    """Return the bytes written by a pass at the same speed for every load; 0 if unknown."""
    writing_s = sum(load.seconds * (100 - load.read_percent) / 100 for load in loads)
    return round(writing_s * (speed.round_bytes_per_s or 0))
