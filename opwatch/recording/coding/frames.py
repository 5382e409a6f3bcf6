"""Encode a disk's samples as differences to the previous sample; the first of a minute in full.

A difference consists of five streams of numbers (see varints): clocks, facts with the kernel's statistics,
and three for the operations. Disks read together share an anchor, which is written once. All arithmetic is
modulo 2^64, so any input decodes to a sample.

The computations here are part of the format, and must not change with the rest of the program.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from opwatch.clock import Anchor
from opwatch.cpu import CpuTimes
from opwatch.errors import BadInput
from opwatch.recording.coding.layout import Layout
from opwatch.recording.coding.operations import (
    encode_change,
    find_correlated,
    list_slot_counts,
    predict_growth,
)
from opwatch.recording.coding.times import (
    GROUPS,
    HAS_CPU,
    ChangeReader,
    Clocks,
    PreviousTimes,
    SampleFacts,
    put_clocks,
    put_facts,
    read_times,
)
from opwatch.recording.coding.varints import MODULUS, Varints, put_number
from opwatch.samples.sample import DiskSample, WatchedDisk
from opwatch.trace.abi import OPS, SCALARS, OpSample
from opwatch.trace.hist import find_growth
from opwatch.trace.stat import StatSample
from opwatch.trace.trust import Reading

_BLOCK_SLOTS = 64
_MASK = MODULUS - 1
_NS_PER_MS = 10**6

# Clocks, facts, counters, slots, counts.
Streams = tuple[bytes, ...]


class FrameWriter:
    """Encodes the samples of one disk. The first sample of a new or reset writer is encoded in full."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self._times = PreviousTimes()
        self._ops: dict[str, OpSample] = {}

    def encode_sample(
        self,
        number: int,
        sample: DiskSample,
        reason: int,
        shared: Anchor | None = None,
        cpu: CpuTimes | None = None,
    ) -> Streams:
        """Encode a sample as the difference to the previous one.

        `number`, `shared` and `cpu` are the entry's number, anchor and CPU times. `reason` is the number of
        the sentence on why the witness is missing, or 0.
        """
        clocks, facts, counters, slots, counts = (bytearray() for _ in range(5))
        now = sample.reading.sample
        changed = [at for at, op in enumerate(OPS) if self._has_changed(op, now.ops[op])]
        put_number(counters, sum(1 << at for at in changed))
        for at in changed:
            op = OPS[at]
            of_counters, of_slots, of_counts = encode_change(self._ops.get(op), now.ops[op])
            counters += of_counters
            slots += of_slots
            counts += of_counts
        put_clocks(clocks, self._times, sample)
        is_shared, has_cpu = sample.anchor == shared, sample.cpu != cpu
        put_facts(facts, self._times, number, sample, reason, is_shared=is_shared, has_cpu=has_cpu)
        self._ops = dict(now.ops)
        return bytes(clocks), bytes(facts), bytes(counters), bytes(slots), bytes(counts)

    def _has_changed(self, name: str, now: OpSample) -> bool:
        then = self._ops.get(name)
        if then is now:
            return False
        if then is None:
            return any(now[: len(SCALARS)]) or any(map(any, list_slot_counts(now)))
        return not _is_same(then, now)


def has_decreased(then: DiskSample, now: DiskSample) -> bool:
    """Return true if a counter that only grows is lower in the later sample."""
    before, after = then.reading.sample, now.reading.sample
    if after.end_ns < before.end_ns:
        return True
    for name, op in after.ops.items():
        earlier = before.ops[name]
        if _is_same(earlier, op):
            continue
        for counts, first in zip(list_slot_counts(op), list_slot_counts(earlier), strict=True):
            if find_growth(counts, first) is not None:
                continue
            for at in range(0, len(counts), _BLOCK_SLOTS):
                some, others = counts[at : at + _BLOCK_SLOTS], first[at : at + _BLOCK_SLOTS]
                if some != others and any(one < other for one, other in zip(some, others, strict=True)):
                    return True
    return False


def _is_same(then: OpSample, now: OpSample) -> bool:
    """Compare two samples of an operation without converting each histogram to a list, as == does."""
    return then[: len(SCALARS)] == now[: len(SCALARS)] and list_slot_counts(then) == list_slot_counts(now)


