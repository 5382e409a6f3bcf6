"""Samples of one disk as differences, each to the one before it; the first of a minute to nothing at all.

A difference is four streams of numbers (see varints): times and the kernel's statistics, plain counters,
which slots of the histograms have changed, and by how much. Counters that follow from the slots are written
as what is left after that. Disks that are read together share an anchor, which is written once for all of
them. All arithmetic is modulo 2^64: whatever the bytes are, the result is a sample.

What is computed here is part of the format: it may not change with the rest of the program.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from opwatch.clock import Anchor
from opwatch.errors import BadInput
from opwatch.recording.coding.varints import MODULUS, Varints, put, put_change
from opwatch.samples.sample import DiskSample, WatchedDisk
from opwatch.samples.written import counters_by_name
from opwatch.trace.abi import OPS, SCALARS, SLOTS, OpSample, TargetSample, decode_sample
from opwatch.trace.stat import StatSample
from opwatch.trace.trust import Reading

GROUPS = ("read", "write", "flush", "discard")
STREAMS = 4
_STRETCH = 64
_MS = 10**6
_MASK = MODULUS - 1
_HAS_BEFORE, _HAS_AFTER, _HAS_MISSES, _SHARES_ANCHOR = 1, 2, 4, 8
# Histograms of the format: bits of precision of times and of sizes, and the unit of a size.
_LATENCY_BITS, _SIZE_BITS, _SECTOR = 5, 3, 512

Streams = tuple[bytes, bytes, bytes, bytes]


@dataclass(frozen=True, slots=True)
class Layout:
    """The names of what a sample counts, in the order in which the file has them."""

    ops: tuple[str, ...] = OPS
    counters: tuple[str, ...] = SCALARS
    slots: tuple[int, ...] = SLOTS

    @property
    def width(self) -> int:
        """Words of one operation."""
        return len(self.counters) + sum(self.slots)

    @property
    def words(self) -> int:
        return 2 + len(self.ops) * self.width


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


def _expected(layout: Layout, changed: Sequence[Sequence[tuple[int, int]]]) -> dict[int, int]:
    """Place of a counter -> what it has grown by, if the slots that have changed tell all of it."""
    latency, queue, sizes = changed[:3]
    times, widths = _middles(_LATENCY_BITS, layout.slots[0]), _lows(_SIZE_BITS, layout.slots[2])
    ended, issued = (sum(by for _, by in slots) for slots in (latency, sizes))
    guesses = {
        "completed": ended,
        "ends": ended,
        "issued": issued,
        "bytes": _SECTOR * sum(by * widths[slot] for slot, by in sizes),
        "sum_ns": sum(by * times[slot] for slot, by in latency),
        "queued": sum(by for _, by in queue),
        "queue_sum_ns": sum(by * times[slot] for slot, by in queue),
    }
    return {layout.counters.index(name): by for name, by in guesses.items() if name in layout.counters}


@dataclass(slots=True)
class _Times:
    """What the times and statistics of the next sample are written as differences to."""

    number: int = 0
    end_ns: int = 0
    step_ns: int = 0
    span_ns: int = 0
    misses: int = 0
    counted: dict[str, tuple[int, int]] = field(default_factory=dict)
    stats: list[dict[tuple[str, str], int]] = field(default_factory=lambda: [{}, {}])


def _counted(sample: TargetSample) -> dict[str, tuple[int, int]]:
    """Requests and bytes that ended, of the operations that the kernel's groups are named after."""
    return {group: (sample.ops[group].ends, sample.ops[group].bytes) for group in GROUPS}


