"""Common parts of all kinds of entries: samples by place, and a time."""

from __future__ import annotations

from collections.abc import Mapping

from opwatch.samples.entries import (
    CountersRead,
    DiskAdded,
    DiskRemoved,
    EventReported,
    IntervalEnded,
    PressureRead,
    ProgramsSkipped,
    QueueChanged,
    RunEnded,
    RunEntry,
    SlowRequestsSeen,
)
from opwatch.samples.sample import DiskSample

# The kinds of entries, by their name in a file.
KINDS: dict[str, type[RunEntry]] = {
    kind.__name__: kind
    for kind in (
        DiskAdded,
        IntervalEnded,
        DiskRemoved,
        EventReported,
        CountersRead,
        SlowRequestsSeen,
        ProgramsSkipped,
        QueueChanged,
        PressureRead,
        RunEnded,
    )
}


def get_samples(entry: RunEntry) -> Mapping[int, DiskSample]:
    """Return the samples of an entry, by place."""
    if isinstance(entry, DiskAdded | DiskRemoved):
        return {entry.place: entry.sample}
    return entry.samples if isinstance(entry, IntervalEnded | RunEnded) else {}


def find_start_ns(entry: RunEntry) -> int:
    """Return the time at which the entry became known, by the samples' clock; 0 without samples and time."""
    if isinstance(entry, EventReported):
        return entry.event.at_ns
    if isinstance(entry, SlowRequestsSeen | ProgramsSkipped | QueueChanged | PressureRead):
        return entry.at_ns
    if isinstance(entry, CountersRead):
        return entry.sample.end_ns
    return min((sample.reading.sample.end_ns for sample in get_samples(entry).values()), default=0)
