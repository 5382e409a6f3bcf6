"""Common parts of all kinds of entries: samples by place, and a time."""

from __future__ import annotations

from collections.abc import Mapping

from opwatch.samples.entries import (
    Began,
    Blinded,
    Ended,
    Left,
    Looked,
    NotWatched,
    RunEntry,
    Slowed,
    Ticked,
)
from opwatch.samples.sample import DiskSample

# The kinds of entries, by their name in a file.
KINDS: dict[str, type[RunEntry]] = {
    kind.__name__: kind for kind in (Began, Ticked, Left, NotWatched, Looked, Slowed, Blinded, Ended)
}


def get_samples(entry: RunEntry) -> Mapping[int, DiskSample]:
    """Return the samples of an entry, by place."""
    if isinstance(entry, Began | Left):
        return {entry.place: entry.sample}
    return entry.samples if isinstance(entry, Ticked | Ended) else {}


def find_start_ns(entry: RunEntry) -> int:
    """Return the time at which the entry became known, by the samples' clock; 0 without samples and time."""
    if isinstance(entry, NotWatched):
        return entry.event.at_ns
    if isinstance(entry, Slowed | Blinded):
        return entry.at_ns
    if isinstance(entry, Looked):
        return entry.sample.end_ns
    return min((sample.reading.sample.end_ns for sample in get_samples(entry).values()), default=0)