@dataclass(frozen=True, slots=True)
class References:
    """Values that samples refer to: anchors and CPU times by entry, and reasons for a missing witness."""

    anchors: Mapping[int, Anchor] = field(default_factory=dict)
    reasons: Mapping[int, str] = field(default_factory=dict)
    cpus: Mapping[int, CpuTimes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FrameStreams:
    """The streams of a disk while reading."""

    clocks: ChangeReader
    facts: Varints
    counters: Varints
    slots: Varints
    counts: Varints

    @property
    def is_exhausted(self) -> bool:
        streams = (self.clocks, self.facts, self.counters, self.slots, self.counts)
        return all(stream.is_at_end for stream in streams)


class FrameReader:
    """Reads the output of FrameWriter, starting with a complete sample.

    advance() moves to the next sample; sample() returns the current one.
    """

    def __init__(self, layout: Layout, streams: FrameStreams, disk: WatchedDisk) -> None:
        self._layout, self._streams, self._disk = layout, streams, disk
        self._words = memoryview(bytearray(8 * layout.count_words)).cast("Q")
        self._state = PreviousTimes()
        self._places = [_find_group_counters(layout, group) for group in GROUPS]
        self._alike = find_correlated(layout)
        self._times: tuple[SampleFacts, Clocks, list[StatSample | None]] | None = None

    @property
    def is_at_end(self) -> bool:
        return self._streams.is_exhausted

    def advance(self) -> tuple[int, int]:
        """Move to the next sample; return the entry's number and the sample's time."""
        layout, streams, words = self._layout, self._streams, self._words
        changed = streams.counters.number_up_to((1 << len(layout.ops)) - 1, "the mask of operations")
        for at in range(len(layout.ops)):
            if changed >> at & 1:
                begin = 2 + at * layout.words_per_op
                self._apply_changes(
                    words[begin : begin + layout.words_per_op],
                    streams.counters,
                    streams.slots,
                    streams.counts,
                )
        counted = {
            group: (
                _word_or_zero(words, ends),
                _word_or_zero(words, bytes_),
                _word_or_zero(words, sum_ns) // _NS_PER_MS,
            )
            for group, (ends, bytes_, sum_ns) in zip(GROUPS, self._places, strict=True)
        }
        self._times = read_times(streams.clocks, streams.facts, self._state, counted)
        self._state.counted = counted
        return self._times[0].number, self._times[1].end_ns

    def read_sample(self, known: References, where: str) -> DiskSample:
        """Return the current sample."""
        if self._times is None:
            raise ValueError("no sample before the first advance()")
        facts, when, (before, after) = self._times
        anchor = facts.anchor or known.anchors.get(facts.number)
        if anchor is None:
            raise BadInput(f"{where}: entry {facts.number} has no anchor")
        if facts.reason and facts.reason not in known.reasons:
            raise BadInput(f"{where}: reason {facts.reason} is missing")
        self._words[0], self._words[1] = when.begin_ns, when.end_ns
        why = known.reasons[facts.reason] if facts.reason else None
        counted = self._layout.decode_words(bytes(self._words))
        cpu = facts.cpu if facts.flags & HAS_CPU else known.cpus.get(facts.number)
        return DiskSample(self._disk, Reading(counted, before, after, why), facts.misses, anchor, cpu)

    def _apply_changes(self, words: memoryview, counters: Varints, slots: Varints, counts: Varints) -> None:
        """Add the changes to the words of one operation."""
        layout = self._layout
        changed = slots.number_up_to((1 << len(layout.slots)) - 1, "the mask of histograms")
        rows: list[list[tuple[int, int]]] = []
        begin = len(layout.counters)
        for at, width in enumerate(layout.slots):
            rows.append([])
            slot = -1
            used = slots.number_up_to(width, "the number of slots") if changed >> at & 1 else 0
            for gap, by in zip(slots.read_numbers(used), counts.read_numbers(used), strict=True):
                slot += gap + 1
                if slot >= width:
                    raise BadInput(f"the gap to the next slot is {gap}, beyond the last of {width} slots")
                words[begin + slot] = (words[begin + slot] + by) & _MASK
                rows[-1].append((slot, by))
            begin += width
        counted = predict_growth(layout, rows)
        left = counters.number_up_to((1 << len(layout.counters)) - 1, "the mask of counters")
        grown = [0] * len(layout.counters)
        for place, by in counted.items():
            grown[place] = by
        while left:
            place = (left & -left).bit_length() - 1
            grown[place] += counters.read_change()
            left &= left - 1
        if self._alike:
            integral, latencies = self._alike
            grown[integral] += grown[latencies]
        for place, by in enumerate(grown):
            if by:
                words[place] = (words[place] + by) & _MASK


def _find_group_counters(layout: Layout, group: str) -> tuple[int | None, int | None, int | None]:
    """Return the indices of a group's completed requests, bytes and latency sum, or None if missing."""
    if group not in layout.ops:
        return None, None, None
    begin = 2 + layout.ops.index(group) * layout.words_per_op
    ends, bytes_, sum_ns = (
        begin + layout.counters.index(name) if name in layout.counters else None
        for name in ("ends", "bytes", "sum_ns")
    )
    return ends, bytes_, sum_ns


def _word_or_zero(words: memoryview, place: int | None) -> int:
    return 0 if place is None else words[place]
