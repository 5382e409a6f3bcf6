"""How one operation has changed between two samples: its plain counters, which slots, and by how much.

Three streams of numbers (see varints). Counters that follow from the slots are written as what is left after
that. Where the extension is there, it writes the same: this is done for each disk and second.

What is computed here is part of the format: it may not change with the rest of the program.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from opwatch.recording.coding.layout import Layout
from opwatch.recording.coding.varints import MODULUS, put, put_change
from opwatch.trace.abi import SCALARS, SLOTS, OpSample

# Counters, slots, counts.
Written = tuple[bytes, bytes, bytes]
_Plain = tuple[Any, ...]
_Slots = tuple[Sequence[int], ...]
_of_views: Callable[[_Plain | None, Any, _Plain, Any], Written] | None = None
with contextlib.suppress(ImportError):
    # Where the extension is not built, recordings are written all the same.
    from opwatch._native import operation_change as _of_views

_STRETCH = 64
_MASK = MODULUS - 1
# What a varint begins to take two bytes at.
_ONE_BYTE = 0x80
# Histograms of the format: bits of precision of times and of sizes, and the unit of a size.
_LATENCY_BITS, _SIZE_BITS, _SECTOR = 5, 3, 512


def slots_of(op: OpSample) -> _Slots:
    """The counts of its histograms."""
    return op.latency.counts, op.queue.counts, op.sizes.counts, op.statuses


def written(then: OpSample | None, now: OpSample) -> Written:
    """The difference of two samples; of one sample to nothing where there is none before it."""
    if _of_views:
        counters, slots = (None, None) if then is None else (_plain(then), slots_of(then))
        # No views of words, but lists: those of samples that were made up or added up.
        with contextlib.suppress(TypeError):
            return _of_views(counters, slots, _plain(now), slots_of(now))
    return plainly_written(then, now)


def plainly_written(then: OpSample | None, now: OpSample) -> Written:
    """The same without the extension, of counters in any form."""
    counters, slots, counts = bytearray(), bytearray(), bytearray()
    rows = _put_slots(slots, counts, then, now)
    _put_counters(counters, then, now, rows)
    return bytes(counters), bytes(slots), bytes(counts)


def _plain(op: OpSample) -> _Plain:
    """The plain counters."""
    return op[: len(SCALARS)]


@cache
def _middles(bits: int, slots: int) -> list[int]:
    """What a value in each slot is about."""
    middles = []
    for slot in range(slots):
        octave = max((slot >> bits) - 1, 0)
        low = slot if slot < 1 << bits else ((1 << bits) + (slot & ((1 << bits) - 1))) << octave
        middles.append(low + ((1 << octave) - 1 >> 1))
    return middles


@cache
def _lows(bits: int, slots: int) -> list[int]:
    lows = []
    for slot in range(slots):
        octave = max((slot >> bits) - 1, 0)
        lows.append(slot if slot < 1 << bits else ((1 << bits) + (slot & ((1 << bits) - 1))) << octave)
    return lows


def expected(layout: Layout, changed: Sequence[Sequence[tuple[int, int]]]) -> dict[int, int]:
    """Place of a counter -> what it has grown by, if the slots that have changed tell all of it."""
    latency, queue, sizes = changed[:3]
    times, widths = _middles(_LATENCY_BITS, layout.slots[0]), _lows(_SIZE_BITS, layout.slots[2])
    ended, ended_ns = _totals(latency, times)
    issued, sectors = _totals(sizes, widths)
    queued, queued_ns = _totals(queue, times)
    guesses = {
        "completed": ended,
        "ends": ended,
        "issued": issued,
        "bytes": _SECTOR * sectors,
        "sum_ns": ended_ns,
        "queued": queued,
        "queue_sum_ns": queued_ns,
    }
    return {place: guesses[name] for place, name in _guessed(layout)}


def grown_alike(layout: Layout) -> tuple[int, int] | None:
    """Places of the integral of requests in flight and of the latencies, which mostly grow alike: they
    differ by the age of requests in flight. None where there is no such integral."""
    names = ("in_flight_ns", "sum_ns")
    if not set(names) <= set(layout.counters):
        return None
    return layout.counters.index(names[0]), layout.counters.index(names[1])


@cache
def _guessed(layout: Layout) -> tuple[tuple[int, str], ...]:
    """The counters that follow from slots, each with its place."""
    names = ("completed", "issued", "ends", "bytes", "sum_ns", "queued", "queue_sum_ns")
    return tuple((layout.counters.index(name), name) for name in names if name in layout.counters)


def _totals(slots: Sequence[tuple[int, int]], values: Sequence[int]) -> tuple[int, int]:
    """(how many there are, the sum of what each is about)."""
    count = amount = 0
    for slot, by in slots:
        count += by
        amount += by * values[slot]
    return count, amount


def _changes(then: Sequence[int] | None, now: Sequence[int]) -> list[tuple[int, int]]:
    """(slot, by how much) of what has changed. Most stretches have not."""
    if then is None:
        return [(slot, count) for slot, count in enumerate(now) if count]
    changes = []
    for begin in range(0, len(now), _STRETCH):
        some, others = now[begin : begin + _STRETCH], then[begin : begin + _STRETCH]
        if some != others:
            changes += [
                (begin + at, (one - other) & _MASK)
                for at, (one, other) in enumerate(zip(some, others, strict=True))
                if one != other
            ]
    return changes


def _put_slots(
    slots: bytearray, counts: bytearray, then: OpSample | None, now: OpSample
) -> list[list[tuple[int, int]]]:
    """Write which slots have changed, and by how much. That is returned as well."""
    earlier: Sequence[Sequence[int] | None] = (None,) * len(SLOTS) if then is None else slots_of(then)
    rows = [_changes(first, second) for first, second in zip(earlier, slots_of(now), strict=True)]
    put(slots, sum(1 << at for at, row in enumerate(rows) if row))
    for row in rows:
        if not row:
            continue
        put(slots, len(row))
        after = 0
        # Nearly all of them take one byte, and there are dozens a sample.
        for slot, by in row:
            gap = slot - after
            slots.append(gap) if gap < _ONE_BYTE else put(slots, gap)
            counts.append(by) if by < _ONE_BYTE else put(counts, by)
            after = slot + 1
    return rows


def _put_counters(
    counters: bytearray, then: OpSample | None, now: OpSample, rows: Sequence[Sequence[tuple[int, int]]]
) -> None:
    """Write what the slots do not tell of the plain counters."""
    by_slots = expected(Layout(), rows)
    before = [0] * len(SCALARS) if then is None else _plain(then)
    left = [(value - first) & _MASK for value, first in zip(_plain(now), before, strict=True)]
    if alike := grown_alike(Layout()):
        integral, latencies = alike
        left[integral] -= left[latencies]
    left = [(by - by_slots.get(at, 0)) & _MASK for at, by in enumerate(left)]
    put(counters, sum(1 << at for at, by in enumerate(left) if by))
    for by in left:
        if by:
            put_change(counters, by)
