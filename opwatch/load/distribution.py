"""Derive from a workload's fio options how unevenly it writes. Pure.

fio's zipf, pareto and normal distributions choose a rank and take a hash of the rank as address, so hot
addresses are scattered. Addresses without a rank are never written. How many there are depends on the number
of addresses: from none to more than half.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from opwatch.errors import UsageError
from opwatch.ftl.fio_hash import measure_own_shares
from opwatch.load.workload import LoadJob, LoadPattern
from opwatch.quantities import parse_size
from opwatch.steady.skew import UNIFORM, WritePart, merge_parts

# Ranks per class grow by this factor from the hottest rank on.
_GROWTH = 1.6
# Addresses of a fio zone, and of the mean of twelve random numbers.
_CELLS = 400
_NORMAL_DEVIATION = 1 / 12
# Combinations of independent distributions.
_MOST_PARTS = 50_000


class _Density(NamedTuple):
    """The writes per page, relative to the mean, of `space_ratio` of the addresses.

    `cell` is the place of the addresses if they are contiguous, and None if they are scattered.
    """

    space_ratio: float
    density: float
    cell: int | None


def find_write_parts(pattern: LoadPattern, used_bytes: int) -> tuple[WritePart, ...]:
    """Return the shares of space and writes of a workload on `used_bytes`; an empty tuple if they are
    unknown.
    """
    if pattern.is_uniform:
        return UNIFORM
    # Jobs with the same distribution write the same addresses.
    weights: Counter[tuple[_Density, ...]] = Counter()
    for job in pattern.jobs:
        weights[tuple(_find_densities(job, used_bytes))] += job.thread_count
    summed = [_Density(1 / _CELLS, 0.0, cell) for cell in range(_CELLS)]
    for densities, threads in weights.items():
        if not densities or len(summed) > _MOST_PARTS:
            return ()
        summed = _add_densities(summed, densities, threads / weights.total())
    return merge_parts(WritePart(one.space_ratio, one.space_ratio * one.density) for one in summed)


def _add_densities(summed: Sequence[_Density], others: Sequence[_Density], weight: float) -> list[_Density]:
    """Return the sum of two distributions: by place, or independent of each other if one is scattered."""
    if len(others) == _CELLS and others[0].cell is not None:
        at = [one.density for one in others]
        return [
            one._replace(density=one.density + weight * (1.0 if one.cell is None else at[one.cell]))
            for one in summed
        ]
    return [
        _Density(one.space_ratio * other.space_ratio, one.density + weight * other.density, one.cell)
        for one in summed
        for other in others
    ]


def _find_densities(job: LoadJob, used_bytes: int) -> list[_Density]:
    """Return the distribution of one job's writes, or an empty list if its option is not understood."""
    options = job.options
    kind, _, text = options.get("random_distribution", "random").partition(":")
    random_ratio = int(_select_writes(options.get("percentage_random", "100"))) / 100
    if not options["rw"].startswith("rand") or kind == "random" or not random_ratio:
        return [_Density(1 / _CELLS, 1.0, cell) for cell in range(_CELLS)]
    blocks = max(used_bytes // _find_block_bytes(options), 2)
    try:
        found = list(_DISTRIBUTIONS[kind](_select_writes(text), blocks, used_bytes))
    except (KeyError, ValueError, UsageError):
        return []
    return [one._replace(density=random_ratio * one.density + 1 - random_ratio) for one in found]


def _select_writes(text: str) -> str:
    """Return the part of an option for writes: fio separates reads, writes and trims by commas."""
    parts = text.split(",")
    return parts[1] if len(parts) > 1 and parts[1] else parts[0]


def _find_block_bytes(options: Mapping[str, str]) -> int:
    text = _select_writes(options.get("bs", "4k")).lower()
    try:
        return parse_size(text)
    except UsageError:
        return 4096


def _iter_zipf(text: str, blocks: int, used_bytes: int) -> Iterator[_Density]:
    theta = float(text.partition(":")[0])

    def sum_weights(ranks: float) -> float:
        """Return the sum of rank**-theta up to a rank: exact for few ranks, by the integral beyond."""
        few = int(min(ranks, 100))
        head = sum(math.pow(rank, -theta) for rank in range(1, few + 1))
        if ranks <= few:
            return head
        if abs(theta - 1) < 1e-9:
            return head + math.log((ranks + 0.5) / (few + 0.5))
        return head + (math.pow(ranks + 0.5, 1 - theta) - math.pow(few + 0.5, 1 - theta)) / (1 - theta)

    return _scatter_ranks(sum_weights, blocks)


def _iter_pareto(text: str, blocks: int, used_bytes: int) -> Iterator[_Density]:
    power = float(text.partition(":")[0])
    exponent = math.log(1 - power) / math.log(power)
    return _scatter_ranks(lambda ranks: (ranks / blocks) ** exponent, blocks)


def _iter_normal(text: str, blocks: int, used_bytes: int) -> Iterator[_Density]:
    """Yield a normal distribution around the middle, widened by an even one, of ranks from the middle out."""
    width = min(float(text.partition(":")[0]) / 100, 0.5)

    def sum_weights(ranks: float) -> float:
        half = ranks / blocks / 2
        steps = [(at + 0.5) / 20 * width - width / 2 for at in range(20)]
        return sum(_sum_bell(half - step) - _sum_bell(-half - step) for step in steps) / len(steps)

    return _scatter_ranks(sum_weights, blocks)


def _sum_bell(place: float) -> float:
    return 0.5 * (1 + math.erf(place / _NORMAL_DEVIATION / math.sqrt(2)))


def _scatter_ranks(sum_weights: Callable[[float], float], blocks: int) -> Iterator[_Density]:
    """Yield what a hash makes of ranks: blocks by their hottest rank, and the blocks without a rank."""
    edges = [0]
    while edges[-1] < blocks:
        edges.append(min(max(int(edges[-1] * _GROWTH), edges[-1] + 1), blocks))
    # The share of blocks whose hottest rank is below each edge.
    spaces = list(map(_make_own_sum(blocks), edges))
    whole, above = sum_weights(blocks), 0.0
    parts: list[tuple[float, float]] = []
    for (first, last), (begin, end) in zip(
        itertools.pairwise(edges), itertools.pairwise(spaces), strict=True
    ):
        weight = (sum_weights(last) - (sum_weights(first) if first else 0.0)) / whole
        # The other ranks share their blocks with hotter ones.
        own = (end - begin) * blocks / (last - first)
        above += weight * (1 - own)
        parts.append((end - begin, weight * own))
    covered = spaces[-1]
    for space, weight in parts:
        if space:
            yield _Density(space, weight / space + above / covered, None)
    if covered < 1:
        yield _Density(1 - covered, 0.0, None)


def _make_own_sum(blocks: int) -> Callable[[int], float]:
    """Return the function from a number of ranks, the hottest, to the share of blocks that they lead to."""
    shares = measure_own_shares(blocks)
    sums = list(itertools.accumulate(shares, initial=0.0))

    def sum_own(ranks: int) -> float:
        at = ranks / blocks * len(shares)
        part = min(int(at), len(shares) - 1)
        return (sums[part] + (at - part) * shares[part]) / len(shares)

    return sum_own


def _iter_zones(text: str, blocks: int, used_bytes: int) -> Iterator[_Density]:
    zones = [tuple(map(float, zone.split("/"))) for zone in text.split(":")]
    return _spread_zones([(share, size / 100) for share, size in zones])


def _iter_absolute_zones(text: str, blocks: int, used_bytes: int) -> Iterator[_Density]:
    zones = [zone.split("/") for zone in text.split(":")]
    return _spread_zones([(float(share), parse_size(size) / used_bytes) for share, size in zones])


def _spread_zones(zones: Sequence[tuple[float, float]]) -> Iterator[_Density]:
    """Yield the density in each cell, for zones of (per cent of writes, share of the space) in order."""
    cells, begin = [0.0] * _CELLS, 0.0
    for share, size in zones:
        end = min(begin + size * _CELLS, _CELLS)
        for cell in range(int(begin), min(math.ceil(end), _CELLS)):
            overlap = min(end, cell + 1) - max(begin, cell)
            cells[cell] += share / 100 * overlap / (end - begin) if end > begin else 0.0
        begin = end
    for cell, share in enumerate(cells):
        yield _Density(1 / _CELLS, share * _CELLS, cell)


_DISTRIBUTIONS: dict[str, Callable[[str, int, int], Iterator[_Density]]] = {
    "zipf": _iter_zipf,
    "pareto": _iter_pareto,
    "normal": _iter_normal,
    "zoned": _iter_zones,
    "zoned_abs": _iter_absolute_zones,
}
