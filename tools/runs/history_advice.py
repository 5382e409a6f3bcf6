"""A prediction from a recorded history: its file, the drive that it is about, and the answer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from opwatch.errors import NotEnoughData, RefusedError, UsageError
from opwatch.recording.reading.history import read_free_space, read_requests
from opwatch.sinks.sweep.reading import decode_sweep, restore_result
from opwatch.sweep.advice.targets import SweepTargets
from opwatch.sweep.history.advice import HistoryAdvice, KnownDrive, RecordedSystem, advise_system
from opwatch.sweep.history.system import build_system
from opwatch.sweep.levels import LevelScale, parse_levels
from opwatch.sweep.ranges import ValueRange
from opwatch.tools.runs.history_drive import require_attached_drive, require_swept_drive
from opwatch.tools.runs.sweep_source import SweepSource
from opwatch.trim.history.saved import HistoryDrive
from opwatch.trim.history.sectormap import SECTOR

DEFAULT_LEVELS = "7,14,28%"


@dataclass(frozen=True, slots=True)
class HistoryQuestion:
    """What the user asks of a history. `device` and `sweep` have to be of the same drive."""

    path: Path
    levels: str
    targets: SweepTargets
    waf: ValueRange | None
    flash_bytes: int | None
    endurance_bytes: int | None
    device: str | None
    sweep: SweepSource | None


def answer_question(question: HistoryQuestion) -> tuple[RecordedSystem, KnownDrive, HistoryAdvice]:
    """Return the recorded system, what is known of its drive, and the answer. Raise what is wrong with the
    file, its drive or the numbers before any replay."""
    saved, recorded = read_requests(question.path)
    drive, name = saved.drive, question.path.name
    if question.device is not None:
        require_attached_drive(drive, question.device, name)
    facts = KnownDrive(question.waf, question.flash_bytes, question.endurance_bytes)
    if question.sweep:
        facts = _add_sweep_facts(facts, question.sweep, drive, name)
    capacity = drive.sectors * SECTOR
    if facts.flash_bytes is not None and facts.flash_bytes <= capacity:
        raise UsageError(
            f"--physical: a drive of {capacity} bytes needs more flash than {facts.flash_bytes} bytes"
        )
    levels = parse_levels(question.levels, LevelScale(capacity))
    if facts.waf is None and facts.flash_bytes is None:
        raise NotEnoughData(
            "nothing can be said without the drive's WAF or its flash: give what opwatch waf reported for "
            "this time with --waf, or the flash for data with --physical"
        )
    system = build_system(name, recorded, read_free_space(question.path))
    return system, facts, advise_system(system, facts, levels, question.targets)


def _add_sweep_facts(facts: KnownDrive, sweep: SweepSource, drive: HistoryDrive, name: str) -> KnownDrive:
    """Return the facts with the flash that a sweep of the same drive behaves like, and its endurance."""
    identity = sweep.read_identity()
    if identity is None:
        raise RefusedError(f"{sweep.name} is a sweep of simulated flash, not of the drive of {name}")
    require_swept_drive(drive, identity, name, sweep.name)
    result = restore_result(decode_sweep(sweep.document, sweep.name), sweep.name)
    fit = result.fit_levels()
    flash = facts.flash_bytes
    if flash is None and fit and fit.rms_ratio is not None:
        flash = round(fit.flash_bytes)
    endurance = result.endurance_bytes if facts.endurance_bytes is None else facts.endurance_bytes
    return KnownDrive(facts.waf, flash, endurance)
