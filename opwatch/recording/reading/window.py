"""Select part of a run, or the same run at longer intervals."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from opwatch.recording.reading.steps import IntervalSteps
from opwatch.samples.entries import DiskAdded, DiskRemoved, IntervalEnded, RunEnded, RunEntry
from opwatch.samples.entry_parts import find_start_ns
from opwatch.samples.newest import LatestState


def close_run(entries: Iterable[RunEntry]) -> Iterator[RunEntry]:
    """Yield the entries of a run; without an end, append an end from the newest samples."""
    newest = LatestState()
    for entry in entries:
        newest.add_entry(entry)
        yield entry
    if not newest.has_ended and not newest.is_empty:
        yield newest.make_end_entry()


def select_window(entries: Iterable[RunEntry], begin_ns: int, end_ns: int | None) -> Iterator[RunEntry]:
    """Yield the part of a run from the last samples before `begin_ns` to the last before `end_ns`, as a
    separate run."""
    newest, has_begun = LatestState(), False
    for entry in entries:
        at_ns = find_start_ns(entry)
        if end_ns is not None and at_ns > end_ns:
            break
        if not has_begun and at_ns > begin_ns:
            has_begun = True
            yield from newest.make_start_entries()
        newest.add_entry(entry)
        if has_begun:
            yield entry
    if has_begun and not newest.has_ended and not newest.is_empty:
        yield newest.make_end_entry()


def merge_intervals(entries: Iterable[RunEntry], steps: IntervalSteps) -> Iterator[RunEntry]:
    """Yield the run at longer intervals. Samples are absolute, so intermediate samples can be left out."""
    merger = IntervalMerger(steps)
    for entry in entries:
        yield from merger.merge_entry(entry)


class IntervalMerger:
    """Takes the entries of a run in order, and returns the entries of the run at longer intervals."""

    def __init__(self, steps: IntervalSteps) -> None:
        self._steps = steps
        self._inside: IntervalEnded | None = None

    def merge_entry(self, entry: RunEntry) -> Iterator[RunEntry]:
        """Yield the entries to show now: none inside of an interval."""
        at_ns, steps = find_start_ns(entry), self._steps
        if isinstance(entry, DiskAdded):
            steps.start_at(at_ns)
        if isinstance(entry, IntervalEnded) and steps.due_ns is not None and entry.samples:
            self._inside = None if steps.ends_interval(at_ns) else entry
            if self._inside:
                return
            steps.start_next(at_ns)
        if isinstance(entry, DiskRemoved) and self._inside:
            self._inside = _remove_disk(self._inside, entry.place)
        if isinstance(entry, RunEnded) and self._inside and not entry.with_rest:
            # Show an incomplete last interval, unless the end includes it.
            yield self._inside
        yield entry


def _remove_disk(entry: IntervalEnded, place: int) -> IntervalEnded:
    """Return an entry without a disk that has left, whose last samples were shown at that time."""
    samples = {other: sample for other, sample in entry.samples.items() if other != place}
    discards = {other: sample for other, sample in entry.discards.items() if other != place}
    return IntervalEnded(
        samples, discards, {other: one for other, one in entry.owners.items() if other != place}
    )
