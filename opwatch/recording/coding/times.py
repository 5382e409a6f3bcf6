"""Encode a sample's clocks and kernel statistics as differences to predicted values.

Clocks are noise and have their own stream; values that are nearly always 0 are stored with the facts. Each
sample has CLOCKS changes, including those of missing statistics, because the stream is finally split into
columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Protocol

from opwatch.clock import Anchor
from opwatch.cpu import CpuTimes
from opwatch.recording.coding.ticks import TICKS, put_ticks, read_ticks
from opwatch.recording.coding.varints import MODULUS, Varints, put_change, put_number
from opwatch.samples.sample import DiskSample
from opwatch.trace.abi import TargetSample
from opwatch.trace.stat import StatSample

GROUPS = ("read", "write", "flush", "discard")
_GROUPS = frozenset(GROUPS)
# Keys of the groups in the previous statistics.
_REQUESTS, _BYTES = ({group: (kind, group) for group in GROUPS} for kind in ("requests", "bytes"))
_NOTHING = (0, 0, 0)
# End and length of the reading; for each of the two statistics start, length and requests in flight.
CLOCKS = 8
_MASK = MODULUS - 1
HAS_BEFORE, HAS_AFTER, HAS_MISSES, SHARES_ANCHOR, HAS_TICKS, HAS_CPU = 1, 2, 4, 8, 16, 32
_FLAGS = 63
_OF_STAT = 3
_CPU_TIME_KINDS = 4
# Of one group: completed requests and bytes, and the requests' time in the device in whole ms.
Counted = tuple[int, int, int]
_NS_PER_MS = 10**6


class ChangeReader(Protocol):
    """An iterator over changes."""

    @property
    def is_at_end(self) -> bool: ...
    def read_change(self) -> int: ...


@dataclass(slots=True)
class PreviousTimes:
    """Values of the previous sample, from which the next sample's times and statistics are predicted."""

    number: int = 0
    end_ns: int = 0
    step_ns: int = 0
    misses: int = 0
    counted: Mapping[str, Counted] = field(default_factory=dict)
    stats: list[dict[tuple[str, str], int]] = field(default_factory=lambda: [{}, {}])
    ticks: list[int] = field(default_factory=lambda: [0] * TICKS)

    def set_end(self, end_ns: int) -> None:
        """Store the end of a reading, and the time since the previous one."""
        self.step_ns = end_ns - self.end_ns if self.end_ns else 0
        self.end_ns = end_ns


@dataclass(frozen=True, slots=True)
class Clocks:
    """The time of a reading. `stats`: (start, length, requests in flight) of both kernel statistics."""

    begin_ns: int
    end_ns: int
    stats: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class SampleFacts:
    """A sample's values other than counters.

    `anchor` is None if the sample has the entry's anchor. `cpu` is None if the sample has the entry's CPU
    times, or has separate but unknown ones according to the flags.
    """

    number: int
    flags: int
    reason: int
    misses: int | None
    anchor: Anchor | None
    cpu: CpuTimes | None = None


