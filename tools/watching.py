"""A live watch as a stream of entries, from the baseline to the end, while disks come and go."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from opwatch.clock import read_anchor
from opwatch.collectors.audit.live_discards import LiveDiscards
from opwatch.collectors.block.arrivals import Unwatched
from opwatch.collectors.block.bypass import refused_clones, unseen_pages, unseen_remaps
from opwatch.collectors.block.contexts import ContextProbe
from opwatch.collectors.block.owners import LiveOwners
from opwatch.collectors.block.slow import LiveSlow
from opwatch.collectors.firmware.live import LiveWaf
from opwatch.cpu import CpuClock
from opwatch.errors import OpwatchError
from opwatch.host.device import BlockDevice, Leaf
from opwatch.owners.cells import By
from opwatch.samples.entries import Began, Blinded, Ended, Left, Looked, NotWatched, RunEntry, Ticked
from opwatch.samples.membership import Change, Departure, Member, Membership, Why
from opwatch.samples.observation import Arrival, Event, Leaving
from opwatch.samples.sample import DiskSample, WatchedDisk
from opwatch.sinks.terminal import say
from opwatch.times import spell
from opwatch.trace.lacking import CPU
from opwatch.trace.surplus import SurplusBounds, bounds, narrowed
from opwatch.trace.tracer_set import TracerSet
from opwatch.trace.trust import Reading, trust

# Longest time between scans of sysfs, even if intervals are longer. A new disk is not counted before its
# scan.
_LOOK_S = 1.0
_SOON_S = 0.02
# Shortest time between scans, so that short intervals do not cause many.
_FRESH_S = 0.1
# Longest wait at the end for the context probe.
_PROBE_S = 1.0


@dataclass(slots=True)
class _Row:
    """A watched disk at a place, from the first sample on. `beside` bounds the requests counted by the kernel
    but not by the tracer, over all readings."""

    place: int
    member: Member
    first: DiskSample
    beside: SurplusBounds | None

    @property
    def leaf(self) -> Leaf:
        return self.member.leaf


class Watching:
    """Watches disks from construction to close(). Each method returns the new entries for interpretation by
    the caller."""

    def __init__(
        self,
        membership: Membership,
        tracers: TracerSet,
        live: LiveWaf,
        discards: LiveDiscards,
        contexts: ContextProbe | None = None,
        *,
        slow_ns: int = 0,
        by: By | None = None,
    ) -> None:
        self._membership, self._tracers = membership, tracers
        self._slow = LiveSlow(tracers, slow_ns)
        self._owners = LiveOwners(tracers, by)
        # The probe is dropped once it has an answer.
        self._contexts, self._cpu = contexts, CpuClock()
        self._live, self._discards = live, discards
        self._unwatched = Unwatched()
        self._unwatched.end_look(membership.registered)
        # Time of the last sysfs scan, by the clock of the readings.
        self._looked = time.monotonic()
        self._rows: list[_Row] = []
        self._not_watched: set[str] = set()
        leaves = [member.leaf for member in membership.members]
        discards.prepare(leaves)
        try:
            places = tracers.add(leaves)
        except BaseException:
            discards.close()
            self._cpu.close()
            raise
        self._begun = self._begin(membership.members, places, are_late=False)
        self.next_look = self._looked + _SOON_S

    def begun(self) -> list[RunEntry]:
        """Return the entries of the disks present at the start."""
        return list(self._begun)

    @property
    def leaves(self) -> list[Leaf]:
        """Return the leaves that are watched now."""
        return [row.leaf for row in self._rows]

    def vanished(self) -> str | None:
        """Return the first named device that is gone and no longer waited for, or None."""
        return self._membership.vanished()

    def absent(self) -> str | None:
        """Return the first named device that is gone, waited for or not."""
        return self._membership.absent()

    def look(self) -> list[RunEntry]:
        """Scan for added and removed disks, and attach or detach."""
        self._unwatched.begin_look()
        change = self._membership.look()
        entries = self._follow(change) if change else []
        self._unwatched.end_look(self._membership.registered)
        self._looked = time.monotonic()
        self.next_look = self._looked + (_SOON_S if self._membership.is_unsettled else _LOOK_S)
        return [*self._looks_at_drives(), *entries]

    def hint(self) -> None:
        """Schedule a scan soon. Hints until then share one scan."""
        self.next_look = min(self.next_look, time.monotonic() + _SOON_S)

    def interval(self) -> list[RunEntry]:
        """Return the entries since the last interval."""
        is_due = time.monotonic() - self._looked > _FRESH_S
        entries = self.look() if is_due else []
        samples = self._samples(self._rows, self._tracers.read())
        discards, owners = self._discards.read(), self._owners.read(samples)
        # Entries known by now belong to the current interval, but are processed only after the samples are
        # taken.
        looks = [*self._looks_at_drives(), *self._blinded(samples)]
        return [*entries, *looks, *self._slowed(samples), Ticked(samples, discards, owners)]

    def summary(self, *, with_rest: bool) -> list[RunEntry]:
        """End the watch.

        `with_rest` reports the remainder after the last interval as an interval, if any I/O occurred, so the
        intervals add up to the summary.
        """
        # A command may have changed the disks just before it ended.
        entries = [] if self.vanished() else self.look()
        self._live.look()
        entries += self._looks_at_drives()
        readings = self._tracers.read_settled()
        leaving = {
            row.place: self._leaving(why, readings[row.place])
            for row in self._rows
            if (why := self._membership.absence(row.member))
        }
        samples = self._samples(self._rows, readings)
        ended = Ended(
            samples=samples,
            discards=self._discards.read(),
            leaving=leaving,
            with_rest=with_rest,
            owners=self._owners.read(samples),
        )
        return [*entries, *self._blinded(samples), *self._slowed(samples), ended]

    def close(self) -> None:
        self._live.stop()
        self._discards.close()
        self._membership.close()
        self._cpu.close()

    def _follow(self, change: Change) -> list[RunEntry]:
        # Read disks that left first, because another disk may already be counted in their place.
        entries = self._remove(change.left) if change.left else []
        for leaf, reason in change.refused:
            entries += self._refuse(leaf, reason)
        if not change.came:
            return entries
        try:
            places = self._tracers.add([member.leaf for member in change.came])
        except (OpwatchError, OSError) as error:
            # OSError: a new disk disappeared while it was being inspected.
            for member in change.came:
                self._membership.forget(member)
                entries += self._refuse(member.leaf, str(error))
            return entries
        return entries + self._begin(change.came, places, are_late=True)

    def _begin(self, members: Sequence[Member], places: Sequence[int], *, are_late: bool) -> list[RunEntry]:
        """Take the first reading of attached disks."""
        leaves = dict(zip(places, (member.leaf for member in members), strict=True))
        if not are_late:
            self._add_discards(leaves, may_fail=not self._discards.is_required)
        # Read before the first sample: requests that end in between were in flight at attach time as well.
        in_flight = {place: _in_flight(leaf.device) for place, leaf in leaves.items()}
        readings = self._tracers.read_first(places)
        misses, anchor, cpu = self._tracers.misses(), read_anchor(), self._cpu.read()
        owners = self._owners.read(places)
        if are_late:
            self._add_discards(leaves, may_fail=True)
        self._live.add(list(leaves.values()))
        discards = self._discards.latest()
        entries: list[RunEntry] = []
        for place, member in zip(places, members, strict=True):
            disk = self._facts(member, in_flight[place])
            sample = DiskSample(disk, readings[place], misses, anchor, cpu)
            self._rows.append(_Row(place, member, sample, bounds(sample.reading)))
            arrival = self._arrival(member.leaf, sample) if are_late else None
            self._not_watched.discard(member.name)
            entries.append(
                Began(
                    place=place,
                    sample=sample,
                    drive=self._live.drive_of(member.leaf),
                    discards=discards.get(place),
                    arrival=arrival,
                    text=_words_of_arrival(member, arrival) if arrival else "",
                    owners=owners.get(place),
                )
            )
        return entries + self._slowed({row.place: row.first for row in self._rows})

    def _slowed(self, samples: Mapping[int, DiskSample]) -> list[RunEntry]:
        """Return the requests over the latency limit since the last call, with the time of these samples."""
        at_ns = min((sample.reading.sample.end_ns for sample in samples.values()), default=0)
        return [*self._slow.read({row.place: row.leaf for row in self._rows}, at_ns)]

    def _arrival(self, leaf: Leaf, first: DiskSample) -> Arrival:
        registered = self._membership.registered
        return self._unwatched.arrival(leaf.device, registered, first.reading, first.anchor)

    def _add_discards(self, leaves: dict[int, Leaf], *, may_fail: bool) -> None:
        try:
            for tracer, places in self._tracers.by_tracer(leaves):
                self._discards.add({place: leaves[place] for place in places}, tracer)
        except OpwatchError as error:
            if not may_fail:
                raise
            names = ", ".join(leaf.device.name for leaf in leaves.values())
            say(f"who discards on {names} is not known: {error}")

    def _facts(self, member: Member, in_flight: int) -> WatchedDisk:
        kind = "requests" if member.leaf.device.disk.is_request_based else "bios"
        no_cpu = [f"{CPU}: {self._cpu.problem}"] if self._cpu.problem else []
        return WatchedDisk(
            device=member.leaf.device.name,
            origin=member.leaf.origin.name,
            level=f"{kind} by {self._tracers.hooks}",
            backend=self._tracers.backend,
            lacks=(
                *self._tracers.lacks,
                *self._slow.lacks(member.leaf),
                *unseen_pages(member.leaf),
                *unseen_remaps(member.leaf),
                *refused_clones(member.leaf),
                *no_cpu,
            ),
            in_flight=in_flight,
            flush_queues=len(member.leaf.device.hardware_queues),
        )

    def _looks_at_drives(self) -> list[RunEntry]:
        return [Looked(sample) for sample in self._live.samples()]

    def _remove(self, departures: Sequence[Departure]) -> list[RunEntry]:
        why = {departure.member: departure.why for departure in departures}
        rows = [row for row in self._rows if row.member in why]
        readings = self._tracers.read([row.place for row in rows])
        samples, discards = self._samples(rows, readings), self._discards.read()
        owners = self._owners.read(samples)
        entries = [*self._looks_at_drives(), *self._blinded(samples), *self._slowed(samples)]
        for row in rows:
            self._unwatched.left(row.leaf.device, row.beside, readings[row.place])
            leaving = self._leaving(why[row.member], readings[row.place])
            entries.append(
                Left(
                    place=row.place,
                    sample=samples[row.place],
                    leaving=leaving,
                    text=self._words_of_leaving(row.leaf, why[row.member]),
                    discards=discards.get(row.place),
                    owners=owners.get(row.place),
                )
            )
            self._rows.remove(row)
            # Detach discards before the block tracer to which they are chained.
            self._discards.drop(row.place)
            self._tracers.drop(row.place)
            self._live.drop(row.leaf)
            row.member.close()
        return entries

    def _words_of_leaving(self, leaf: Leaf, why: Why) -> str:
        what = {
            Why.GONE: "has gone",
            Why.REPLACED: "was replaced by another disk of that name",
            Why.RESIZED: "lies at other sectors now",
            Why.UNUSED: f"no longer does I/O of {leaf.origin.name}",
        }[why]
        words = f"{leaf.device.name} {what}; its counts until then are in the summary"
        if self._membership.absent() == leaf.origin.name:
            words += f"; waiting {spell(self._membership.return_within_s)} for it to come back"
        return words

    def _leaving(self, why: Why, last: Reading) -> Leaving:
        anchor = read_anchor()
        at_ns = last.sample.end_ns
        doubt = None
        if why is Why.REPLACED:
            since = anchor.wall(int(self._looked * 1e9)).astimezone()
            doubt = f"another disk took its place: what was counted after {since:%H:%M:%S} may be of that"
        return Leaving(anchor.wall(at_ns), at_ns, why.value, doubt)

    def _refuse(self, leaf: Leaf, reason: str) -> list[RunEntry]:
        """Record a new disk that cannot be watched. Attaching is retried, but the failure is reported
        once."""
        name, anchor = leaf.device.name, read_anchor()
        if name in self._not_watched:
            return []
        self._not_watched.add(name)
        text = f"{name} came and is not watched: {reason}"
        at = anchor.wall(anchor.mono_ns)
        return [NotWatched(Event("not_watched", name, leaf.origin.name, at, anchor.mono_ns, text))]

    def _samples(self, rows: Sequence[_Row], readings: dict[int, Reading]) -> dict[int, DiskSample]:
        # Read the clocks each time, because the wall clock may be set or the machine suspended.
        anchor, cpu, misses = read_anchor(), self._cpu.read(), self._tracers.misses()
        for row in rows:
            row.beside = narrowed(row.beside, readings[row.place])
        return {
            row.place: DiskSample(row.first.disk, readings[row.place], misses, anchor, cpu) for row in rows
        }

    def _blinded(self, samples: Mapping[int, DiskSample]) -> list[RunEntry]:
        """Return the entry about contexts in which the kernel runs no programs, once, when known.

        Wait for the probe only if requests are missing.
        """
        if not self._contexts or not samples:
            return []
        rows = [row for row in self._rows if row.place in samples]
        trusts = (trust(row.first.reading, samples[row.place].reading, None) for row in rows)
        is_over = self._contexts.is_over
        is_missing = not is_over and any(
            drift.drift > 0 for account in trusts for drift in account.drift.values()
        )
        is_blind = self._contexts.skips(_PROBE_S if is_missing else 0.0)
        if is_over or is_blind:
            self._contexts = None
        at_ns = min(sample.reading.sample.end_ns for sample in samples.values())
        return [Blinded(at_ns)] if is_blind else []


def _words_of_arrival(member: Member, arrival: Arrival) -> str:
    leaf = member.leaf
    what = f"does I/O of {leaf.origin.name} now" if leaf.device != leaf.origin else "has come"
    if member.is_back:
        what = "has come back, the same drive,"
    lost = "; ".join(arrival.unexplained)
    return f"{leaf.device.name} {what} and is watched" + (f"; {lost}" if lost else "")


def _in_flight(device: BlockDevice) -> int:
    """Return the requests in flight now, as counted by the kernel."""
    return sum(int(field) for field in (device.disk.attribute("inflight") or "").split())
