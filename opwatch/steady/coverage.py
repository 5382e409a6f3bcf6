"""Measure from the writes which share of the data in use they reached, and how evenly.

A workload described as random need not be: restarting with the same seed rewrites the same addresses and
leaves the rest untouched. The drive then has more spare area to collect with than the level suggests.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field, replace

from opwatch.codec import Signed
from opwatch.steady.sampled import MAX_SIGMAS, WriteSample
from opwatch.steady.skew import UNIFORM, WritePart

_REGIONS = 256


@dataclass(frozen=True, slots=True)
class WriteSpread:
    """The coverage and evenness of the writes.

    `coverage_ratio` is the share of the data in use that was written at least once since the purge, or None
    if not measured. `uneven_sigmas` is the distance of the random writes from a uniform distribution, or None
    if not measured. `source` names the origin of both figures. `parts` are the shares of space and writes
    from the coldest data to the hottest, a single part if the workload is meant to be uniform, and empty if
    unknown.
    """

    coverage_ratio: float | None
    uneven_sigmas: Signed | None
    source: str
    parts: tuple[WritePart, ...] = field(default=(), metadata={"added": True})

    @property
    def is_uniform(self) -> bool | None:
        return None if self.uneven_sigmas is None else self.uneven_sigmas <= MAX_SIGMAS

    @property
    def known_parts(self) -> tuple[WritePart, ...]:
        """Return the parts, or an empty tuple if the writes may be skewed in an unknown way."""
        return self.parts or (UNIFORM if self.is_uniform else ())


class WriteMap:
    """One bit per unit in use, and a sample of the random writes by region and address."""

    def __init__(self, active_bytes: int, unit_bytes: int = 4096) -> None:
        self._units = active_bytes // unit_bytes
        self._unit_bytes = unit_bytes
        self._bits = bytearray((self._units + 7) // 8)
        self._covered = 0
        self._regions = min(_REGIONS, self._units)
        self._sample = WriteSample(self._regions)
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
            self._sample.record_write(first * self._regions // self._units, first)
            self._step = math.gcd(self._step, first)

    @property
    def coverage_ratio(self) -> float:
        return self._covered / self._units

    def measure_spread(self, source: str = "block trace") -> WriteSpread:
        skew = self._sample.measure_skew(self._count_start_positions())
        spread = WriteSpread(self.coverage_ratio, skew.sigmas, source, skew.parts)
        return replace(spread, parts=UNIFORM) if spread.is_uniform else spread

    def _count_start_positions(self) -> list[int]:
        """Return the number of possible start positions in each region.

        The numbers differ if the regions do not divide the positions evenly, and can be 0 if writes are
        larger than a region.
        """
        regions, step = self._regions, self._step or self._units
        edges = [-(-region * self._units // regions) for region in range(regions + 1)]
        places = [-(-edge // step) for edge in edges]
        return [end - begin for begin, end in itertools.pairwise(places)]
