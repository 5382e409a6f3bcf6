"""Which part of what is in use the writes have reached, and how evenly: from the writes themselves.

A workload that is called random need not be. One that begins anew with the same seed writes the same places
again and leaves the rest as it was: the drive has then more room to move data with than its level says.
"""

from __future__ import annotations

import itertools
import math

from opwatch.frozen import frozen

_REGIONS = 256
# A uniform workload goes beyond so many standard deviations of chi squared once in a million.
_MOST_SIGMAS = 5.0


@frozen
class WriteSpread:
    """Where the writes went. `coverage_ratio` is the share of what is in use that was written at least once
    since the purge. `uneven_sigmas` says how far the random writes are from uniform, None where that was not
    looked at. `source` is where both come from."""

    coverage_ratio: float
    uneven_sigmas: float | None
    source: str

    @property
    def is_uniform(self) -> bool | None:
        return None if self.uneven_sigmas is None else self.uneven_sigmas <= _MOST_SIGMAS


class WriteMap:
    """A bit for each unit that is in use, and a count of random writes for each of 256 equal regions."""

    def __init__(self, active_bytes: int, unit_bytes: int = 4096) -> None:
        self._units = active_bytes // unit_bytes
        self._unit_bytes = unit_bytes
        self._bits = bytearray((self._units + 7) // 8)
        self._covered = 0
        self._counts = [0] * min(_REGIONS, self._units)
        # What all counted writes begin at a multiple of, in units.
        self._step = 0

    def add(self, offset_bytes: int, len_bytes: int, *, counted: bool = True) -> None:
        """Take in a write. What lies outside, or covers a unit in part, covers nothing there. `counted` is
        False for the fill, which is even by its nature and would hide that the rest is not."""
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

    def spread(self, source: str = "block trace") -> WriteSpread:
        return WriteSpread(self._covered / self._units, self._sigmas(), source)

    def _sigmas(self) -> float | None:
        """How far chi squared lies above what a uniform workload has, in its standard deviations. A workload
        that is more even than chance, such as a random order of all units, lies below."""
        total = sum(self._counts)
        # Each region has to be hit a few times before chi squared has the distribution that it is judged by.
        if total < 5 * len(self._counts) or len(self._counts) < 2:
            return None
        chi = 0.0
        sizes = self._sizes()
        for size, count in zip(sizes, self._counts, strict=True):
            if size:
                expected = total * size / sum(sizes)
                chi += (count - expected) ** 2 / expected
        freedom = sum(map(bool, sizes)) - 1
        return (chi - freedom) / math.sqrt(2 * freedom) if freedom else None

    def _sizes(self) -> list[int]:
        """How many places each region has for a write to begin at: not all have as many where the regions do
        not divide them, and some have none where writes are larger than a region."""
        regions, step = len(self._counts), self._step or self._units
        edges = [-(-region * self._units // regions) for region in range(regions + 1)]
        places = [-(-edge // step) for edge in edges]
        return [end - begin for begin, end in itertools.pairwise(places)]
