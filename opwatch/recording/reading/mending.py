"""A recording goes on behind a minute that is damaged: samples are absolute, so that the next interval covers
what was lost. What came or left in that minute follows from the samples behind it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TypeVar

from opwatch.samples.entries import Began, Ended, Left, RunEntry, Slowed, Ticked
from opwatch.samples.entry_parts import samples_in
from opwatch.samples.sample import DiskSample

_Entry = TypeVar("_Entry", Ticked, Ended)


def mended(entry: RunEntry, newest: Mapping[int, DiskSample]) -> Iterator[RunEntry]:
    """Yield an entry behind a gap so that it can follow those before. `newest` has the last sample of each
    disk that is known to be watched. Another disk begins with its first sample; its drive is unknown."""
    samples = samples_in(entry)
    match entry:
        case Ticked():
            for place in samples.keys() - newest.keys():
                discards, owners = entry.discards.get(place), entry.owners.get(place)
                yield Began(place, samples[place], discards=discards, owners=owners)
            known = _only(entry, newest)
            if known.samples or not samples:
                yield known
        case Left():
            if entry.place in newest:
                yield entry
        case Slowed():
            requests = tuple(request for request in entry.requests if request.place in newest)
            counts = {place: count for place, count in entry.counts.items() if place in newest}
            yield replace(entry, counts=counts, requests=requests)
        case Ended():
            leaving = {place: one for place, one in entry.leaving.items() if place in newest}
            end = _only(entry, newest)
            # What left in the gap has its last sample before it.
            yield replace(end, samples={**newest, **end.samples}, leaving=leaving)
        case _:
            yield entry


def _only(entry: _Entry, places: Mapping[int, DiskSample]) -> _Entry:
    """The entry without other places."""
    return replace(
        entry,
        samples={place: one for place, one in entry.samples.items() if place in places},
        discards={place: one for place, one in entry.discards.items() if place in places},
        owners={place: one for place, one in entry.owners.items() if place in places},
    )
