"""Build the reports of stale space: the amount and its cost. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from opwatch import units
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


@dataclass(frozen=True, slots=True)
class Flash:
    """The drive under the free space: sizes of the device and of the whole disk, and the flash capacity for
    data with its `source`; None if unknown."""

    device_bytes: int
    disk_bytes: int
    physical_bytes: int | None = None
    source: str | None = None


@dataclass(frozen=True, slots=True)
class StaleCost:
    """The cost of stale space, or the reason why the cost is unknown."""

    spare: Spare | None
    reason: str | None
    source: str | None = None


@dataclass(frozen=True, slots=True)
class StaleReport:
    """The report of a measurement by reading. `stale` is None, with the reason, if no drive can be judged by
    reading."""

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


@dataclass(frozen=True, slots=True)
class HistoryReport:
    """The report on a file system's free space from its disks' histories."""

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
    """Return the report of a reading. `flash` describes the first drive; None if unavailable."""
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
    """Return why reading gives no result; None if there is a result."""
    if not judgement.judged_bytes:
        words = "; ".join(judgement.drives[0].calibration.words)
        return f"this drive cannot be judged by reading: {words}"
    if not judgement.share.samples:
        return "no block could be read and was still free afterwards"
    return None


def _disputed(judgement: StaleJudgement, flash: Flash | None) -> str | None:
    """Return why the drive's own count contradicts the reading; None if consistent, without a count, or with
    several drives."""
    if len(judgement.drives) != 1 or not judgement.count or flash is None:
        return None
    stale = stale_bytes(judgement.share, judgement.judged_bytes)
    return disputed(stale, judgement.free_bytes, flash.disk_bytes, judgement.count.after_bytes)


def _lower_bound(judgement: StaleJudgement) -> str | None:
    """Return why the result is only a lower bound; None if all judged drives are encrypted."""
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
    """Return the report from disk histories."""
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
    """Return the cost, based on the history of the whole drive."""
    first = parts[0]
    if len(parts) != 1 or flash is None or first.landing.stopped or first.on_drive is None:
        return StaleCost(None, _NO_ONE_DRIVE)
    if flash.physical_bytes is None:
        return StaleCost(None, _NO_FLASH)
    unknown = first.unknown_in_use_bytes
    figures = spare_by_history(flash.physical_bytes, first.on_drive, stale, unknown, first.untrimmable_bytes)
    return _cost(figures, flash)
