"""One watching: from the baseline to the summary, while disks come and go."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from opwatch.clock import read_anchor
from opwatch.collectors.audit.live_discards import LiveDiscards
from opwatch.collectors.block.arrivals import Unwatched
from opwatch.collectors.block.contexts import ContextProbe
from opwatch.collectors.firmware.live import LiveWaf
from opwatch.errors import OpwatchError
from opwatch.host.device import BlockDevice, Leaf
from opwatch.samples.membership import Change, Departure, Member, Membership, Why
from opwatch.samples.observation import Arrival, Event, Leaving, Observation, Sink
from opwatch.samples.observe import observe
from opwatch.samples.sample import DiskSample, WatchedDisk
from opwatch.sinks.terminal import say
from opwatch.trace.contexts import missing_there
from opwatch.trace.derive import derive
from opwatch.trace.tracer_set import TracerSet
from opwatch.trace.trust import Reading, Trust

# However long the intervals are: what comes is unseen until somebody looks.
_LOOK_S = 1.0
_SOON_S = 0.02
# Not more often than this for the sake of short intervals.
_FRESH_S = 0.1
# Summaries of disks that left are kept until the end, but for the oldest of very many.
_MOST_PAST = 256
# What is still being found out at the end is waited for so long.
_PROBE_S = 1.0


@dataclass(slots=True)
class _Row:
    """A disk that is watched. `last` is where its next interval begins."""

    place: int
    member: Member
    first: DiskSample
    last: DiskSample
    arrival: Arrival | None = None
    leaving: Leaving | None = None
    # Its arrival is news until its first interval is written.
    is_news: bool = False

    @property
    def leaf(self) -> Leaf:
        return self.member.leaf

    def has_news(self, now: Reading) -> bool:
        """Whether there is anything to write of the time since its last interval."""
        return self.is_news or bool(derive(self.last.reading.sample, now.sample).ops)


class Watching:
    """Attached from construction to close(). What becomes of the set of disks is said on stderr and told to
    the sink."""

    def __init__(
        self,
        membership: Membership,
        tracers: TracerSet,
        sink: Sink,
        live: LiveWaf,
        discards: LiveDiscards,
        contexts: ContextProbe | None = None,
    ) -> None:
        self._membership, self._tracers, self._sink = membership, tracers, sink
        self._contexts = contexts
        self._live, self._discards = live, discards
        self._unwatched = Unwatched()
        self._unwatched.end_look(membership.registered)
        # By the clock of the readings.
        self._looked = time.monotonic()
        self._rows: list[_Row] = []
        # Of disks that left, for the end.
        self._past: list[Observation] = []
        self._not_watched: dict[str, str] = {}
        leaves = [member.leaf for member in membership.members]
        discards.prepare(leaves)
        try:
            places = tracers.add(leaves)
        except BaseException:
            discards.close()
            raise
        self._begin(membership.members, places, are_late=False)
        self.next_look = self._looked + _SOON_S

    def vanished(self) -> str | None:
        """The first device that was named and is no longer there, or is another one under the same name."""
        return self._membership.vanished()

    def look(self) -> None:
        """See what came and what left, and follow it."""
        self._unwatched.begin_look()
        change = self._membership.look()
        if change:
            self._follow(change)
        self._unwatched.end_look(self._membership.registered)
        self._looked = time.monotonic()
        self.next_look = self._looked + (_SOON_S if self._membership.is_unsettled else _LOOK_S)

    def hint(self) -> None:
        """Something may have changed: look soon, and once for all that is announced until then."""
        self.next_look = min(self.next_look, time.monotonic() + _SOON_S)

    def interval(self) -> None:
        """Write what happened since the last one."""
        if time.monotonic() - self._looked > _FRESH_S:
            self.look()
        self._write_intervals(self._rows, self._tracers.read())

    def summary(self, *, with_rest: bool) -> list[str]:
        """Write it; returns what stayed unexplained. `with_rest`: first what came after the last interval, if
        anything did, so that the intervals add up to the summary."""
        if not self.vanished():
            # A command may have changed something and ended at once.
            self.look()
        self._live.look()
        readings = self._tracers.read_settled()
        for row in self._rows:
            why = self._membership.absence(row.member)
            if why:
                self._mark_left(row, why, readings[row.place])
        if with_rest and any(row.has_news(readings[row.place]) for row in self._rows):
            self._write_intervals(self._rows, readings)
        written = [*self._past, *self._observe(self._rows, self._samples(self._rows, readings), final=True)]
        for observation in written:
            self._sink.write(observation)
        return [line for observation in written for line in observation.unexplained] + list(
            self._not_watched.values()
        )

    def close(self) -> None:
        self._live.stop()
        self._discards.close()
        self._membership.close()

    def _follow(self, change: Change) -> None:
        # What left is read first: another disk may be counted in its place already.
        if change.left:
            self._remove(change.left)
        for leaf, reason in change.refused:
            self._refuse(leaf, reason)
        if not change.came:
            return
        try:
            places = self._tracers.add([member.leaf for member in change.came])
        except (OpwatchError, OSError) as error:
            # An OSError: a disk that came has gone again, while it was being looked at.
            for member in change.came:
                self._membership.forget(member)
                self._refuse(member.leaf, str(error))
        else:
            self._begin(change.came, places, are_late=True)

    def _begin(self, members: Sequence[Member], places: Sequence[int], *, are_late: bool) -> None:
        """Take the first reading of disks that are attached."""
        leaves = dict(zip(places, (member.leaf for member in members), strict=True))
        if not are_late:
            self._add_discards(leaves, may_fail=not self._discards.is_required)
        # Before the first reading: what ends between the two was in flight at the attachment as well.
        in_flight = {place: _in_flight(leaf.device) for place, leaf in leaves.items()}
        first = self._tracers.read_settled(places, 0.05)
        misses, anchor = self._tracers.misses(), read_anchor()
        for place, member in zip(places, members, strict=True):
            disk = self._facts(member, in_flight[place])
            sample = DiskSample(disk, first[place], misses, anchor)
            row = _Row(place, member, first=sample, last=sample)
            self._rows.append(row)
            if are_late:
                row.arrival = self._unwatched.arrival(
                    member.leaf.device, self._membership.registered, row.first.reading, anchor
                )
                row.is_news = True
                self._tell(row, "came", _words_of_arrival(row), row.arrival.at, row.arrival.at_ns)
        if are_late:
            self._add_discards(leaves, may_fail=True)
        self._live.add(list(leaves.values()))

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
        return WatchedDisk(
            device=member.leaf.device.name,
            origin=member.leaf.origin.name,
            level=f"{kind} by {self._tracers.hooks}",
            backend=self._tracers.backend,
            lacks=self._tracers.lacks,
            in_flight=in_flight,
            flush_queues=len(member.leaf.device.hardware_queues),
        )

    def _remove(self, departures: Sequence[Departure]) -> None:
        why = {departure.member: departure.why for departure in departures}
        rows = [row for row in self._rows if row.member in why]
        readings = self._tracers.read([row.place for row in rows])
        for row in rows:
            leaving = self._mark_left(row, why[row.member], readings[row.place])
            words = _words_of_leaving(row, why[row.member])
            self._tell(row, "left", words, leaving.at, leaving.at_ns)
        self._write_intervals(rows, readings)
        self._past += self._observe(rows, self._samples(rows, readings), final=True)
        for row in rows:
            self._rows.remove(row)
            # Before the block tracer that it is chained to.
            self._discards.drop(row.place)
            self._tracers.drop(row.place)
            self._live.drop(row.leaf)
            row.member.close()
        while len(self._past) > _MOST_PAST:
            self._sink.write(self._past.pop(0))

    def _mark_left(self, row: _Row, why: Why, last: Reading) -> Leaving:
        anchor = read_anchor()
        at_ns = last.sample.end_ns
        doubt = None
        if why is Why.REPLACED:
            since = anchor.wall(int(self._looked * 1e9)).astimezone()
            doubt = f"another disk took its place: what was counted after {since:%H:%M:%S} may be of that"
        row.leaving = Leaving(anchor.wall(at_ns), at_ns, why.value, doubt)
        return row.leaving

    def _refuse(self, leaf: Leaf, reason: str) -> None:
        """A disk that came and cannot be watched. It is tried again, and said once."""
        name, anchor = leaf.device.name, read_anchor()
        if name in self._not_watched:
            return
        text = self._not_watched[name] = f"{name} came and is not watched: {reason}"
        say(text)
        at = anchor.wall(anchor.mono_ns)
        self._sink.tell(Event("not_watched", name, leaf.origin.name, at, anchor.mono_ns, text))

    def _tell(self, row: _Row, kind: str, text: str, at: datetime, at_ns: int) -> None:
        say(text)
        leaf = row.leaf
        arrival, leaving = (row.arrival, None) if kind == "came" else (None, row.leaving)
        self._sink.tell(
            Event(
                kind=kind,
                device=leaf.device.name,
                origin=leaf.origin.name,
                at=at,
                at_ns=at_ns,
                text=text,
                arrival=arrival,
                leaving=leaving,
            )
        )

    def _write_intervals(self, rows: Sequence[_Row], readings: dict[int, Reading]) -> None:
        samples = self._samples(rows, readings)
        for observation in self._observe(rows, samples, final=False):
            self._sink.write(observation)
        for row in rows:
            row.last, row.is_news = samples[row.place], False

    def _samples(self, rows: Sequence[_Row], readings: dict[int, Reading]) -> dict[int, DiskSample]:
        # Read anew each time: the wall clock may be set, or the machine may sleep, in between.
        anchor, misses = read_anchor(), self._tracers.misses()
        return {row.place: DiskSample(row.first.disk, readings[row.place], misses, anchor) for row in rows}

    def _observe(
        self, rows: Sequence[_Row], samples: dict[int, DiskSample], *, final: bool
    ) -> list[Observation]:
        self._discards.look()
        return [self._observation(row, samples[row.place], final=final) for row in rows]

    def _observation(self, row: _Row, now: DiskSample, *, final: bool) -> Observation:
        """What the samples tell, and what is known besides."""
        then = row.first if final else row.last
        observation = observe(then, now, final=final)
        return replace(
            observation,
            live=self._live.get(now.disk.device),
            discards=self._discards.get(row.place, then.reading.sample, now.reading.sample, final=final),
            arrival=row.arrival if final or row.is_news else None,
            leaving=row.leaving,
            blind=self._blind(observation.trust) if final else None,
        )

    def _blind(self, account: Trust) -> str | None:
        """Where this kernel runs no programs. Worth waiting for when something is missing."""
        missing = any(each.drift > 0 for each in account.drift.values())
        if self._contexts and self._contexts.skips(_PROBE_S if missing else 0.0):
            return missing_there(account.drift)
        return None


def _words_of_arrival(row: _Row) -> str:
    leaf = row.leaf
    what = f"does I/O of {leaf.origin.name} now" if leaf.device != leaf.origin else "has come"
    lost = "; ".join(row.arrival.unexplained) if row.arrival else ""
    return f"{leaf.device.name} {what} and is watched" + (f"; {lost}" if lost else "")


def _words_of_leaving(row: _Row, why: Why) -> str:
    what = {
        Why.GONE: "has gone",
        Why.REPLACED: "was replaced by another disk of that name",
        Why.RESIZED: "lies at other sectors now",
        Why.UNUSED: f"no longer does I/O of {row.leaf.origin.name}",
    }[why]
    return f"{row.leaf.device.name} {what}; its counts until then are in the summary"


def _in_flight(device: BlockDevice) -> int:
    """Requests in flight now, by the kernel's count."""
    return sum(int(field) for field in (device.disk.attribute("inflight") or "").split())
