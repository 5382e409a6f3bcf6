"""Check the order of entries, so that users of a recording need no checks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from operator import ge

from opwatch.errors import BadInput
from opwatch.recording.coding.frames import has_decreased
from opwatch.samples.entries import (
    DiskAdded,
    DiskRemoved,
    IntervalEnded,
    RunEnded,
    RunEntry,
    SlowRequestsSeen,
)
from opwatch.samples.entry_parts import get_samples
from opwatch.samples.sample import MAX_DISKS, DiskSample
from opwatch.trim.audit.flow import Trace
from opwatch.trim.audit.live import DiscardSample


class OrderChecker:
    """Checks a sequence of entries; raises BadInput for an entry that cannot follow its predecessors."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._newest: dict[int, DiskSample] = {}
        self._traces: dict[int, Trace] = {}
        self._left: set[int] = set()
        self._slow: dict[int, int] = {}
        self._has_ended = False

    @property
    def newest_samples(self) -> dict[int, DiskSample]:
        """The last sample of every watched disk."""
        return self._newest

    def check_entry(self, number: int, entry: RunEntry) -> None:
        where = f"{self._where}: entry {number}"
        if self._has_ended:
            raise BadInput(f"{where} follows the end of the run")
        samples = get_samples(entry)
        if isinstance(entry, DiskAdded):
            if entry.place in self._newest or entry.place in self._left or len(self._newest) >= MAX_DISKS:
                raise BadInput(f"{where}: place {entry.place} starts again, or there are too many disks")
        elif not samples.keys() <= self._newest.keys():
            raise BadInput(f"{where}: a sample of a disk that is not watched")
        if isinstance(entry, IntervalEnded | RunEnded) and not entry.discards.keys() <= samples.keys():
            raise BadInput(f"{where}: discards of a disk that has no sample")
        if isinstance(entry, IntervalEnded | RunEnded) and not entry.owners.keys() <= samples.keys():
            raise BadInput(f"{where}: owners of a disk that has no sample")
        for place, sample in samples.items():
            before = self._newest.get(place)
            if before and has_decreased(before, sample):
                raise BadInput(f"{where}: place {place}: a counter decreased")
            self._newest[place] = sample
        for place, discards in _discards_by_place(entry).items():
            if place in self._traces and not _has_grown(self._traces[place], discards.trace):
                raise BadInput(f"{where}: place {place}: a count of discards decreased")
            self._traces[place] = discards.trace
        if isinstance(entry, SlowRequestsSeen):
            self._check_slow(entry, where)
        if isinstance(entry, DiskRemoved):
            del self._newest[entry.place]
            self._left.add(entry.place)
        if isinstance(entry, RunEnded):
            if samples.keys() != self._newest.keys() or not entry.leaving.keys() <= samples.keys():
                raise BadInput(f"{where}: a watched disk has no last sample")
            self._has_ended = True

    def _check_slow(self, entry: SlowRequestsSeen, where: str) -> None:
        new = Counter(request.place for request in entry.requests)
        if entry.at_ns < 0 or entry.limit_ns <= 0 or not new.keys() <= entry.counts.keys():
            raise BadInput(f"{where}: slow requests without a limit, or of a disk without a count of them")
        for place, count in entry.counts.items():
            if place not in self._newest or count - self._slow.get(place, 0) < new[place]:
                raise BadInput(f"{where}: place {place}: fewer slow requests are counted than listed")
            self._slow[place] = count


def _discards_by_place(entry: RunEntry) -> Mapping[int, DiscardSample]:
    match entry:
        case IntervalEnded() | RunEnded():
            return entry.discards
        case DiskAdded() | DiskRemoved() if entry.discards:
            return {entry.place: entry.discards}
    return {}


def _has_grown(then: Trace, now: Trace) -> bool:
    """Return true if no flow, origin or loss counter decreased or disappeared."""
    # Fast path, because most intervals have no discards.
    if then == now:
        return True
    return _count_trace(now) >= _count_trace(then) and all(map(ge, now.loss, then.loss))


def _count_trace(trace: Trace) -> Counter[object]:
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
