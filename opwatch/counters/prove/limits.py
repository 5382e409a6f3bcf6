"""What one SATA drive can have written at most, by what it says of its hours, its erases and its size."""

from __future__ import annotations

import re

from opwatch.counters.evidence import Attribute, Evidence
from opwatch.counters.prove import sanity

# Names say nothing certain of a unit. These say enough to refuse what is 30 times too much.
_ERASES = re.compile(r"(?!.*SLC)(?:Av(?:e|g|erage)[_-].*(?:Erase|PE_)|Wear_Leveling_Count$).*")
# What most makers count erases in, where smartctl has no name for it.
_ERASE_IDS, _UNNAMED = (167, 173, 177), re.compile("Unkn(?:own)?_.*")
# A unit 32 times too large would be above; drives with a cache of SLC write 5 capacities an erase.
_LIKELY = 10
# Total, largest, smallest and average erase count of a block: on drives where they lie between each other so.
_LARGEST, _SMALLEST, _AVERAGE = 165, 166, 167
# No block holds more than its erases, but makers may leave out those of a cache, and show less than there is.
_LARGEST_FIT = 3.5
# More than this is several numbers in one.
MOST_ERASES = 1 << 20


def _most(attributes: tuple[Attribute, ...], names: re.Pattern[str]) -> int | None:
    """The largest erase count that an attribute of such a name shows."""
    counts = (attribute.raw for attribute in attributes if names.fullmatch(attribute.name))
    return max((raw for raw in counts if raw is not None and raw < MOST_ERASES), default=None)


class WriteLimits:
    """The limits of one drive. `hours` is None where nothing credible tells them."""

    def __init__(self, evidence: Evidence) -> None:
        self.capacity = evidence.drive.capacity_bytes
        self.lba = evidence.drive.lba_bytes or 512
        statistics = evidence.statistics
        counts = (evidence.power_on_hours, statistics.power_on_hours if statistics else None)
        credible = [hours for hours in counts if hours is not None and hours <= sanity.MOST_HOURS]
        self.hours = max(credible) if credible else None
        self._erases = _most(evidence.attributes, _ERASES)
        self._average_erases, self._largest_erases = self._ordered(evidence)
        self._unnamed_erases = self._erases or _most(
            tuple(attribute for attribute in evidence.attributes if attribute.id in _ERASE_IDS), _UNNAMED
        )

    @staticmethod
    def _ordered(evidence: Evidence) -> tuple[int | None, int | None]:
        """The average and the largest erase count of a block, where their order with the smallest shows that
        they are that. A smallest of 0 says nothing of the average: makers leave it out."""
        counts = [evidence.attribute(number) for number in (_SMALLEST, _AVERAGE, _LARGEST)]
        raws = [count.raw for count in counts if count and count.raw is not None]
        if len(raws) != 3 or raws != sorted(raws) or raws[2] >= MOST_ERASES:
            return None, None
        return raws[1] if raws[0] else None, raws[2]

    def broken_by(self, n_bytes: int) -> str | None:
        """Why the host cannot have written so much, None when it can."""
        return sanity.first(
            sanity.too_fast(n_bytes, self.hours, "ata"),
            sanity.too_often(n_bytes, self.capacity),
            sanity.beyond_erases(n_bytes, self._erases, self.capacity),
            self.below_erases(n_bytes),
        )

    def below_erases(self, n_bytes: int) -> str | None:
        """Why the host must have written more: by the erases that the drive has had."""
        return sanity.below_erases(n_bytes, self._average_erases, self.capacity)

    def beyond_likely_erases(self, n_bytes: int) -> str | None:
        """Why a unit that was only learned is too large: by what is an erase count on most drives."""
        return sanity.first(
            sanity.beyond_erases(n_bytes, self._unnamed_erases, self.capacity, _LIKELY),
            sanity.beyond_erases(n_bytes, self._largest_erases, self.capacity, _LARGEST_FIT),
        )
