"""Counts of a run that lies in a file only grow, as the kernel's do: of others nothing is derived."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from operator import ge, itemgetter

from opwatch.errors import BadInput
from opwatch.samples.entries import Began, Ended, Left, RunEntry, Ticked
from opwatch.samples.entry_parts import samples_in
from opwatch.trace.abi import SCALARS, OpSample, TargetSample
from opwatch.trace.hist import Histogram
from opwatch.trim.audit.flow import Trace
from opwatch.trim.audit.live import DiscardSample

# The one that is no count: where the last request ended.
_COUNTS = itemgetter(*(place for place, name in enumerate(SCALARS) if name != "next_sector"))


def growing(entries: Iterable[RunEntry], where: str) -> Iterator[RunEntry]:
    """The same entries; BadInput at the first in which a count is less than it was."""
    last: dict[int, TargetSample] = {}
    traces: dict[int, Trace] = {}
    for number, entry in enumerate(entries, 1):
        for place, sample in samples_in(entry).items():
            now = sample.reading.sample
            if place in last and not _grew(last[place], now):
                raise BadInput(f"{where}: entry {number}: the counts of place {place} went backwards")
            last[place] = now
        for place, discards in _discards(entry).items():
            if place in traces and not _trace_grew(traces[place], discards.trace):
                raise BadInput(f"{where}: entry {number}: the discards of place {place} went backwards")
            traces[place] = discards.trace
        yield entry


def _discards(entry: RunEntry) -> Mapping[int, DiscardSample]:
    match entry:
        case Ticked() | Ended():
            return entry.discards
        case Began() | Left() if entry.discards:
            return {entry.place: entry.discards}
    return {}


def _grew(then: TargetSample, now: TargetSample) -> bool:
    in_order = then.end_ns <= now.end_ns and now.begin_ns <= now.end_ns
    return in_order and all(_op_grew(before, now.ops[name]) for name, before in then.ops.items())


def _op_grew(then: OpSample, now: OpSample) -> bool:
    return (
        all(map(ge, _COUNTS(now), _COUNTS(then)))
        and _histogram_grew(then.latency, now.latency)
        and _histogram_grew(then.queue, now.queue)
        and _histogram_grew(then.sizes, now.sizes)
        and all(map(ge, now.statuses, then.statuses))
    )


def _histogram_grew(then: Histogram, now: Histogram) -> bool:
    return min(now.since(then).counts) >= 0


def _trace_grew(then: Trace, now: Trace) -> bool:
    """By kind of flow and by sender: what is gone counts as less."""
    return _counts(now) >= _counts(then) and all(map(ge, now.loss, then.loss))


def _counts(trace: Trace) -> Counter[object]:
    counts: Counter[object] = Counter()
    for flow in trace.flows:
        key = flow.disk, flow.dev, flow.stage, flow.op, flow.who, flow.status
        counts[key, "count"] += flow.amount.count
        counts[key, "bytes"] += flow.amount.bytes
        counts[key, "ns"] += flow.amount.sum_ns
    for origin in trace.origins:
        counts[origin.key, "count"] += origin.count
        counts[origin.key, "bytes"] += origin.bytes
    return counts
