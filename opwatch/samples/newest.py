"""The newest state of all watched disks, for runs within another run."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from opwatch.owners.sample import OwnerSample
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
from opwatch.trim.audit.live import DiscardSample


@dataclass(slots=True)
class LatestState:
    """Takes the entries of a run in order; another run can start or end after any entry."""

    has_ended: bool = False
    _began: dict[int, DiskAdded] = field(default_factory=dict)
    _samples: dict[int, DiskSample] = field(default_factory=dict)
    _discards: dict[int, DiscardSample] = field(default_factory=dict)
    _owners: dict[int, OwnerSample] = field(default_factory=dict)
    # The last reading of a drive is the base of later figures.
    _looks: dict[str, CountersRead] = field(default_factory=dict)
    _slowed: SlowRequestsSeen | None = None
    _blinded: list[RunEntry] = field(default_factory=list)
    _changed: dict[int, QueueChanged] = field(default_factory=dict)
    _pressure: list[RunEntry] = field(default_factory=list)

    def add_entry(self, entry: RunEntry) -> None:
        match entry:
            case DiskAdded():
                self._began[entry.place] = entry
                self._samples[entry.place] = entry.sample
                self._discards |= {entry.place: entry.discards} if entry.discards else {}
                self._owners |= {entry.place: entry.owners} if entry.owners else {}
            case IntervalEnded() | RunEnded():
                self._samples |= entry.samples
                self._discards |= entry.discards
                self._owners |= entry.owners
                self.has_ended = isinstance(entry, RunEnded)
            case DiskRemoved():
                for kept in (self._began, self._samples, self._discards, self._owners, self._changed):
                    kept.pop(entry.place, None)
            case SlowRequestsSeen():
                self._slowed = entry
            case CountersRead():
                self._looks[entry.sample.disk] = entry
            case ProgramsSkipped():
                self._blinded = [entry]
            case QueueChanged():
                self._changed[entry.place] = entry
            case PressureRead():
                self._pressure = [entry]
            case EventReported():
                pass

    @property
    def is_empty(self) -> bool:
        return not self._samples

    def make_start_entries(self) -> list[RunEntry]:
        """Return entries as if the run started now: every disk with the newest sample, every drive with the
        latest reading."""
        begun = [
            replace(
                began,
                sample=self._samples[place],
                discards=self._discards.get(place) if began.discards else None,
                owners=self._owners.get(place) if began.owners else None,
                arrival=None,
                text="",
            )
            for place, began in self._began.items()
        ]
        others = (*self._blinded, *self._changed.values(), *self._pressure, *self._looks.values())
        return [*begun, *others, *self._make_slow_entries()]

    def _make_slow_entries(self) -> list[RunEntry]:
        """Return an entry with the base of the slow request counts, if there are any."""
        if not self._slowed:
            return []
        counts = {place: count for place, count in self._slowed.counts.items() if place in self._began}
        return [replace(self._slowed, counts=counts, requests=())]

    def make_end_entry(self) -> RunEnded:
        """Return an end as if each disk had ended with the newest sample."""
        return RunEnded(dict(self._samples), dict(self._discards), owners=dict(self._owners))
