"""Determine the true host writes of a drive from credible device statistics."""

from __future__ import annotations

import re

from opwatch.counters.evidence import Evidence
from opwatch.counters.prove import sanity
from opwatch.counters.prove.limits import WriteLimits
from opwatch.counters.prove.statistics import UNITS, WRAP, StatisticsProof

# Models whose statistics count something else, as shown by erases and hours.
_UNSOUND_MODELS = re.compile(r".*(?:SD7|SDMSATA|SDSSDHII|SDSSDXPS|Ultra II).*")
SECTOR = 512
# Attributes that may count host writes, in order of preference.
CANDIDATES = (241, 246, 225, 233, 235, 251)
# Smaller counts match by chance.
MIN_RAW = 20


def find_sound_sectors(drive: Evidence) -> int | None:
    """Return the logical sectors that the host wrote, or None if unknown or not credible."""
    statistics = drive.statistics
    reading = StatisticsProof(drive, WriteLimits(drive), wraps=False).find_written_bytes()
    if reading is None or reading.value is None:
        return None
    sectors = statistics.sectors_written if statistics else None
    if not sectors or not statistics or _UNSOUND_MODELS.fullmatch(drive.drive.model or ""):
        return None
    limits, written = WriteLimits(drive), sectors * SECTOR
    commands = statistics.write_commands
    wrong = sanity.find_first_reason(
        sanity.check_small_unit(written, limits.hours, SECTOR),
        _find_contradiction(sectors, commands) if sectors < WRAP else None,
    )
    return None if wrong else sectors


def find_wrapped_sectors(drive: Evidence) -> int | None:
    """Return the logical sectors modulo 2^32 of a wrapped count, or None for other drives.

    Write commands or erases must show the wrap, and an attribute must confirm it in some unit.
    """
    statistics, limits = drive.statistics, WriteLimits(drive)
    sectors = statistics.sectors_written if statistics else None
    if not sectors or not statistics or sectors >= WRAP or find_sound_sectors(drive):
        return None
    too_small = limits.check_erase_minimum(sectors * SECTOR)
    reading = StatisticsProof(drive, limits, wraps=False).find_written_bytes()
    is_refused = reading is None or (reading.value is None and not too_small)
    if is_refused or _UNSOUND_MODELS.fullmatch(drive.drive.model or ""):
        return None
    wrong = too_small or _find_contradiction(sectors, statistics.write_commands)
    return sectors if wrong and is_shown_by_attribute(drive, sectors) else None


def _find_contradiction(sectors: int, commands: int | None) -> str | None:
    """Return the reason why the commands cannot have written the sectors, or None."""
    written = sectors * SECTOR
    return sanity.find_first_reason(
        sanity.check_mean_write(written, commands, SECTOR, None), sanity.check_wrap(written, commands)
    )


def is_shown_by_attribute(drive: Evidence, sectors: int) -> bool:
    """Return whether an attribute equals the sectors in some unit."""
    attributes = (drive.find_attribute(number) for number in CANDIDATES)
    raws = [attribute.raw for attribute in attributes if attribute and attribute.raw]
    return any(is_right(raw * unit, sectors, unit) for raw in raws if raw >= MIN_RAW for unit in UNITS)


def is_right(value: int, sectors: int, quantum: int, tolerance: float = 0.02) -> bool:
    """Return whether the bytes equal the sectors within 2 % and two steps, or modulo the wrap."""
    if abs(value - sectors * SECTOR) <= tolerance * sectors * SECTOR + 2 * quantum:
        return True
    ours = value // SECTOR
    if sectors >= WRAP or ours < WRAP:
        return False
    apart = (sectors - ours) % WRAP
    return min(apart, WRAP - apart) <= 2 * quantum // SECTOR + (1 << 16)
