"""Measure from a sample of the writes which data are hot and which are cold.

Chance makes some addresses look cold. Writes therefore alternate between two counts: one puts addresses in
order, and the other measures the groups. Hot data may be together, which shows in regions, or scattered,
which shows in addresses that are written repeatedly.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from opwatch.codec import Signed
from opwatch.steady.skew import UNIFORM, WritePart, merge_parts

# A uniform workload exceeds the limit, in standard deviations, about once in a million runs.
MAX_SIGMAS = 5.0
_MIN_REGIONS = 16
# Writes from which the density of a group is known to 10 %.
_MIN_POOL = 100
# Expected writes of a region, from which none is no chance.
_MIN_SILENT = 7.0
# Addresses that are remembered.
_MOST_ADDRESSES = 1 << 18
# Hot addresses must be hit this often on average, or too many of them remain unseen.
_MIN_HITS = 3.0
# Repeats that chance may add where hardly any are expected.
_RARE_REPEATS = 9.0


class SampledSkew(NamedTuple):
    """The excess over uniform writes in standard deviations, None with too few writes, and the parts.

    `parts` are empty if the writes are uniform, or if the sample does not show which data are cold.
    """

    sigmas: Signed | None
    parts: tuple[WritePart, ...]


class WriteSample:
    """Counts of random writes by region and by address, in two halves."""

    def __init__(self, regions: int) -> None:
        self._regions = ([0] * regions, [0] * regions)
        self._addresses: tuple[Counter[int], Counter[int]] = (Counter(), Counter())
        self._count = 0

    def record_write(self, region: int, address: int) -> None:
        half = self._count % 2
        self._count += 1
        self._regions[half][region] += 1
        if len(self._addresses[0]) < _MOST_ADDRESSES:
            self._addresses[half][address] += 1

    def measure_skew(self, sizes: Sequence[int]) -> SampledSkew:
        """Return the skew. `sizes` are the possible addresses in each region."""
        sigmas = self._compare_regions(sizes)
        if sigmas is None:
            return SampledSkew(None, ())
        parts = self._measure_regions(sizes) if sigmas > MAX_SIGMAS else ()
        repeats = self._compare_repeats(sum(sizes), parts)
        if repeats > MAX_SIGMAS:
            # Hot data are scattered within the regions.
            return SampledSkew(max(sigmas, repeats), self._measure_addresses(sum(sizes)))
        return SampledSkew(sigmas, parts)

    def _compare_regions(self, sizes: Sequence[int]) -> float | None:
        """Return the excess of chi squared over a uniform workload's expected value, in standard deviations.

        Workloads more even than chance, such as a random permutation of all units, give negative values.
        """
        total, counts = self._count, [sum(pair) for pair in zip(*self._regions, strict=True)]
        # Chi squared follows its distribution only if each region expects several hits.
        while total < 5 * len(counts) and len(counts) > _MIN_REGIONS:
            counts, sizes = (
                [sum(values[at : at + 2]) for at in range(0, len(values), 2)] for values in (counts, sizes)
            )
        if total < 5 * len(counts) or len(counts) < 2:
            return None
        chi = 0.0
        for size, count in zip(sizes, counts, strict=True):
            if size:
                expected = total * size / sum(sizes)
                chi += (count - expected) ** 2 / expected
        freedom = sum(map(bool, sizes)) - 1
        return (chi - freedom) / math.sqrt(2 * freedom) if freedom else None

    def _compare_repeats(self, places: int, parts: Sequence[WritePart]) -> float:
        """Return the excess of repeated addresses over what the regions explain, in standard deviations."""
        seen, later = self._addresses
        hits = sum(count for address, count in later.items() if address in seen)
        share = seen.total() / max(places, 1)
        expected = later.total() * sum(
            part.write_ratio * -math.expm1(-share * part.density) for part in parts or UNIFORM
        )
        return (hits - expected) / math.sqrt(expected + _RARE_REPEATS)

    def _measure_regions(self, sizes: Sequence[int]) -> tuple[WritePart, ...]:
        order, counts = self._regions
        places = [place for place, size in enumerate(sizes) if size]
        ranked = sorted(places, key=lambda place: order[place] / sizes[place])
        silent = [place for place in ranked if not order[place] and not counts[place]]
        pools = _pool_groups((sizes[place], counts[place]) for place in ranked if place not in silent)
        if not silent or not pools:
            return merge_parts(pools)
        # Regions without any write are static if each would have some at the density of the coldest others.
        expected = 2 * pools[0].density * min(sizes[place] for place in silent)
        if expected < _MIN_SILENT:
            return merge_parts(_pool_groups((sizes[place], counts[place]) for place in ranked))
        return merge_parts([*pools, WritePart(sum(sizes[place] for place in silent), 0)])

    def _measure_addresses(self, places: int) -> tuple[WritePart, ...]:
        """Return addresses grouped by their number of hits, or nothing if too many hot ones remain unseen."""
        seen, later = self._addresses
        sizes: defaultdict[int, int] = defaultdict(int)
        writes: defaultdict[int, int] = defaultdict(int)
        for count in seen.values():
            sizes[count.bit_length()] += 1
        for address, count in later.items():
            writes[seen[address].bit_length()] += count
        sizes[0] = places - len(seen)
        repeated = later.total() - writes[0]
        if sizes[0] <= 0 or repeated / later.total() * seen.total() < _MIN_HITS * len(seen):
            return ()
        return merge_parts(_pool_groups((sizes[level], writes[level]) for level in sorted(sizes)))


def _pool_groups(groups: Iterable[tuple[int, int]]) -> list[WritePart]:
    """Return groups of (size, writes), with neighbours merged until each has enough writes."""
    pools: list[WritePart] = []
    size = writes = 0
    for more_size, more_writes in groups:
        size, writes = size + more_size, writes + more_writes
        if writes >= _MIN_POOL:
            pools.append(WritePart(size, writes))
            size = writes = 0
    if pools and size:
        pools[-1] = WritePart(pools[-1].space_ratio + size, pools[-1].write_ratio + writes)
    return pools
