"""What is asked of free space, and what was seen of it by reading the drive raw."""

from __future__ import annotations

from opwatch.frozen import frozen
from opwatch.trim.space.remap import Landing
from opwatch.trim.stale.estimate import Share
from opwatch.trim.stale.stale import Calibration, Count, Mapped


@frozen
class StaleQuestion:
    """How to measure. `sentinel`: whether a file is written and its place trimmed to calibrate; None leaves
    btrfs alone, where no small part can be trimmed by itself."""

    confidence: float = 0.95
    half_width: float = 0.005
    seconds: float = 5.0
    seed: int = 0
    sentinel: bool | None = None


@frozen
class ReadDevice:
    """A device that was read, and what it reads as when trimmed."""

    landing: Landing
    size_bytes: int
    granule_bytes: int
    untrimmable_bytes: int
    calibration: Calibration

    @property
    def judged(self) -> bool:
        return self.calibration.reads is not None


@frozen
class StaleJudgement:
    """What was seen. `share` is of the free space of the drives that can be judged, `judged_bytes` of it;
    it has no samples when none can."""

    drives: tuple[ReadDevice, ...]
    unit_bytes: int
    free_bytes: int
    judged_bytes: int
    share: Share
    taken: int
    unreadable: int
    count: Count | None
    mapped: Mapped | None
    seconds: float
    notes: tuple[str, ...]
