"""What a drive really wrote, as far as its device statistics can be believed."""

from __future__ import annotations

import re

from opwatch.counters.evidence import Evidence
from opwatch.counters.prove import sanity
from opwatch.counters.prove.limits import WriteLimits
from opwatch.counters.prove.statistics import WRAP, StatisticsProof

# Whose statistics count something else, as erases and hours show.
_UNSOUND_MODELS = re.compile(r".*(?:SD7|SDMSATA|SDSSDHII|SDSSDXPS|Ultra II).*")
SECTOR = 512


def sound_sectors(drive: Evidence) -> int | None:
    """Logical sectors that the host wrote; None where nothing tells, or what tells is not to be believed."""
    statistics = drive.statistics
    reading = StatisticsProof(drive, WriteLimits(drive), wraps=False).written()
    if reading is None or reading.value is None:
        return None
    sectors = statistics.sectors_written if statistics else None
    if not sectors or not statistics or _UNSOUND_MODELS.fullmatch(drive.drive.model or ""):
        return None
    limits, written = WriteLimits(drive), sectors * SECTOR
    commands = statistics.write_commands
    wrong = sanity.first(
        sanity.too_little(written, limits.hours, SECTOR),
        sanity.mean_write(written, commands, SECTOR, None) if sectors < WRAP else None,
    )
    return None if wrong else sectors


def is_right(value: int, sectors: int, quantum: int, tolerance: float = 0.02) -> bool:
    """Whether bytes are the sectors, to 2 % and two steps; or what they were before they wrapped."""
    if abs(value - sectors * SECTOR) <= tolerance * sectors * SECTOR + 2 * quantum:
        return True
    ours = value // SECTOR
    if sectors >= WRAP or ours < WRAP:
        return False
    apart = (sectors - ours) % WRAP
    return min(apart, WRAP - apart) <= 2 * quantum // SECTOR + (1 << 16)
