"""Continue a recording after a damaged minute.

Samples are absolute, so the next interval covers the lost time. Disks that came or left in the lost minute
are deduced from the later samples.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TypeVar

from opwatch.samples.entries import (
    DiskAdded,
    DiskRemoved,
    IntervalEnded,
    RunEnded,
    RunEntry,
    SlowRequestsSeen,
)
from opwatch.samples.entry_parts import get_samples
from opwatch.samples.sample import DiskSample

_Entry = TypeVar("_Entry", IntervalEnded, RunEnded)


def bridge_gap(entry: RunEntry, newest: Mapping[int, DiskSample]) -> Iterator[RunEntry]:
    """Make an entry after a gap consistent with the entries before the gap, and yield the result.

    `newest` has the last sample of each disk known to be watched. Other disks begin with their first sample,
    and with an unknown drive.
    """
    samples = get_samples(entry)
    match entry:
        case IntervalEnded():
            for place in samples.keys() - newest.keys():
                discards, owners = entry.discards.get(place), entry.owners.get(place)
                yield DiskAdded(place, samples[place], discards=discards, owners=owners)
            known = _keep_places(entry, newest)
            if known.samples or not samples:
                yield known
        case DiskRemoved():
            if entry.place in newest:
                yield entry
        case SlowRequestsSeen():
            requests = tuple(request for request in entry.requests if request.place in newest)
            counts = {place: count for place, count in entry.counts.items() if place in newest}
            yield replace(entry, counts=counts, requests=requests)
        case RunEnded():
            leaving = {place: one for place, one in entry.leaving.items() if place in newest}
            end = _keep_places(entry, newest)
            # Disks that left in the gap keep their last sample from before the gap.
            yield replace(end, samples={**newest, **end.samples}, leaving=leaving)
        case _:
            yield entry


def _keep_places(entry: _Entry, places: Mapping[int, DiskSample]) -> _Entry:
    """Return the entry with these places only."""
    return replace(
        entry,
        samples={place: one for place, one in entry.samples.items() if place in places},
        discards={place: one for place, one in entry.discards.items() if place in places},
        owners={place: one for place, one in entry.owners.items() if place in places},
    )
