"""Derives a run's output from its entries. Pure, and the only such derivation, so live and recorded runs give
the same output."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from opwatch.errors import BadInput
from opwatch.owners.sample import Owners, OwnerSample, compare_owners
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
from opwatch.samples.losses import list_losses_between, tally_losses_since
from opwatch.samples.observation import Arrival, Event, Leaving, Observation
from opwatch.samples.observe import observe_interval
from opwatch.samples.sample import DiskSample
from opwatch.samples.slow_tally import SlowTally
from opwatch.trace.account.losses import Tally, count_lost_requests
from opwatch.trace.account.stall import Stall, count_stale, find_stall
from opwatch.trace.contexts import describe_missing
from opwatch.trace.derive import derive_interval
from opwatch.trace.surplus import SurplusBounds, compute_bounds, narrow_bounds
from opwatch.trim.audit.live import DiscardSample, DiscardSummary, compare_samples

if TYPE_CHECKING:
    from opwatch.samples.slow import SlowRequest
    from opwatch.waf.live import CurrentWaf
    from opwatch.waf.live_trail import LiveTrail


# Summaries of removed disks are kept until the end, except the oldest beyond this number.
MAX_PAST = 256

News = Observation | Event


@dataclass(frozen=True, slots=True)
class _Moment:
    """All data of one disk at one time."""

    sample: DiskSample
    discards: DiscardSample | None
    owners: OwnerSample | None


@dataclass(slots=True)
class _Disk:
    """A watched disk. `last` is the start of the next interval; `beside` bounds the requests counted by the
    kernel but not by the tracer."""

    first: _Moment
    last: _Moment
    drive: str | None
    came: Arrival | None
    beside: SurplusBounds | None
    leaving: Leaving | None = None
    # None until slow requests are known to be recorded.
    slow: SlowTally | None = None
    # True until the first interval, which shows the arrival.
    is_news: bool = False
    # Losses reported by earlier intervals.
    lost: Tally = field(default_factory=Tally)
    # The stall in which the last interval ended.
    stall: Stall | None = None

    def find_stall(self, now: DiskSample) -> Stall | None:
        """Return the disk's stall since the last interval, or None."""
        return find_stall(self.last.sample.reading, now.reading, self.stall, missed=bool(self.lost))

    def take_losses(self, now: DiskSample) -> Tally:
        """Return newly known losses, excluding losses reported by earlier intervals."""
        whole = tally_losses_since(self.first.sample, now)
        grown, self.lost = whole - self.lost, whole | self.lost
        return grown

    def update_bounds(self, now: DiskSample) -> None:
        """Update the bounds of the time before the first reading from a later reading."""
        self.beside = narrow_bounds(self.beside, now.reading)

    @property
    def arrival(self) -> Arrival | None:
        """Return the arrival with what is known by now."""
        first = compute_bounds(self.first.sample.reading)
        if self.came is None or first is None or self.beside is None:
            return self.came
        return self.came.with_bounds(first, self.beside)

    def has_news(self, now: DiskSample) -> bool:
        """Return True if there is anything to show since the last interval."""
        if self.is_news or (self.slow and self.slow.has_news):
            return True
        then = self.last.sample
        return bool(
            derive_interval(
                then.reading.sample, now.reading.sample, count_stale(then.reading, now.reading)
            ).ops
        )


