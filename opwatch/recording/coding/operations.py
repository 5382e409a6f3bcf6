"""Encode the change of an operation between two samples: plain counters, changed slots, and their growth.

The result is three streams of numbers (see varints). Counters predictable from the slots are written as
differences to the prediction. The extension, if built, writes identical streams faster, which matters because
each disk is encoded every second.

The computations here are part of the format, and must not change with the rest of the program.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from opwatch.recording.coding.layout import Layout
from opwatch.recording.coding.varints import MODULUS, put_change, put_number
from opwatch.trace.abi import SCALARS, SLOTS, OpSample

# Counters, slots, counts.
Written = tuple[bytes, bytes, bytes]
_Plain = tuple[Any, ...]
_Slots = tuple[Sequence[int], ...]
_of_views: Callable[[_Plain | None, Any, _Plain, Any], Written] | None = None
with contextlib.suppress(ImportError):
    # Recording works without the extension, too.
    from opwatch._native import encode_change as _of_views

_BLOCK_SLOTS = 64
_MASK = MODULUS - 1
# The smallest number that takes two bytes.
_TWO_BYTE_MIN = 0x80
# Histograms of the format: precision in bits of times and of sizes, and the unit of sizes.
_LATENCY_BITS, _SIZE_BITS, _SECTOR = 5, 3, 512


def list_slot_counts(op: OpSample) -> _Slots:
    """Return the counts of the operation's histograms."""
    return op.latency.slot_counts, op.queue.slot_counts, op.sizes.slot_counts, op.statuses


def encode_change(then: OpSample | None, now: OpSample) -> Written:
    """Encode the difference between two samples, or the whole sample if there is no earlier one."""
    if _of_views:
        counters, slots = (None, None) if then is None else (_list_counters(then), list_slot_counts(then))
        # Counts in lists, as in computed samples, are not accepted by the extension.
        with contextlib.suppress(TypeError):
            return _of_views(counters, slots, _list_counters(now), list_slot_counts(now))
    return encode_change_python(then, now)


def encode_change_python(then: OpSample | None, now: OpSample) -> Written:
    """Encode the same without the extension, for counts of any type."""
    counters, slots, counts = bytearray(), bytearray(), bytearray()
    rows = _put_slots(slots, counts, then, now)
    _put_counters(counters, then, now, rows)
    return bytes(counters), bytes(slots), bytes(counts)


def _list_counters(op: OpSample) -> _Plain:
    """Return the plain counters."""
    return op[: len(SCALARS)]


@cache
def _slot_middles(bits: int, slots: int) -> list[int]:
    """Return the middle value of each slot."""
    middles = []
    for slot in range(slots):
        octave = max((slot >> bits) - 1, 0)
        low = slot if slot < 1 << bits else ((1 << bits) + (slot & ((1 << bits) - 1))) << octave
        middles.append(low + ((1 << octave) - 1 >> 1))
    return middles


@cache
def _slot_lows(bits: int, slots: int) -> list[int]:
    lows = []
    for slot in range(slots):
        octave = max((slot >> bits) - 1, 0)
        lows.append(slot if slot < 1 << bits else ((1 << bits) + (slot & ((1 << bits) - 1))) << octave)
    return lows


def predict_growth(layout: Layout, changed: Sequence[Sequence[tuple[int, int]]]) -> dict[int, int]:
    """Predict the growth of counters from the slots that changed, by the counter's index."""
    latency, queue, sizes = changed[:3]
    times, widths = _slot_middles(_LATENCY_BITS, layout.slots[0]), _slot_lows(_SIZE_BITS, layout.slots[2])
    ended, ended_ns = _estimate_totals(latency, times)
    issued, sectors = _estimate_totals(sizes, widths)
    queued, queued_ns = _estimate_totals(queue, times)
    guesses = {
        "completed": ended,
        "ends": ended,
        "issued": issued,
        "bytes": _SECTOR * sectors,
        "sum_ns": ended_ns,
        "queued": queued,
        "queue_sum_ns": queued_ns,
    }
    return {place: guesses[name] for place, name in _list_predictable(layout)}


def find_correlated(layout: Layout) -> tuple[int, int] | None:
    """Return the indices of the in-flight integral and of the latency sum, or None without the integral.

    Both mostly grow alike, and differ by the age of requests in flight.
    """
    names = ("in_flight_ns", "sum_ns")
    if not set(names) <= set(layout.counters):
        return None
    return layout.counters.index(names[0]), layout.counters.index(names[1])


@cache
def _list_predictable(layout: Layout) -> tuple[tuple[int, str], ...]:
    """Return the index and name of each counter that can be predicted from slots."""
    names = ("completed", "issued", "ends", "bytes", "sum_ns", "queued", "queue_sum_ns")
    return tuple((layout.counters.index(name), name) for name in names if name in layout.counters)


def _estimate_totals(slots: Sequence[tuple[int, int]], values: Sequence[int]) -> tuple[int, int]:
    """Return (number of values, estimated sum of the values)."""
    count = amount = 0
    for slot, by in slots:
        count += by
        amount += by * values[slot]
    return count, amount


def _find_changes(then: Sequence[int] | None, now: Sequence[int]) -> list[tuple[int, int]]:
    """Return (slot, growth) of the slots that changed. Most blocks of slots are equal."""
    if then is None:
        return [(slot, count) for slot, count in enumerate(now) if count]
    changes = []
    for begin in range(0, len(now), _BLOCK_SLOTS):
        some, others = now[begin : begin + _BLOCK_SLOTS], then[begin : begin + _BLOCK_SLOTS]
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
    """Append the changed slots and their growth; also return them."""
    earlier: Sequence[Sequence[int] | None] = (None,) * len(SLOTS) if then is None else list_slot_counts(then)
    rows = [
        _find_changes(first, second) for first, second in zip(earlier, list_slot_counts(now), strict=True)
    ]
    put_number(slots, sum(1 << at for at, row in enumerate(rows) if row))
    for row in rows:
        if not row:
            continue
        put_number(slots, len(row))
        after = 0
        # Fast path for one-byte numbers, because a sample has dozens.
        for slot, by in row:
            gap = slot - after
            slots.append(gap) if gap < _TWO_BYTE_MIN else put_number(slots, gap)
            counts.append(by) if by < _TWO_BYTE_MIN else put_number(counts, by)
            after = slot + 1
    return rows


def _put_counters(
    counters: bytearray, then: OpSample | None, now: OpSample, rows: Sequence[Sequence[tuple[int, int]]]
) -> None:
    """Append the growth of plain counters beyond the prediction from the slots."""
    by_slots = predict_growth(Layout(), rows)
    before = [0] * len(SCALARS) if then is None else _list_counters(then)
    left = [(value - first) & _MASK for value, first in zip(_list_counters(now), before, strict=True)]
    if alike := find_correlated(Layout()):
        integral, latencies = alike
        left[integral] -= left[latencies]
    left = [(by - by_slots.get(at, 0)) & _MASK for at, by in enumerate(left)]
    put_number(counters, sum(1 << at for at, by in enumerate(left) if by))
    for by in left:
        if by:
            put_change(counters, by)
