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

# Shares of the visible capacity. They reduce it in the same proportions as the published levels.
_SATURATION_LEVELS = "0,11.4,30.1%"
# Rounds of a saturation locate the cliff; after writing about eight times the area in use, random writes have
# reached every address. Rounds on files are long, because short rounds reflect other processes more than the
# drive.
_SATURATION_PACE = SweepPace(fill_passes=0, round_ratio=0.2, most_rounds=60)
_FILE_PACE = SweepPace(fill_passes=1, round_ratio=0.5, most_rounds=40)
_PROBED_PACE = SweepPace(fill_passes=1, round_ratio=0.2, most_rounds=60)
_RESERVED = ", reserved"


def make_drive_levels(
    scenario: Scenario, size_bytes: int, flash_bytes: int | None, text: str | None = None
) -> tuple[OpLevel, ...]:
    """Return the levels for a drive of this size.

    A free-space experiment has every level twice; the second time a part of the drive is reserved.
    """
    scale = LevelScale(size_bytes, OpShare.WHOLE)
    if scenario.kind is ScenarioKind.SATURATION:
        return parse_levels(text or _SATURATION_LEVELS, scale, flash_bytes)
    if scenario.kind is ScenarioKind.IOMETER:
        levels = parse_levels(text or scenario.levels, scale, flash_bytes)
        if len(levels) < 2:
            raise UsageError("--op: give at least two levels, because gains compare the last with the first")
        return levels
    if scenario.kind is not ScenarioKind.FREE_SPACE:
        raise UsageError(
            f"--scenario {scenario.name}: does not run on a whole drive (--dev): use --virtual, or "
            "--on NAME=DIR for a scenario on filesystems"
        )
    whole = parse_levels(text or scenario.levels, scale, flash_bytes)
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
    """Return the pace: a saturation starts on a new drive, whereas a file is filled before random writes."""
    usual = _SATURATION_PACE if scenario.kind is ScenarioKind.SATURATION else _FILE_PACE
    if scenario.kind is ScenarioKind.IOMETER:
        usual = replace(_PROBED_PACE, probe_s=scenario.setup.read_amount("probe_s"))
    return replace(
        usual, round_ratio=round_ratio or usual.round_ratio, most_rounds=rounds or usual.most_rounds
    )


def split_outcomes(
    outcomes: Sequence[LevelOutcome],
) -> tuple[Sequence[LevelOutcome], Sequence[LevelOutcome]]:
    """Split the outcomes into those of the whole drive and those with the reserve."""
    half = len(outcomes) // 2
    return outcomes[:half], outcomes[half:]
