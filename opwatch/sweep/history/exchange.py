"""Exchange places that are written alike between two repetitions of a history. Pure.

A history of a few drive writes hits one place of uniformly written data once, and its neighbour six times, by
chance. Repeated as it is, the first place would be cold forever. Where the numbers of writes in a region
scatter as by chance alone, each repetition therefore takes other places of the region.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import NamedTuple

# Units of a region, a power of two.
_REGION = 256
# The variance of the numbers of writes relative to their mean, which is 1 by chance alone.
_LEAST_SCATTER, _MOST_SCATTER = 0.6, 1.25
# Regions with fewer writes per unit show nothing.
_LEAST_MEAN = 0.5
_MOST_PASSES, _MOST_CHANGES = 6, 1_500_000


class UnitChange(NamedTuple):
    """A write or a trim of mapping units."""

    first: int
    size: int
    is_trim: bool


def make_passes(changes: Sequence[UnitChange], units: int) -> list[list[UnitChange]]:
    """Return the changes of some repetitions, which differ where places are exchanged."""
    granules = _find_exchangeable(changes, units)
    if not any(granules):
        return [list(changes)]
    count = max(min(_MOST_PASSES, _MOST_CHANGES // max(len(changes), 1)), 1)
    draw = random.Random(1)
    passes = [list(changes)]
    for _ in range(1, count):
        masks = [draw.randrange(_REGION // one) * one if one else 0 for one in granules]
        passes.append([_move_change(one, masks) for one in changes])
    return passes


def _move_change(change: UnitChange, masks: Sequence[int]) -> UnitChange:
    mask = masks[change.first // _REGION]
    return change._replace(first=change.first ^ mask) if mask else change


def _find_exchangeable(changes: Sequence[UnitChange], units: int) -> list[int]:
    """Return for each region the units that are written together there, or 0 if its places are not alike."""
    regions = -(-units // _REGION)
    counts, sizes = [0] * (regions * _REGION), [_REGION] * regions
    for first, size, is_trim in changes:
        region = first // _REGION
        # A power of two that divides the place and the size.
        alignment = (first | size) & -(first | size)
        if is_trim or alignment < size or (first + size - 1) // _REGION != region:
            _exclude(sizes, first, size)
        else:
            sizes[region] = min(sizes[region], size)
        if not is_trim:
            for unit in range(first, min(first + size, units)):
                counts[unit] += 1
    for region in range(regions):
        part = counts[region * _REGION : (region + 1) * _REGION : sizes[region] or 1]
        if sizes[region] == _REGION or (region + 1) * _REGION > units or not _scatters_by_chance(part):
            sizes[region] = 0
    return sizes


def _exclude(sizes: list[int], first: int, size: int) -> None:
    for region in range(first // _REGION, min((first + size - 1) // _REGION + 1, len(sizes))):
        sizes[region] = 0


def _scatters_by_chance(counts: Iterable[int]) -> bool:
    numbers = list(counts)
    mean = sum(numbers) / len(numbers)
    if mean < _LEAST_MEAN:
        return False
    variance = sum((one - mean) ** 2 for one in numbers) / len(numbers)
    return _LEAST_SCATTER < variance / mean < _MOST_SCATTER