class FrameWriter:
    """One disk. A writer that has just been made, or reset, writes the next sample whole."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self._times = _Times()
        self._ops: dict[str, OpSample] = {}

    def streams(self, number: int, sample: DiskSample, reason: int, shared: Anchor | None = None) -> Streams:
        """The difference to the sample before. `number` is the entry's, `shared` its anchor; `reason` stands
        for the sentence why there is no witness, 0 for none."""
        times, counters, slots, counts = bytearray(), bytearray(), bytearray(), bytearray()
        now = sample.reading.sample
        changed = [at for at, op in enumerate(OPS) if self._has_changed(op, now.ops[op])]
        put(counters, sum(1 << at for at in changed))
        for at in changed:
            op = OPS[at]
            rows = _put_slots(slots, counts, self._ops.get(op), now.ops[op])
            _put_counters(counters, self._ops.get(op), now.ops[op], rows)
        _put_times(times, self._times, number, sample, reason, is_shared=sample.anchor == shared)
        self._ops = dict(now.ops)
        return bytes(times), bytes(counters), bytes(slots), bytes(counts)

    def _has_changed(self, name: str, now: OpSample) -> bool:
        then = self._ops.get(name)
        if then is None:
            return any(now[: len(SCALARS)]) or any(map(any, _slots(now)))
        return not _is_same(then, now)


def goes_back(then: DiskSample, now: DiskSample) -> bool:
    """Whether anything that only grows is less in the later sample."""
    before, after = then.reading.sample, now.reading.sample
    if after.end_ns < before.end_ns:
        return True
    for name, op in after.ops.items():
        earlier = before.ops[name]
        if _is_same(earlier, op):
            continue
        for counts, first in zip(_slots(op), _slots(earlier), strict=True):
            for at in range(0, len(counts), _STRETCH):
                some, others = counts[at : at + _STRETCH], first[at : at + _STRETCH]
                if some != others and any(one < other for one, other in zip(some, others, strict=True)):
                    return True
    return False


def _is_same(then: OpSample, now: OpSample) -> bool:
    """As ==, which makes a list of each histogram first."""
    return then[: len(SCALARS)] == now[: len(SCALARS)] and _slots(then) == _slots(now)


def _plain(op: OpSample) -> list[int]:
    """The plain counters."""
    values: list[Any] = list(op[: len(SCALARS)])
    return values


def _slots(op: OpSample) -> tuple[Sequence[int], ...]:
    return op.latency.counts, op.queue.counts, op.sizes.counts, op.statuses


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
    """Which slots have changed, and by how much; returned as well."""
    earlier: Sequence[Sequence[int] | None] = (None,) * len(SLOTS) if then is None else _slots(then)
    rows = [_changes(first, second) for first, second in zip(earlier, _slots(now), strict=True)]
    put(slots, sum(1 << at for at, row in enumerate(rows) if row))
    for row in rows:
        if not row:
            continue
        put(slots, len(row))
        before = -1
        for slot, by in row:
            put(slots, slot - before - 1)
            put(counts, by)
            before = slot
    return rows


def _put_counters(
    counters: bytearray, then: OpSample | None, now: OpSample, rows: Sequence[Sequence[tuple[int, int]]]
) -> None:
    """What the slots do not tell of the plain counters."""
    expected = _expected(Layout(), rows)
    before = [0] * len(SCALARS) if then is None else _plain(then)
    left = [
        (value - first - expected.get(at, 0)) & _MASK
        for at, (value, first) in enumerate(zip(_plain(now), before, strict=True))
    ]
    put(counters, sum(1 << at for at, by in enumerate(left) if by))
    for by in left:
        if by:
            put_change(counters, by)


def _put_times(
    times: bytearray, state: _Times, number: int, sample: DiskSample, reason: int, *, is_shared: bool
) -> None:
    reading, anchor = sample.reading, sample.anchor
    now, stats = reading.sample, (reading.before, reading.after)
    put(times, (number - state.number) & _MASK)
    put_change(times, now.end_ns - state.end_ns - _rounded(state.step_ns))
    put_change(times, now.end_ns - now.begin_ns - state.span_ns)
    flags = (_HAS_BEFORE if reading.before else 0) | (_HAS_AFTER if reading.after else 0)
    flags |= _HAS_MISSES if sample.misses is not None else 0
    put(times, flags | (_SHARES_ANCHOR if is_shared else 0))
    put(times, reason)
    if sample.misses is not None:
        put_change(times, sample.misses - state.misses)
        state.misses = sample.misses
    if not is_shared:
        for value in (anchor.mono_ns, anchor.wall_ns, anchor.slack_ns):
            put(times, value)
    counted = _counted(now)
    for place, (stat, from_ns) in enumerate(zip(stats, (now.begin_ns, now.end_ns), strict=True)):
        if stat:
            _put_stat(times, stat, from_ns, state, state.stats[place], counted)
    state.step_ns, state.end_ns = now.end_ns - state.end_ns if state.end_ns else 0, now.end_ns
    state.number, state.span_ns = number, now.end_ns - now.begin_ns
    state.counted = counted


def _rounded(step_ns: int) -> int:
    """Readings come at equal intervals of whole milliseconds, or nearly."""
    return (step_ns + _MS // 2) // _MS * _MS


def _put_stat(
    times: bytearray,
    stat: StatSample,
    from_ns: int,
    state: _Times,
    before: dict[tuple[str, str], int],
    counted: Mapping[str, tuple[int, int]],
) -> None:
    put_change(times, stat.begin_ns - from_ns)
    put_change(times, stat.end_ns - stat.begin_ns)
    put(times, stat.in_flight)
    for unit, (kind, values) in enumerate((("requests", stat.requests), ("bytes", stat.bytes))):
        if not values.keys() <= set(GROUPS):
            raise ValueError(f"a group of statistics that has no place in a recording: {sorted(values)}")
        put(times, sum(1 << at for at, group in enumerate(GROUPS) if group in values))
        for group in GROUPS:
            if group in values:
                grown = counted[group][unit] - state.counted.get(group, (0, 0))[unit]
                put_change(times, values[group] - before.get((kind, group), 0) - grown)
                before[kind, group] = values[group]


@dataclass(frozen=True, slots=True)
class Known:
    """What samples refer to: the anchors of a stretch by entry, and why a witness was missing."""

    anchors: Mapping[int, Anchor] = field(default_factory=dict)
    reasons: Mapping[int, str] = field(default_factory=dict)


class FrameReader:
    """Reads what a FrameWriter wrote, from a sample that was written whole on."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._words = memoryview(bytearray(8 * layout.words)).cast("Q")
        self._state = _Times()

    def sample(
        self, streams: Sequence[Varints], disk: WatchedDisk, known: Known, where: str
    ) -> tuple[int, DiskSample]:
        """The next sample, and the number of its entry."""
        times, counters, slots, counts = streams
        words = memoryview(bytearray(self._words)).cast("Q")
        changed = counters.up_to((1 << len(self._layout.ops)) - 1, "the mask of operations")
        for at in range(len(self._layout.ops)):
            if changed >> at & 1:
                begin = 2 + at * self._layout.width
                self._apply(words[begin : begin + self._layout.width], counters, slots, counts)
        self._words = words
        return self._with_times(times, words, disk, known, where)

    def _apply(self, words: memoryview, counters: Varints, slots: Varints, counts: Varints) -> None:
        """Bring the words of one operation up to date."""
        layout = self._layout
        changed = slots.up_to((1 << len(layout.slots)) - 1, "the mask of histograms")
        rows: list[list[tuple[int, int]]] = []
        begin = len(layout.counters)
        for at, width in enumerate(layout.slots):
            rows.append([])
            slot = -1
            for _ in range(slots.up_to(width, "the number of slots") if changed >> at & 1 else 0):
                slot += slots.up_to(width - slot - 2, "the gap to the next slot") + 1
                by = counts.number()
                words[begin + slot] = (words[begin + slot] + by) & _MASK
                rows[-1].append((slot, by))
            begin += width
        expected = _expected(layout, rows)
        left = counters.up_to((1 << len(layout.counters)) - 1, "the mask of counters")
        for place in range(len(layout.counters)):
            by = expected.get(place, 0) + (counters.change() if left >> place & 1 else 0)
            if by:
                words[place] = (words[place] + by) & _MASK

    def _with_times(
        self, times: Varints, words: memoryview, disk: WatchedDisk, known: Known, where: str
    ) -> tuple[int, DiskSample]:
        state = self._state
        state.number = (state.number + times.number()) & _MASK
        end_ns = (state.end_ns + times.change() + _rounded(state.step_ns)) & _MASK
        state.step_ns, state.end_ns = end_ns - state.end_ns if state.end_ns else 0, end_ns
        state.span_ns = (state.span_ns + times.change()) & _MASK
        words[0], words[1] = (end_ns - state.span_ns) & _MASK, end_ns
        flags, reason = times.up_to(15, "the flags"), times.number()
        misses = None
        if flags & _HAS_MISSES:
            misses = state.misses = (state.misses + times.change()) & _MASK
        shared = known.anchors.get(state.number)
        if not flags & _SHARES_ANCHOR:
            shared = Anchor(times.number(), times.number(), times.number())
        if shared is None:
            raise BadInput(f"{where}: there is no anchor of entry {state.number}")
        if reason and reason not in known.reasons:
            raise BadInput(f"{where}: there is no sentence {reason}")
        sample = self._decoded(words, where)
        counted = _counted(sample)
        stats: list[StatSample | None] = [None, None]
        for at, (flag, from_ns) in enumerate(((_HAS_BEFORE, sample.begin_ns), (_HAS_AFTER, end_ns))):
            if flags & flag:
                stats[at] = _stat(times, from_ns, state, state.stats[at], counted)
        state.counted = counted
        reading = Reading(sample, stats[0], stats[1], known.reasons[reason] if reason else None)
        return state.number, DiskSample(disk, reading, misses, shared)

    def _decoded(self, words: memoryview, where: str) -> TargetSample:
        layout = self._layout
        if layout == Layout():
            return decode_sample(bytes(words))
        return counters_by_name(layout.ops, layout.counters, bytes(words), where)


def _stat(
    times: Varints,
    from_ns: int,
    state: _Times,
    before: dict[tuple[str, str], int],
    counted: Mapping[str, tuple[int, int]],
) -> StatSample:
    begin_ns = (from_ns + times.change()) & _MASK
    end_ns = (begin_ns + times.change()) & _MASK
    in_flight = times.number()
    units: list[dict[str, int]] = []
    for unit, kind in enumerate(("requests", "bytes")):
        mask = times.up_to((1 << len(GROUPS)) - 1, "the mask of groups")
        values: dict[str, int] = {}
        for at, group in enumerate(GROUPS):
            if mask >> at & 1:
                grown = counted[group][unit] - state.counted.get(group, (0, 0))[unit]
                value = (before.get((kind, group), 0) + grown + times.change()) & _MASK
                values[group] = before[kind, group] = value
        units.append(values)
    return StatSample(begin_ns, end_ns, units[0], units[1], in_flight)
