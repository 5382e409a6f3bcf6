"""Upper limits for the writes of one SATA drive, from its hours, erase counts and capacity."""

from __future__ import annotations

import re

from opwatch.counters.evidence import Attribute, Evidence
from opwatch.counters.prove import sanity

# Names do not prove a unit, but suffice to refuse a value 30 times too large.
_ERASES = re.compile(r"(?!.*SLC)(?:Av(?:e|g|erage)[_-].*(?:Erase|PE_)|Wear_Leveling_Count$).*")
# Ids used by most vendors for erase counts, for attributes without a name in smartctl.
_ERASE_IDS, _UNNAMED = (167, 173, 177), re.compile("Unkn(?:own)?_.*")
# A unit 32 times too large exceeds this; drives with an SLC cache write up to 5 capacities per erase.
_LIKELY_FACTOR = 10
# Total, largest, smallest and average erase count of a block. Used only where their order confirms it.
_LARGEST, _SMALLEST, _AVERAGE = 165, 166, 167
# A block holds no more than its erases, but vendors may omit the erases of a cache.
_LARGEST_FIT = 3.5
# A larger value packs several numbers into one.
MAX_ERASES = 1 << 20


def _find_largest_erases(attributes: tuple[Attribute, ...], names: re.Pattern[str]) -> int | None:
    """Return the largest erase count in an attribute with a matching name."""
    counts = (attribute.raw for attribute in attributes if names.fullmatch(attribute.name))
    return max((raw for raw in counts if raw is not None and raw < MAX_ERASES), default=None)


class WriteLimits:
    """Write limits of one drive. `hours` is None without a credible source."""

    def __init__(self, evidence: Evidence) -> None:
        self.capacity = evidence.drive.capacity_bytes
        self.lba = evidence.drive.lba_bytes or 512
        statistics = evidence.statistics
        counts = (evidence.power_on_hours, statistics.power_on_hours if statistics else None)
        credible = [hours for hours in counts if hours is not None and hours <= sanity.MAX_HOURS]
        self.hours = max(credible) if credible else None
        self._erases = _find_largest_erases(evidence.attributes, _ERASES)
        self._average_erases, self._largest_erases = self._find_ordered_erases(evidence)
        self._unnamed_erases = self._erases or _find_largest_erases(
            tuple(attribute for attribute in evidence.attributes if attribute.id in _ERASE_IDS), _UNNAMED
        )

    @staticmethod
    def _find_ordered_erases(evidence: Evidence) -> tuple[int | None, int | None]:
        """Return (average, largest) erase count of a block if the order with the smallest confirms their
        meaning.

        The average is None if the smallest is 0, because some vendors leave the average out.
        """
        counts = [evidence.find_attribute(number) for number in (_SMALLEST, _AVERAGE, _LARGEST)]
        raws = [count.raw for count in counts if count and count.raw is not None]
        if len(raws) != 3 or raws != sorted(raws) or raws[2] >= MAX_ERASES:
            return None, None
        return raws[1] if raws[0] else None, raws[2]

    def check_limits(self, n_bytes: int) -> str | None:
        """Return the reason why the host cannot have written `n_bytes`, or None."""
        return sanity.find_first_reason(
            sanity.check_speed(n_bytes, self.hours, "ata"),
            sanity.check_drive_writes(n_bytes, self.capacity),
            sanity.check_erase_maximum(n_bytes, self._erases, self.capacity),
            self.check_erase_minimum(n_bytes),
        )

    def check_erase_minimum(self, n_bytes: int) -> str | None:
        """Return a reason if the drive's erase counts require more host writes, or None."""
        return sanity.check_erase_minimum(n_bytes, self._average_erases, self.capacity)

    def check_likely_erases(self, n_bytes: int) -> str | None:
        """Return a reason if a learned unit is too large for probable erase counts, or None."""
        return sanity.find_first_reason(
            sanity.check_erase_maximum(n_bytes, self._unnamed_erases, self.capacity, _LIKELY_FACTOR),
            sanity.check_erase_maximum(n_bytes, self._largest_erases, self.capacity, _LARGEST_FIT),
        )
