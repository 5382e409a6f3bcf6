"""What is said of stale space in the end: how much of it there is, and what it costs. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from opwatch import units
from opwatch.frozen import frozen
from opwatch.trim.stale.estimate import Share
from opwatch.trim.stale.judgement import ReadDevice, StaleJudgement, StaleQuestion
from opwatch.trim.stale.remembered import Part, StaleSpace
from opwatch.trim.stale.sentinel import ReadsAs
from opwatch.trim.stale.stale import (
    Bounds,
    Count,
    Mapped,
    Spare,
    disputed,
    spare,
    spare_by_history,
    stale_bytes,
)

_NO_ONE_DRIVE = "the free space does not lie on one drive that can be told"
_NO_FLASH = "no drive tells how much flash it has; --physical SIZE does"


@frozen
class Flash:
    """The drive that free space lies on: the size of its device and of its whole disk, and how much flash it
    has that may hold data, by `source`; None where nobody tells."""

    device_bytes: int
    disk_bytes: int
    physical_bytes: int | None = None
    source: str | None = None


@frozen
class StaleCost:
    """What stale space costs, or the reason why that is not known."""

    spare: Spare | None
    reason: str | None
    source: str | None = None


@frozen
class StaleReport:
    """All that is said. `stale` is None, with the reason, when no drive can be judged by reading."""

    subject: str
    filesystem: str | None
    confidence: float
    seed: int
    seconds: float
    unit_bytes: int
    free_bytes: int
    judged_bytes: int
    drives: tuple[ReadDevice, ...]
    share: Share
    taken: int
    unreadable: int
    stale: Bounds | None
    reason: str | None
    lower_bound: str | None
    count: Count | None
    mapped: Mapped | None
    spare: Spare | None
    spare_reason: str | None
    physical_source: str | None
    notes: tuple[str, ...]


@frozen
class HistoryReport:
    """All that is said of the free space of a file system, by histories of its disks."""

    subject: str
    filesystem: str | None
    seconds: float
    parts: Sequence[Part]
    stale: Bounds
    spare: Spare | None
    spare_reason: str | None
    physical_source: str | None
    notes: tuple[str, ...]

    @property
    def free_bytes(self) -> int:
        return sum(part.landing.extents.total for part in self.parts)

    @property
    def unknown_bytes(self) -> int:
        return sum(part.unknown_bytes for part in self.parts)


def report_of_reading(
    subject: str,
    filesystem: str | None,
    asked: StaleQuestion,
    judgement: StaleJudgement,
    flash: Flash | None,
) -> StaleReport:
    """What reading shows. `flash`: of the first drive, None where that is not here."""
    reason = _why_not(judgement) or _disputed(judgement, flash)
    stale = None if reason else stale_bytes(judgement.share, judgement.judged_bytes)
    cost = (
        _cost_by_reading(judgement, stale, flash) if stale else StaleCost(None, "what is stale is not known")
    )
    return StaleReport(
        subject=subject,
        filesystem=filesystem,
        confidence=asked.confidence,
        seed=asked.seed,
        seconds=judgement.seconds,
        unit_bytes=judgement.unit_bytes,
        free_bytes=judgement.free_bytes,
        judged_bytes=judgement.judged_bytes,
        drives=judgement.drives,
        share=judgement.share,
        taken=judgement.taken,
        unreadable=judgement.unreadable,
        stale=stale,
        reason=reason,
        lower_bound=None if reason else _lower_bound(judgement),
        count=judgement.count,
        mapped=judgement.mapped,
        spare=cost.spare,
        spare_reason=cost.reason,
        physical_source=cost.source,
        notes=_notes(judgement),
    )


def _why_not(judgement: StaleJudgement) -> str | None:
    """Why nothing can be said by reading, None when something can."""
    if not judgement.judged_bytes:
        words = "; ".join(judgement.drives[0].calibration.words)
        return f"this drive cannot be judged by reading: {words}"
    if not judgement.share.samples:
        return "no block could be read and was still free afterwards"
    return None


def _disputed(judgement: StaleJudgement, flash: Flash | None) -> str | None:
    """What the drive's own count has against it, if there is one drive and it counts."""
    if len(judgement.drives) != 1 or not judgement.count or flash is None:
        return None
    stale = stale_bytes(judgement.share, judgement.judged_bytes)
    return disputed(stale, judgement.free_bytes, flash.disk_bytes, judgement.count.after_bytes)


def _lower_bound(judgement: StaleJudgement) -> str | None:
    """What a read cannot tell."""
    plain = [drive for drive in judgement.drives if drive.judged and not drive.landing.encrypted]
    if not plain:
        return None
    name = "ones" if {drive.calibration.reads for drive in plain} == {ReadsAs.ONES} else "zeros"
    return f"data that is all {name} looks like what was trimmed"


def _notes(judgement: StaleJudgement) -> tuple[str, ...]:
    if not judgement.judged_bytes or judgement.judged_bytes == judgement.free_bytes:
        return tuple(judgement.notes)
    left = units.capacity(judgement.free_bytes - judgement.judged_bytes)
    words = f"{left} of the free space lie on drives that cannot be judged, and are left out"
    return (*judgement.notes, words)


def _cost_by_reading(judgement: StaleJudgement, stale: Bounds, flash: Flash | None) -> StaleCost:
    first, count = judgement.drives[0], judgement.count
    if len(judgement.drives) != 1 or flash is None or first.landing.stopped:
        return StaleCost(None, _NO_ONE_DRIVE)
    if flash.physical_bytes is None:
        return StaleCost(None, _NO_FLASH)
    used = flash.device_bytes - first.landing.extents.total
    counted = count.after_bytes if count and count.follows else None
    figures = spare(flash.physical_bytes, used, stale, first.untrimmable_bytes, counted)
    return _cost(figures, flash)


def _cost(figures: Spare | str, flash: Flash) -> StaleCost:
    if isinstance(figures, str):
        return StaleCost(None, figures, flash.source)
    return StaleCost(figures, None, flash.source)


def report_of_histories(
    subject: str, filesystem: str | None, space: StaleSpace, flash: Flash | None
) -> HistoryReport:
    """What the histories of its disks tell."""
    low, unknown = space.held_bytes, space.unknown_bytes
    stale = Bounds(None if unknown else low, low, low + unknown)
    cost = _cost_by_history(space.parts, stale, flash)
    of_parts = [note for part in space.parts if part.remembered for note in part.remembered.notes]
    return HistoryReport(
        subject=subject,
        filesystem=filesystem,
        seconds=space.seconds,
        parts=space.parts,
        stale=stale,
        spare=cost.spare,
        spare_reason=cost.reason,
        physical_source=cost.source,
        notes=tuple(dict.fromkeys((*space.notes, *of_parts))),
    )


def _cost_by_history(parts: Sequence[Part], stale: Bounds, flash: Flash | None) -> StaleCost:
    """What it costs, from what the history knows of all of the drive."""
    first = parts[0]
    if len(parts) != 1 or flash is None or first.landing.stopped or first.on_drive is None:
        return StaleCost(None, _NO_ONE_DRIVE)
    if flash.physical_bytes is None:
        return StaleCost(None, _NO_FLASH)
    unknown = first.unknown_in_use_bytes
    figures = spare_by_history(flash.physical_bytes, first.on_drive, stale, unknown, first.untrimmable_bytes)
    return _cost(figures, flash)
