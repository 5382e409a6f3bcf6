"""Draw random blocks of free space and estimate the share that holds data. Pure: the caller reads."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from opwatch.trim.space.extents import Extents
from opwatch.trim.stale.estimate import SAMPLE_SIZES, Share, estimate_share


class SampledBlock(NamedTuple):
    """A block to read: index of its landing, and byte offset on the device."""

    landing: int
    offset: int


class Blocks:
    """All complete blocks in several sets of extents, numbered from 0."""

    def __init__(self, parts: Sequence[Extents], unit: int) -> None:
        self._unit = unit
        self._parts = [extents.starts for extents in parts]
        counts = [[length // unit for length in extents.iterate_lengths()] for extents in parts]
        # Number of the first block, per landing and per extent in a landing.
        self._landings = [0, *accumulate(map(sum, counts))]
        self._firsts = [
            list(accumulate(part, initial=first)) for part, first in zip(counts, self._landings, strict=False)
        ]

    def __len__(self) -> int:
        return self._landings[-1]

    def __getitem__(self, number: int) -> SampledBlock:
        if not 0 <= number < len(self):
            raise IndexError(number)
        landing = bisect_right(self._landings, number) - 1
        firsts = self._firsts[landing]
        at = bisect_right(firsts, number) - 1
        return SampledBlock(landing, self._parts[landing][at] + (number - firsts[at]) * self._unit)


class Draw:
    """Draws distinct random numbers below `count`."""

    def __init__(self, count: int, seed: int) -> None:
        self._count = count
        self._random = random.Random(seed)
        # Shuffling is faster than rejection sampling if half of the numbers or more may be drawn.
        self._rest = list(range(count)) if count <= 2 * SAMPLE_SIZES[-1] else None
        if self._rest is not None:
            self._random.shuffle(self._rest)
        self._taken: set[int] = set()

    def draw_numbers(self, wanted: int) -> list[int]:
        """Return the next `wanted` numbers, or fewer if no more are left."""
        if self._rest is not None:
            numbers, self._rest = self._rest[:wanted], self._rest[wanted:]
            return numbers
        numbers = []
        while len(numbers) < wanted and len(self._taken) < self._count:
            number = self._random.randrange(self._count)
            if number not in self._taken:
                self._taken.add(number)
                numbers.append(number)
        return numbers


class BatchCount(NamedTuple):
    """Result of a batch: `holding` of `counted` blocks hold data. Used or unreadable blocks do not count."""

    holding: int
    counted: int


def sample_blocks(
    units: int,
    seed: int,
    confidence: float,
    half_width: float,
    read: Callable[[list[int]], BatchCount],
    in_time: Callable[[], bool] = lambda: True,
) -> Iterator[Share]:
    """Yield estimates from growing samples until one is narrow enough, every block was read or time is up.
    Reads at least one batch. `read` takes block numbers."""
    draw, holding, counted, done = Draw(units, seed), 0, 0, 0
    for look in SAMPLE_SIZES:
        while done < look and (not done or in_time()):
            numbers = draw.draw_numbers(min(look - done, 1_000))
            if not numbers:
                break
            batch = read(numbers)
            done, holding, counted = done + len(numbers), holding + batch.holding, counted + batch.counted
        # After every block was read, the result is exact for the blocks that count.
        population = counted if done >= units else units
        share = estimate_share(holding, counted, population, confidence)
        yield share
        if share.half_width <= half_width or done < look:
            return