def count_groups(sample: TargetSample) -> dict[str, Counted]:
    """Return the counters that correspond to the groups of the kernel's statistics."""
    ops = {group: sample.ops[group] for group in GROUPS}
    return {group: (op.ends, op.bytes, op.sum_ns // _NS_PER_MS) for group, op in ops.items()}


def _device_time_growth(state: PreviousTimes, counted: Mapping[str, Counted]) -> dict[str, int]:
    """Return the growth in ms of each group's time in the device."""
    return {group: now[2] - state.counted.get(group, _NOTHING)[2] for group, now in counted.items()}


def round_to_ms(step_ns: int) -> int:
    """Return an interval rounded to milliseconds, because readings come at nearly equal intervals of whole
    ms."""
    return (step_ns + _NS_PER_MS // 2) // _NS_PER_MS * _NS_PER_MS


def put_clocks(clocks: bytearray, state: PreviousTimes, sample: DiskSample) -> None:
    """Append the clocks of a sample as CLOCKS changes."""
    reading = sample.reading
    now = reading.sample
    put_change(clocks, now.end_ns - state.end_ns - round_to_ms(state.step_ns))
    put_change(clocks, now.end_ns - now.begin_ns)
    for stat, from_ns in ((reading.before, now.begin_ns), (reading.after, now.end_ns)):
        values = (stat.begin_ns - from_ns, stat.end_ns - stat.begin_ns, stat.in_flight) if stat else (0, 0, 0)
        for value in values:
            put_change(clocks, value)
    state.set_end(now.end_ns)


def _read_clocks(clocks: ChangeReader, state: PreviousTimes) -> Clocks:
    end_ns = (state.end_ns + clocks.read_change() + round_to_ms(state.step_ns)) & _MASK
    begin_ns = (end_ns - clocks.read_change()) & _MASK
    state.set_end(end_ns)
    stats = []
    for from_ns in (begin_ns, end_ns):
        stat_ns = (from_ns + clocks.read_change()) & _MASK
        stats.append((stat_ns, (stat_ns + clocks.read_change()) & _MASK, clocks.read_change() & _MASK))
    return Clocks(begin_ns, end_ns, tuple(stats))


def put_facts(
    facts: bytearray,
    state: PreviousTimes,
    number: int,
    sample: DiskSample,
    reason: int,
    *,
    is_shared: bool,
    has_cpu: bool = False,
) -> None:
    """Append a sample's values other than clocks and counters.

    `is_shared`: sample and entry have the same anchor. `has_cpu`: sample and entry have different CPU times.
    """
    reading, anchor = sample.reading, sample.anchor
    put_number(facts, (number - state.number) & _MASK)
    flags = (HAS_BEFORE if reading.before else 0) | (HAS_AFTER if reading.after else 0)
    flags |= HAS_MISSES if sample.misses is not None else 0
    ticks = reading.after.ticks if reading.after else None
    flags |= (HAS_TICKS if ticks else 0) | (HAS_CPU if has_cpu else 0)
    if reading.before and reading.before.ticks:
        raise ValueError("a recording cannot store times of the statistics before a sample")
    put_number(facts, flags | (SHARES_ANCHOR if is_shared else 0))
    put_number(facts, reason)
    if sample.misses is not None:
        put_change(facts, sample.misses - state.misses)
        state.misses = sample.misses
    if not is_shared:
        for value in (anchor.mono_ns, anchor.wall_ns, anchor.slack_ns):
            put_number(facts, value)
    if has_cpu:
        _put_cpu(facts, sample.cpu)
    counted = count_groups(reading.sample)
    for place, stat in enumerate((reading.before, reading.after)):
        if stat:
            _put_stat(facts, stat, state, state.stats[place], counted)
    if ticks:
        put_ticks(facts, ticks, state.ticks, _device_time_growth(state, counted))
    state.number, state.counted = number, counted


def _put_cpu(facts: bytearray, cpu: CpuTimes | None) -> None:
    put_number(facts, cpu.cpus if cpu else 0)
    for value in (cpu.user, cpu.system, cpu.irq, cpu.steal) if cpu else ():
        put_number(facts, value)


def _put_stat(
    facts: bytearray,
    stat: StatSample,
    state: PreviousTimes,
    before: dict[tuple[str, str], int],
    counted: Mapping[str, Counted],
) -> None:
    for unit, (keys, values) in enumerate(((_REQUESTS, stat.requests), (_BYTES, stat.bytes))):
        if not values.keys() <= _GROUPS:
            raise ValueError(f"a recording cannot store this group of statistics: {sorted(values)}")
        mask, there = _mask_groups(tuple(values))
        facts.append(mask)
        for group in there:
            value, key = values[group], keys[group]
            grown = counted[group][unit] - state.counted.get(group, _NOTHING)[unit]
            put_change(facts, value - before.get(key, 0) - grown)
            before[key] = value


@cache
def _mask_groups(names: tuple[str, ...]) -> tuple[int, tuple[str, ...]]:
    """Return the groups' mask, which fits into a byte, and the groups in format order."""
    there = tuple(group for group in GROUPS if group in names)
    return sum(1 << GROUPS.index(group) for group in there), there


def read_times(
    clocks: ChangeReader, facts: Varints, state: PreviousTimes, counted: Mapping[str, Counted]
) -> tuple[SampleFacts, Clocks, list[StatSample | None]]:
    """Return the facts, clocks and statistics of the next sample, given its counters."""
    when = _read_clocks(clocks, state)
    known = _read_facts(facts, state)
    stats = [
        _read_stat(facts, when.stats[at], state, state.stats[at], counted) if known.flags & flag else None
        for at, flag in enumerate((HAS_BEFORE, HAS_AFTER))
    ]
    if known.flags & HAS_TICKS:
        ticks, after = read_ticks(facts, state.ticks, _device_time_growth(state, counted)), stats[1]
        stats[1] = replace(after, ticks=ticks) if after else None
    return known, when, stats


def _read_facts(facts: Varints, state: PreviousTimes) -> SampleFacts:
    """Read the facts up to the statistics."""
    state.number = (state.number + facts.read_number()) & _MASK
    flags, reason = facts.number_up_to(_FLAGS, "the flags"), facts.read_number()
    misses = None
    if flags & HAS_MISSES:
        misses = state.misses = (state.misses + facts.read_change()) & _MASK
    anchor = None
    if not flags & SHARES_ANCHOR:
        anchor = Anchor(facts.read_number(), facts.read_number(), facts.read_number())
    cpus, cpu = facts.read_number() if flags & HAS_CPU else 0, None
    if cpus:
        cpu = CpuTimes(cpus, *(facts.read_number() for _ in range(_CPU_TIME_KINDS)))
    return SampleFacts(state.number, flags, reason, misses, anchor, cpu)


def _read_stat(
    facts: Varints,
    clocks: tuple[int, int, int],
    state: PreviousTimes,
    before: dict[tuple[str, str], int],
    counted: Mapping[str, Counted],
) -> StatSample:
    """Read a statistic, given its clocks."""
    begin_ns, end_ns, in_flight = clocks
    units: list[dict[str, int]] = []
    for unit, kind in enumerate(("requests", "bytes")):
        mask = facts.number_up_to((1 << len(GROUPS)) - 1, "the mask of groups")
        values: dict[str, int] = {}
        for at, group in enumerate(GROUPS):
            if mask >> at & 1:
                grown = counted[group][unit] - state.counted.get(group, _NOTHING)[unit]
                value = (before.get((kind, group), 0) + grown + facts.read_change()) & _MASK
                values[group] = before[kind, group] = value
        units.append(values)
    return StatSample(begin_ns, end_ns, units[0], units[1], in_flight)
