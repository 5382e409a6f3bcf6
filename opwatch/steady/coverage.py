"""Measure from the writes which share of the data in use they reached, and how evenly.

A workload described as random need not be: restarting with the same seed rewrites the same addresses and
leaves the rest untouched. The drive then has more spare area to collect with than the level suggests.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

from opwatch.codec import Signed

_REGIONS = 256
# A uniform workload exceeds the limit, in standard deviations of chi squared, once in a million runs.
_MAX_SIGMAS = 5.0


@dataclass(frozen=True, slots=True)
class WriteSpread:
    """The coverage and evenness of the writes.

    `coverage_ratio` is the share of the data in use that was written at least once since the purge.
    `uneven_sigmas` is the distance of the random writes from a uniform distribution, or None if not measured.
    `source` names the origin of both figures.
    """

    coverage_ratio: float
    uneven_sigmas: Signed | None
    source: str

    @property
    def is_uniform(self) -> bool | None:
        return None if self.uneven_sigmas is None else self.uneven_sigmas <= _MAX_SIGMAS


class WriteMap:
    """One bit per unit in use, and a count of random writes for each of 256 equal regions."""

    def __init__(self, active_bytes: int, unit_bytes: int = 4096) -> None:
        self._units = active_bytes // unit_bytes
        self._unit_bytes = unit_bytes
        self._bits = bytearray((self._units + 7) // 8)
        self._covered = 0
        self._counts = [0] * min(_REGIONS, self._units)
        # Greatest common divisor of the start units of all counted writes.
        self._step = 0

    def record_write(self, offset_bytes: int, len_bytes: int, *, counted: bool = True) -> None:
        """Record a write.

        Bytes outside the area, and units that the write covers only partly, do not count as covered. Pass
        `counted=False` for the fill: sequential writes are even and would hide an uneven workload.
        """
        first = -(-offset_bytes // self._unit_bytes)
        last = min((offset_bytes + len_bytes) // self._unit_bytes, self._units)
        for unit in range(first, last):
            bit = 1 << unit % 8
            if not self._bits[unit // 8] & bit:
                self._bits[unit // 8] |= bit
                self._covered += 1
        if counted and first < last:
            self._counts[first * len(self._counts) // self._units] += 1
            self._step = math.gcd(self._step, first)

    def measure_spread(self, source: str = "block trace") -> WriteSpread:
        return WriteSpread(self._covered / self._units, self._compute_sigmas(), source)

    def _compute_sigmas(self) -> float | None:
        """Return the excess of chi squared over a uniform workload's expected value, in standard deviations.

        Workloads more even than chance, such as a random permutation of all units, give negative values.
        """
        total = sum(self._counts)
        # Chi squared follows its distribution only if each region expects several hits.
        if total < 5 * len(self._counts) or len(self._counts) < 2:
            return None
        chi = 0.0
        sizes = self._count_start_positions()
        for size, count in zip(sizes, self._counts, strict=True):
            if size:
                expected = total * size / sum(sizes)
                chi += (count - expected) ** 2 / expected
        freedom = sum(map(bool, sizes)) - 1
        return (chi - freedom) / math.sqrt(2 * freedom) if freedom else None

    def _count_start_positions(self) -> list[int]:
        """Return the number of possible start positions in each region.

        The numbers differ if the regions do not divide the positions evenly, and can be 0 if writes are
        larger than a region.
        """
        regions, step = len(self._counts), self._step or self._units
        edges = [-(-region * self._units // regions) for region in range(regions + 1)]
        places = [-(-edge // step) for edge in edges]
        return [end - begin for begin, end in itertools.pairwise(places)]
