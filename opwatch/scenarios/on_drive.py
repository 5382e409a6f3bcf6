"""Run the levels of an experiment on a real drive: the levels, the pace, and the split of the results.
Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from opwatch.errors import UsageError
from opwatch.scenarios.scenario import Scenario, ScenarioKind
from opwatch.sweep.levels import ALIGN_BYTES, LevelScale, OpLevel, OpShare, parse_levels
from opwatch.sweep.outcome import LevelOutcome
from opwatch.sweep.plan import SweepPace

_RESERVED = ", reserved"


def make_drive_levels(
    scenario: Scenario, size_bytes: int, flash_bytes: int | None, text: str | None = None
) -> tuple[OpLevel, ...]:
    """Return the levels for a drive of this size.

    A free-space experiment has every level twice; the second time a part of the drive is reserved.
    """
    scale = LevelScale(size_bytes, OpShare.WHOLE)
    if not scenario.levels:
        raise UsageError(
            f"--scenario {scenario.name}: does not run on a whole drive (--dev): use --virtual, or "
            "--on NAME=DIR for a scenario on filesystems"
        )
    whole = parse_levels(text or scenario.levels, scale, flash_bytes)
    if scenario.kind is ScenarioKind.IOMETER and len(whole) < 2:
        raise UsageError("--op: give at least two levels, because gains compare the last with the first")
    if not scenario.reserved_ratio:
        return whole
    shown = int(size_bytes * (1 - scenario.reserved_ratio)) // ALIGN_BYTES * ALIGN_BYTES
    most = max(level.usable_bytes for level in whole)
    if shown < most:
        raise UsageError(
            f"--op: {most} bytes would be in use, but with {100 * scenario.reserved_ratio:g} % in "
            f"reserve the visible size is only {shown} bytes"
        )
    less = replace(scale, capacity_bytes=shown)
    reserved = (replace(level, label=f"{level.label}{_RESERVED}", scale=less) for level in whole)
    return (*whole, *reserved)


def choose_drive_pace(scenario: Scenario, round_ratio: float | None, rounds: int | None) -> SweepPace:
    """Return the experiment's pace on a drive, with the user's changes."""
    pace, setup = scenario.drive_pace, scenario.setup
    return replace(
        pace,
        round_ratio=round_ratio or pace.round_ratio,
        most_rounds=rounds or pace.most_rounds,
        probe_s=setup.read_amount("probe_s") if "probe_s" in setup.table else 0.0,
    )


def split_outcomes(
    outcomes: Sequence[LevelOutcome],
) -> tuple[Sequence[LevelOutcome], Sequence[LevelOutcome]]:
    """Split the outcomes into those of the whole drive and those with the reserve."""
    half = len(outcomes) // 2
    return outcomes[:half], outcomes[half:]
