"""Select part of a run, or the same run at longer intervals."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from opwatch.recording.reading.steps import Steps
from opwatch.samples.entries import Began, Ended, Left, RunEntry, Ticked
from opwatch.samples.entry_parts import first_moment
from opwatch.samples.newest import Newest


def ended(entries: Iterable[RunEntry]) -> Iterator[RunEntry]:
    """Yield the entries of a run; without an end, append an end from the newest samples."""
    newest = Newest()
    for entry in entries:
        newest.take(entry)
        yield entry
    if not newest.has_ended and not newest.is_empty:
        yield newest.as_ended()


def between(entries: Iterable[RunEntry], begin_ns: int, end_ns: int | None) -> Iterator[RunEntry]:
    """Yield the part of a run from the last samples before `begin_ns` to the last before `end_ns`, as a
    separate run."""
    newest, has_begun = Newest(), False
    for entry in entries:
        at_ns = first_moment(entry)
        if end_ns is not None and at_ns > end_ns:
            break
        if not has_begun and at_ns > begin_ns:
            has_begun = True
            yield from newest.as_begun()
        newest.take(entry)
        if has_begun:
            yield entry
    if has_begun and not newest.has_ended and not newest.is_empty:
        yield newest.as_ended()


def in_steps(entries: Iterable[RunEntry], steps: Steps) -> Iterator[RunEntry]:
    """Yield the run at longer intervals. Samples are absolute, so intermediate samples can be left out."""
    inside: Ticked | None = None
    for entry in entries:
        at_ns = first_moment(entry)
        if isinstance(entry, Began):
            steps.begin(at_ns)
        if isinstance(entry, Ticked) and steps.due_ns is not None and entry.samples:
            inside = None if steps.ends(at_ns) else entry
            if inside:
                continue
            steps.go_on(at_ns)
        if isinstance(entry, Left) and inside:
            inside = _without(inside, entry.place)
        if isinstance(entry, Ended) and inside and not entry.with_rest:
            # Show an incomplete last interval, unless the end includes it.
            yield inside
        yield entry


def _without(entry: Ticked, place: int) -> Ticked:
    """Return an entry without a disk that has left, whose last samples were shown at that time."""
    samples = {other: sample for other, sample in entry.samples.items() if other != place}
    discards = {other: sample for other, sample in entry.discards.items() if other != place}
    return Ticked(samples, discards, {other: one for other, one in entry.owners.items() if other != place})
