"""A part of a run, or the same run in longer intervals: entries to entries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from opwatch.samples.entries import Began, Ended, Left, Looked, NotWatched, RunEntry, Ticked
from opwatch.samples.entry_parts import first_moment
from opwatch.samples.sample import DiskSample
from opwatch.trim.audit.live import DiscardSample


@dataclass(slots=True)
class _Watched:
    """The disks that are watched at some moment, each with its newest sample."""

    began: dict[int, Began] = field(default_factory=dict)
    samples: dict[int, DiskSample] = field(default_factory=dict)
    discards: dict[int, DiscardSample] = field(default_factory=dict)
    has_ended: bool = False

    def take(self, entry: RunEntry) -> None:
        match entry:
            case Began():
                self.began[entry.place] = entry
                self.samples[entry.place] = entry.sample
                self.discards |= {entry.place: entry.discards} if entry.discards else {}
            case Ticked() | Ended():
                self.samples |= entry.samples
                self.discards |= entry.discards
                self.has_ended = isinstance(entry, Ended)
            case Left():
                for kept in (self.began, self.samples, self.discards):
                    kept.pop(entry.place, None)
            case Looked() | NotWatched():
                pass

    def as_begun(self) -> list[Began]:
        """As if each had begun with its newest sample."""
        return [
            replace(
                began,
                sample=self.samples[place],
                discards=self.discards.get(place) if began.discards else None,
                arrival=None,
                text="",
            )
            for place, began in self.began.items()
        ]

    def as_ended(self) -> Ended:
        """As if each had ended with its newest sample."""
        return Ended(dict(self.samples), dict(self.discards))


def ended(entries: Iterable[RunEntry]) -> Iterator[RunEntry]:
    """The run with an end: where it has none, the newest samples are taken for it."""
    watched = _Watched()
    for entry in entries:
        watched.take(entry)
        yield entry
    if not watched.has_ended and watched.samples:
        yield watched.as_ended()


def between(entries: Iterable[RunEntry], begin_ns: int, end_ns: int | None) -> Iterator[RunEntry]:
    """From the last samples before one moment to the last before another: a run of its own."""
    watched, looks, has_begun = _Watched(), dict[str, Looked](), False
    for entry in entries:
        at_ns = first_moment(entry)
        if end_ns is not None and at_ns > end_ns:
            break
        if not has_begun and at_ns > begin_ns:
            has_begun = True
            yield from watched.as_begun()
            yield from looks.values()
        watched.take(entry)
        if has_begun:
            yield entry
        elif isinstance(entry, Looked):
            # What the drive said last is what its figures begin with.
            looks[entry.sample.disk] = entry
    if has_begun and not watched.has_ended and watched.samples:
        yield watched.as_ended()


def in_steps(entries: Iterable[RunEntry], step_ns: int, recorded_ns: int) -> Iterator[RunEntry]:
    """The same in intervals of `step_ns`, of which each is made of whole ones of `recorded_ns`: samples are
    absolute, so that those in between can be left out."""
    due_ns: int | None = None
    inside: Ticked | None = None
    for entry in entries:
        if due_ns is None and isinstance(entry, Began):
            due_ns = first_moment(entry) + step_ns
        if isinstance(entry, Ticked) and due_ns is not None and entry.samples:
            # Readings are late by what it takes to wake up and to read, and not by the same each time.
            at_ns = first_moment(entry) + recorded_ns // 2
            inside = entry if at_ns < due_ns else None
            if inside:
                continue
            due_ns += step_ns * (1 + (at_ns - due_ns) // step_ns)
        if isinstance(entry, Left) and inside:
            inside = _without(inside, entry.place)
        if isinstance(entry, Ended) and inside and not entry.with_rest:
            # What does not fill a step is shown as it is; a rest that is shown has it in it.
            yield inside
        yield entry


def _without(entry: Ticked, place: int) -> Ticked:
    """An entry without a disk that left: what there was to show of it was shown then."""
    samples = {other: sample for other, sample in entry.samples.items() if other != place}
    return Ticked(samples, {other: sample for other, sample in entry.discards.items() if other != place})
