"""Buckets of the exposed histograms, computed from the slots of a latency histogram.

Classic buckets are exact: each bound is the highest value of a slot. A native bucket gets the slots whose
middle is in it, so a value is at most half a slot (1.56 %) on the wrong side of a bound.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from functools import cache

from opwatch.metrics.family import DurationCounts
from opwatch.trace.abi import LATENCY
from opwatch.trace.hist import Histogram

# Two bounds per octave, from 6.1 us to 6.4 s.
_FIRST_OCTAVE, _LAST_OCTAVE = 12, 32
CLASSIC_SLOTS = tuple(
    LATENCY.find_slot(bound << octave >> 1) - 1
    for octave in range(_FIRST_OCTAVE, _LAST_OCTAVE + 1)
    for bound in (2, 3)
)[1:]
# The highest value in each bucket, in seconds.
CLASSIC_BOUNDS = tuple(LATENCY.high_edge(slot) / 1e9 for slot in CLASSIC_SLOTS)
# Native buckets grow by 2^(1/8).
NATIVE_SCHEMA = 3
_PER_OCTAVE = 1 << NATIVE_SCHEMA
# Slot 0 contains only durations of 0 ns. The threshold is the usual one of client libraries.
ZERO_THRESHOLD_S = 2.0**-128


def count_durations(histogram: Histogram, sum_ns: int) -> DurationCounts:
    """Return the histogram's counts, with the exact sum of the durations."""
    slots, running = histogram.rank_slots()
    # Arrays, because answers keep thousands of slots, and each number in a list takes 40 bytes.
    return DurationCounts(array("H", slots), array("Q", running), sum_ns / 1e9)


def count_without_buckets(count: int, sum_ns: int) -> DurationCounts:
    """Return the number and the sum of durations without a known distribution."""
    return DurationCounts((), (count,), sum_ns / 1e9, has_buckets=False)


def accumulate_classic(counts: DurationCounts) -> list[int]:
    """Return the number of durations up to each classic bound."""
    slots, running = counts.slots, (0, *counts.running)
    return [running[bisect_right(slots, bound)] for bound in CLASSIC_SLOTS]


@cache
def _list_native_indices() -> tuple[int, ...]:
    """Return the index of the native bucket of each slot except slot 0."""
    middles = (sum(LATENCY.find_edges(slot)) / 2e9 for slot in range(1, LATENCY.slots))
    return (0, *(math.ceil(math.log2(middle) * _PER_OCTAVE) for middle in middles))


def count_native(counts: DurationCounts) -> tuple[int, list[tuple[int, int]]]:
    """Return the number of durations of zero, and (index, count) of each native bucket in use."""
    indices = _list_native_indices()
    buckets: list[tuple[int, int]] = []
    zero = before = last = 0
    index = None
    for slot, now in zip(counts.slots, counts.running, strict=True):
        if not slot:
            zero = last = now
            continue
        own = indices[slot]
        if own != index:
            if index is not None:
                buckets.append((index, last - before))
            index, before = own, last
        last = now
    if index is not None:
        buckets.append((index, last - before))
    return zero, buckets
