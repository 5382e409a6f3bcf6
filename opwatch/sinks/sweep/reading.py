"""The result of a sweep, read back from its JSON document."""

from __future__ import annotations

from typing import Any

from opwatch.codec import decode
from opwatch.errors import BadInput
from opwatch.foreign import require_table
from opwatch.sinks.sweep.document import TYPE, LevelDocument, OutcomeDocument, SweepDocument
from opwatch.steady.stored import restore_verdict
from opwatch.sweep.levels import LevelFiles, LevelScale, OpLevel
from opwatch.sweep.outcome import LevelOutcome
from opwatch.sweep.result import SweepResult


def decode_sweep(document: dict[str, Any], where: str) -> SweepDocument:
    """Return the document of a sweep. Raise BadInput for any other document."""
    if require_table(document, where).get("type") != TYPE:
        raise BadInput(f"{where}: type is not {TYPE}: it was not written by opwatch sweep")
    return decode(SweepDocument, document, where)


def restore_result(sweep: SweepDocument, where: str) -> SweepResult:
    """Return the result that the document describes. SNIA's verdicts are not part of it."""
    return SweepResult(
        target=sweep.target,
        method=sweep.method,
        workload=sweep.workload,
        outcomes=tuple(_restore_outcome(level, where) for level in sweep.levels),
        superblock_pages=sweep.superblock_pages,
        endurance_bytes=sweep.endurance_bytes,
        endurance_reason=sweep.endurance_reason or "",
        model=sweep.model,
        is_uniform=sweep.is_uniform,
    )


def _restore_outcome(level: OutcomeDocument, where: str) -> LevelOutcome:
    return LevelOutcome(
        level=_restore_level(level, where),
        rounds=level.rounds,
        figures=level.figures,
        pts=None,
        strict=restore_verdict(level.opwatch),
        is_model=level.is_model,
        seconds=level.seconds,
    )


def _restore_level(level: LevelDocument, where: str) -> OpLevel:
    files = LevelFiles(level.files.load_bytes, level.files.ballast_bytes) if level.files else None
    restored = OpLevel(
        level.label, level.used_bytes, LevelScale(level.capacity_bytes), level.flash_bytes, files
    )
    flaw = restored.find_flaw()
    if not flaw and restored.flash_bytes is not None and restored.flash_bytes <= restored.usable_bytes:
        flaw = "all of the flash is in use"
    if flaw:
        raise BadInput(f"{where}: level {level.label!r:.60}: {flaw}")
    return restored
