"""Parameters and results of measuring free space by raw reads of the drive."""

from __future__ import annotations

from dataclasses import dataclass

from opwatch.trim.layers.remap import Landing
from opwatch.trim.stale.estimate import Share
from opwatch.trim.stale.stale import Calibration, Count, MappedBytes


@dataclass(frozen=True, slots=True)
class StaleOptions:
    """How to measure. `sentinel`: calibrate by writing a file and trimming its place. None means yes, except
    on btrfs, which cannot trim a small range alone."""

    confidence: float = 0.95
    half_width: float = 0.005
    seconds: float = 5.0
    seed: int = 0
    sentinel: bool | None = None


@dataclass(frozen=True, slots=True)
class ReadDevice:
    """A device that was read, with the expected contents of its trimmed blocks."""

    landing: Landing
    size_bytes: int
    granule_bytes: int
    untrimmable_bytes: int
    calibration: Calibration

    @property
    def is_judged(self) -> bool:
        return self.calibration.reads is not None


@dataclass(frozen=True, slots=True)
class StaleJudgement:
    """Result of a measurement. `share` is the share of `judged_bytes`, the free space on drives that can be
    judged, and has no samples if there are no such drives."""

    drives: tuple[ReadDevice, ...]
    unit_bytes: int
    free_bytes: int
    judged_bytes: int
    share: Share
    taken: int
    unreadable: int
    count: Count | None
    mapped: MappedBytes | None
    seconds: float
    notes: tuple[str, ...]
