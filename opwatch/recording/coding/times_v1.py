"""Clocks and statistics in version 1 of the format: a single stream."""

from __future__ import annotations

from collections.abc import Mapping

from opwatch.recording.coding.times import (
    HAS_AFTER,
    HAS_BEFORE,
    MASK,
    Clocks,
    Counted,
    PreviousTimes,
    SampleFacts,
    read_facts,
    read_stat,
    round_to_ms,
)
from opwatch.recording.coding.varints import Varints
from opwatch.trace.stat import StatSample


def read_times_v1(
    times: Varints, state: PreviousTimes, counted: Mapping[str, Counted]
) -> tuple[SampleFacts, Clocks, list[StatSample | None]]:
    """Return the facts, clocks and statistics of the next sample, given its counters."""
    number = (state.number + times.read_number()) & MASK
    end_ns = (state.end_ns + times.read_change() + round_to_ms(state.step_ns)) & MASK
    state.set_end(end_ns)
    state.span_ns = (state.span_ns + times.read_change()) & MASK
    begin_ns = (end_ns - state.span_ns) & MASK
    facts = read_facts(times, state, number)
    stats: list[StatSample | None] = [None, None]
    for at, (flag, from_ns) in enumerate(((HAS_BEFORE, begin_ns), (HAS_AFTER, end_ns))):
        if facts.flags & flag:
            stat_ns = (from_ns + times.read_change()) & MASK
            clocks = stat_ns, (stat_ns + times.read_change()) & MASK, times.read_number()
            stats[at] = read_stat(times, clocks, state, state.stats[at], counted)
    return facts, Clocks(begin_ns, end_ns, ()), stats
