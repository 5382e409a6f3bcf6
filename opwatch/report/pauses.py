"""Find runs of intervals without completions in an otherwise regular load. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, takewhile
from statistics import median

# Probability of mistaking a usual gap of the load for a pause: once in 10,000 timelines.
_CHANCE = 1e-4
# An interval below this share of the median counts as empty.
QUIET = 0.01
_MIN_INTERVALS = 3
_MAX_PAUSES = 4


def flag_quiet(values: Sequence[float]) -> list[bool]:
    """Return for each interval whether almost nothing completed."""
    usual = median([value for value in values if value > 0] or [0.0])
    return [value < QUIET * usual for value in values]


def find_pauses(values: Sequence[float], fewest_active: int) -> list[tuple[int, int]]:
    """Return the (begin, end) of each pause: a run of quiet intervals too long to be a usual gap of the load.

    Empty if too few intervals have requests, or if pauses are so frequent that they belong to the load.
    """
    runs = list[tuple[int, int]]()
    at = 0
    for is_quiet, group in groupby(flag_quiet(values)):
        length = len(list(group))
        if is_quiet:
            runs.append((at, at + length))
        at += length
    active = len(values) - sum(end - begin for begin, end in runs)
    if active < fewest_active:
        return []
    runs.sort(key=lambda run: run[0] - run[1])
    lengths = [end - begin for begin, end in runs]
    pauses = list(takewhile(lambda run: _is_pause(run[1] - run[0], lengths, active), runs))
    return sorted(pauses) if len(pauses) <= _MAX_PAUSES else []


def _is_pause(length: int, lengths: Sequence[int], active: int) -> bool:
    """Return whether neither chance nor the shorter gaps of the load explain a gap of this length."""
    gaps = [other for other in lengths if 2 * other < length]
    empty = sum(gaps)
    count = active + empty
    by_chance = count * ((empty + 1) / (count + 1)) ** length
    # Clustered gaps: each further interval is empty with the probability found in the shorter gaps.
    by_gaps = len(gaps) * (1 - len(gaps) / empty) ** (length - 1) if gaps else 0.0
    return length >= _MIN_INTERVALS and max(by_chance, by_gaps) < _CHANCE
