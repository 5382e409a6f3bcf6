"""Build the reports of stale space: the amount and its cost. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from opwatch import units
from opwatch.trim.stale.estimate import Share
from opwatch.trim.stale.judgement import ReadDevice, StaleJudgement, StaleOptions
from opwatch.trim.stale.remembered import DeviceFreeSpace, StaleSpace
from opwatch.trim.stale.sentinel import ReadsAs
from opwatch.trim.stale.stale import (
    Bounds,
    Count,
    MappedBytes,
    Spare,
    estimate_spare,
    estimate_spare_by_history,
    find_contradiction,
    stale_bytes,
)

_NO_ONE_DRIVE = "the free space is not on one known drive"
_NO_FLASH = "the drive does not report its flash capacity; give it with --physical SIZE"


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
    mapped: MappedBytes | None
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
    parts: Sequence[DeviceFreeSpace]
    stale: Bounds
    spare: Spare | None
    spare_reason: str | None
    physical_source: str | None
    notes: tuple[str, ...]

    @property
    def free_bytes(self) -> int:
        return sum(part.landing.extents.total_bytes for part in self.parts)

    @property
    def unknown_bytes(self) -> int:
        return sum(part.unknown_bytes for part in self.parts)


def build_reading_report(
    subject: str,
    filesystem: str | None,
    asked: StaleOptions,
    judgement: StaleJudgement,
    flash: Flash | None,
) -> StaleReport:
    """Return the report of a reading. `flash` describes the first drive; None if unavailable."""
    reason = _explain_no_result(judgement) or _find_contradiction(judgement, flash)
    stale = None if reason else stale_bytes(judgement.share, judgement.judged_bytes)
    cost = (
        _compute_reading_cost(judgement, stale, flash)
        if stale
        else StaleCost(None, "the stale space is unknown")
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
        lower_bound=None if reason else _explain_lower_bound(judgement),
        count=judgement.count,
        mapped=judgement.mapped,
        spare=cost.spare,
        spare_reason=cost.reason,
        physical_source=cost.source,
        notes=_list_notes(judgement),
    )


def _explain_no_result(judgement: StaleJudgement) -> str | None:
    """Return why reading gives no result; None if there is a result."""
    if not judgement.judged_bytes:
        words = "; ".join(judgement.drives[0].calibration.words)
        return f"reading this drive is not conclusive: {words}"
    if not judgement.share.samples:
        return "no block could be read that was still free afterwards"
    return None


def _find_contradiction(judgement: StaleJudgement, flash: Flash | None) -> str | None:
    """Return why the drive's own count contradicts the reading; None if consistent, without a count, or with
    several drives."""
    if len(judgement.drives) != 1 or not judgement.count or flash is None:
        return None
    stale = stale_bytes(judgement.share, judgement.judged_bytes)
    return find_contradiction(stale, judgement.free_bytes, flash.disk_bytes, judgement.count.after_bytes)


def _explain_lower_bound(judgement: StaleJudgement) -> str | None:
    """Return why the result is only a lower bound; None if all judged drives are encrypted."""
    plain = [drive for drive in judgement.drives if drive.is_judged and not drive.landing.encrypted]
    if not plain:
        return None
    name = "one" if {drive.calibration.reads for drive in plain} == {ReadsAs.ONES} else "zero"
    return f"all-{name} data looks like trimmed space"


def _list_notes(judgement: StaleJudgement) -> tuple[str, ...]:
    if not judgement.judged_bytes or judgement.judged_bytes == judgement.free_bytes:
        return tuple(judgement.notes)
    left = units.format_capacity(judgement.free_bytes - judgement.judged_bytes)
    words = f"{left} of the free space is on drives where reading is not conclusive, and is not included"
    return (*judgement.notes, words)


def _compute_reading_cost(judgement: StaleJudgement, stale: Bounds, flash: Flash | None) -> StaleCost:
    first, count = judgement.drives[0], judgement.count
    if len(judgement.drives) != 1 or flash is None or first.landing.stopped:
        return StaleCost(None, _NO_ONE_DRIVE)
    if flash.physical_bytes is None:
        return StaleCost(None, _NO_FLASH)
    used = flash.device_bytes - first.landing.extents.total_bytes
    counted = count.after_bytes if count and count.has_followed_trim else None
    figures = estimate_spare(flash.physical_bytes, used, stale, first.untrimmable_bytes, counted)
    return _make_cost(figures, flash)


def _make_cost(figures: Spare | str, flash: Flash) -> StaleCost:
    if isinstance(figures, str):
        return StaleCost(None, figures, flash.source)
    return StaleCost(figures, None, flash.source)


def build_history_report(
    subject: str, filesystem: str | None, space: StaleSpace, flash: Flash | None
) -> HistoryReport:
    """Return the report from disk histories."""
    low, unknown = space.held_bytes, space.unknown_bytes
    stale = Bounds(None if unknown else low, low, low + unknown)
    cost = _compute_history_cost(space.parts, stale, flash)
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


def _compute_history_cost(parts: Sequence[DeviceFreeSpace], stale: Bounds, flash: Flash | None) -> StaleCost:
    """Return the cost, based on the history of the whole drive."""
    first = parts[0]
    if len(parts) != 1 or flash is None or first.landing.stopped or first.drive_bounds is None:
        return StaleCost(None, _NO_ONE_DRIVE)
    if flash.physical_bytes is None:
        return StaleCost(None, _NO_FLASH)
    unknown = first.unknown_in_use_bytes
    figures = estimate_spare_by_history(
        flash.physical_bytes, first.drive_bounds, stale, unknown, first.untrimmable_bytes
    )
    return _make_cost(figures, flash)