class RunPresenter:
    """Takes the entries of a run in order. After the last, `unexplained` and `explained` have each disk's
    losses, with the disk's name."""

    def __init__(self) -> None:
        self.unexplained: list[str] = []
        self.explained: list[str] = []
        self._is_blind = False
        self._disks: dict[int, _Disk] = {}
        self._trails: dict[str, LiveTrail] = {}
        # Summaries of removed disks, shown at the end.
        self._past: list[Observation] = []
        self._not_watched: list[str] = []

    def process_entry(self, entry: RunEntry) -> list[News]:
        """Return the output of an entry. Raise BadInput if the entry contradicts earlier ones."""
        match entry:
            case DiskAdded():
                return self._add_disk(entry)
            case IntervalEnded():
                return self._observe_intervals(entry)
            case DiskRemoved():
                return self._remove_disk(entry)
            case EventReported():
                self._not_watched.append(entry.event.text)
                return [entry.event]
            case CountersRead():
                self._add_reading(entry)
                return []
            case ProgramsSkipped():
                self._is_blind = True
                return []
            case QueueChanged() | PressureRead():
                return []
            case SlowRequestsSeen():
                self._add_slow_requests(entry)
                return []
            case RunEnded():
                return self._end_run(entry)

    def _add_disk(self, entry: DiskAdded) -> list[News]:
        if entry.place in self._disks:
            raise BadInput(f"a disk starts at place {entry.place}, which another disk has")
        moment = _Moment(entry.sample, entry.discards, entry.owners)
        is_late = entry.arrival is not None
        disk = _Disk(
            moment, moment, entry.drive, entry.arrival, compute_bounds(entry.sample.reading), is_news=is_late
        )
        self._disks[entry.place] = disk
        return [_make_event("came", entry.sample, disk.arrival, entry.text)] if disk.arrival else []

    def _remove_disk(self, entry: DiskRemoved) -> list[News]:
        disk = self._find_disk(entry.place)
        disk.leaving = entry.leaving
        event = _make_event("left", entry.sample, entry.leaving, entry.text)
        now = _Moment(entry.sample, entry.discards, entry.owners)
        interval = self._observe_interval(disk, now)
        self._past.append(self._summarize_disk(disk, now))
        del self._disks[entry.place]
        oldest = self._past[: max(len(self._past) - MAX_PAST, 0)]
        del self._past[: len(oldest)]
        return [event, interval, *self._collect_finals(oldest)]

    def _add_reading(self, entry: CountersRead) -> None:
        # Import on demand, because the import takes long.
        from opwatch.counters.catalogue.families import load_standard_catalogue
        from opwatch.waf.live_trail import LiveTrail

        drive = entry.sample.disk
        if drive not in self._trails:
            self._trails[drive] = LiveTrail(load_standard_catalogue)
        self._trails[drive].add_sample(entry.sample)

    def _add_slow_requests(self, entry: SlowRequestsSeen) -> None:
        by_place: dict[int, list[SlowRequest]] = {place: [] for place in entry.counts}
        for request in entry.requests:
            if request.place not in by_place:
                raise BadInput(
                    f"a slow request at place {request.place}, which has no count of slow requests"
                )
            by_place[request.place].append(request)
        for place, count in entry.counts.items():
            disk = self._find_disk(place)
            disk.slow = disk.slow or SlowTally(entry.limit_ns, count - len(by_place[place]))
            disk.slow.add_requests(count, by_place[place])

    def _end_run(self, entry: RunEnded) -> list[News]:
        for place, leaving in entry.leaving.items():
            self._find_disk(place).leaving = leaving
        news: list[News] = []
        if entry.with_rest and any(
            self._find_disk(place).has_news(sample) for place, sample in entry.samples.items()
        ):
            news += self._observe_intervals(entry)
        finals = [
            self._summarize_disk(self._find_disk(place), _make_moment(entry, place))
            for place in entry.samples
        ]
        news += self._collect_finals([*self._past, *finals])
        self._past = []
        self.unexplained += self._not_watched
        return news

    def _collect_finals(self, observations: Iterable[Observation]) -> list[Observation]:
        """Return the summaries to show now, and collect their unexplained and explained losses."""
        shown = list(observations)
        for one in shown:
            self.unexplained += [f"{one.label}: {words}" for words in one.unexplained]
            self.explained += [f"{one.label}: {loss.words}" for loss in one.explained_losses]
        return shown

    def _find_disk(self, place: int) -> _Disk:
        if place not in self._disks:
            raise BadInput(f"there is no disk at place {place}")
        return self._disks[place]

    def _observe_intervals(self, entry: IntervalEnded | RunEnded) -> list[News]:
        return [
            self._observe_interval(self._find_disk(place), _make_moment(entry, place))
            for place in entry.samples
        ]

    def _observe_interval(self, disk: _Disk, now: _Moment) -> Observation:
        disk.update_bounds(now.sample)
        lost = disk.take_losses(now.sample)
        disk.stall = disk.find_stall(now.sample)
        observation = observe_interval(
            disk.last.sample,
            now.sample,
            final=False,
            live=self._find_figure(disk),
            discards=_compare_discards(disk.last, now, final=False),
            arrival=disk.arrival if disk.is_news else None,
            leaving=disk.leaving,
            slow=disk.slow.take_interval() if disk.slow else None,
            owners=_compare_owners(disk.last, now),
            losses=list_losses_between(disk.last.sample, now.sample, lost, is_blind=self._is_blind),
            lost=count_lost_requests(lost, is_blind=self._is_blind),
            stall=disk.stall,
        )
        disk.last, disk.is_news = now, False
        return observation

    def _summarize_disk(self, disk: _Disk, now: _Moment) -> Observation:
        disk.update_bounds(now.sample)
        observation = observe_interval(
            disk.first.sample,
            now.sample,
            final=True,
            live=self._find_figure(disk),
            discards=_compare_discards(disk.first, now, final=True),
            arrival=disk.arrival,
            leaving=disk.leaving,
            slow=disk.slow.make_summary() if disk.slow else None,
            owners=_compare_owners(disk.first, now),
            losses=list_losses_between(disk.first.sample, now.sample, is_blind=self._is_blind),
            stall=disk.find_stall(now.sample),
        )
        blind = describe_missing(observation.trust.drift) if self._is_blind else None
        return replace(observation, blind=blind) if blind else observation

    def _find_figure(self, disk: _Disk) -> CurrentWaf | None:
        trail = self._trails.get(disk.drive) if disk.drive else None
        return trail.live_waf if trail else None


def _make_moment(entry: IntervalEnded | RunEnded, place: int) -> _Moment:
    return _Moment(entry.samples[place], entry.discards.get(place), entry.owners.get(place))


def _compare_owners(then: _Moment, now: _Moment) -> Owners | None:
    if not then.owners or not now.owners:
        return None
    begin, end = (moment.sample.reading.sample for moment in (then, now))
    return compare_owners(then.owners, now.owners, begin, end)


def _compare_discards(then: _Moment, now: _Moment, *, final: bool) -> DiscardSummary | None:
    if not then.discards or not now.discards:
        return None
    begin, end = (moment.sample.reading.sample for moment in (then, now))
    return compare_samples(then.discards, now.discards, begin, end, final=final)


def _make_event(kind: str, sample: DiskSample, what: Arrival | Leaving, text: str) -> Event:
    return Event(
        kind=kind,
        device=sample.disk.device,
        origin=sample.disk.origin,
        at=what.at,
        at_ns=what.at_ns,
        text=text,
        arrival=what if isinstance(what, Arrival) else None,
        leaving=what if isinstance(what, Leaving) else None,
    )
