"""A live watch as a stream of entries, from the baseline to the end, while disks come and go."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from opwatch.clock import read_anchor
from opwatch.collectors.audit.live_discards import LiveDiscards
from opwatch.collectors.block.arrivals import UnwatchedCounts
from opwatch.collectors.block.contexts import ContextProbe
from opwatch.collectors.block.owners import LiveOwners
from opwatch.collectors.block.pressure import PressureClock
from opwatch.collectors.block.slow import LiveSlowRequests
from opwatch.collectors.firmware.live import LiveWaf
from opwatch.cpu import CpuClock
from opwatch.errors import OpwatchError
from opwatch.host.device import Leaf
from opwatch.owners.cells import OwnerGrouping
from opwatch.samples.entries import (
    CountersRead,
    DiskAdded,
    DiskRemoved,
    EventReported,
    IntervalEnded,
    PressureRead,
    ProgramsSkipped,
    RunEnded,
    RunEntry,
)
from opwatch.samples.membership import Change, Departure, DepartureReason, Member, Membership
from opwatch.samples.observation import Arrival, Event, Leaving
from opwatch.samples.sample import DiskSample, WatchedDisk
from opwatch.sinks.terminal import print_message
from opwatch.times import format_duration
from opwatch.tools.runs.disk_facts import describe_watched_disk, read_in_flight
from opwatch.tools.runs.queue_settings import QueueSettingsWatch
from opwatch.trace.surplus import SurplusBounds, compute_bounds, narrow_bounds
from opwatch.trace.tracer_set import TracerSet
from opwatch.trace.trust import Reading, account_losses
from opwatch.trace.unavailable import CPU

# Longest time between scans of sysfs, even if intervals are longer. A new disk is not counted before its
# scan.
_MAX_SCAN_S = 1.0
_HINTED_SCAN_S = 0.02
# Shortest time between scans, so that short intervals do not cause many.
_MIN_SCAN_S = 0.1
# Longest wait at the end for the context probe.
_PROBE_S = 1.0


@dataclass(slots=True)
class _WatchedRow:
    """A watched disk at a place, from the first sample on. `beside` bounds the requests counted by the kernel
    but not by the tracer, over all readings."""

    place: int
    member: Member
    first: DiskSample
    beside: SurplusBounds | None

    @property
    def leaf(self) -> Leaf:
        return self.member.leaf


class DiskWatcher:
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
        by: OwnerGrouping | None = None,
    ) -> None:
        self._membership, self._tracers = membership, tracers
        self._slow = LiveSlowRequests(tracers, slow_ns)
        self._owners = LiveOwners(tracers, by)
        # The probe is dropped once it has an answer.
        self._contexts, self._cpu, self._settings = contexts, CpuClock(), QueueSettingsWatch()
        self._live, self._discards, self._pressure = live, discards, PressureClock()
        self._unwatched = UnwatchedCounts()
        self._unwatched.end_scan(membership.registered)
        # Time of the last sysfs scan, by the clock of the readings.
        self._looked = time.monotonic()
        self._rows: list[_WatchedRow] = []
        self._not_watched: set[str] = set()
        leaves = [member.leaf for member in membership.members]
        discards.prepare_programs(leaves)
        try:
            places = tracers.add_leaves(leaves)
        except BaseException:
            discards.close()
            self._cpu.close()
            raise
        self._begun = self._start_disks(membership.members, places, are_late=False)
        self.next_look = self._looked + _HINTED_SCAN_S

    def make_initial_entries(self) -> list[RunEntry]:
        """Return the entries of the disks present at the start."""
        return list(self._begun)

    @property
    def leaves(self) -> list[Leaf]:
        """Return the leaves that are watched now."""
        return [row.leaf for row in self._rows]

    def find_vanished(self) -> str | None:
        """Return the first named device that is gone and no longer waited for, or None."""
        return self._membership.find_vanished()

    def find_absent(self) -> str | None:
        """Return the first named device that is gone, waited for or not."""
        return self._membership.find_absent()

    def scan_disks(self) -> list[RunEntry]:
        """Scan for added and removed disks, and attach or detach."""
        self._unwatched.begin_scan()
        change = self._membership.poll_changes()
        entries = self._apply_change(change) if change else []
        self._unwatched.end_scan(self._membership.registered)
        self._looked = time.monotonic()
        self.next_look = self._looked + (_HINTED_SCAN_S if self._membership.is_unsettled else _MAX_SCAN_S)
        return [*self._read_drives(), *entries]

    def schedule_scan(self) -> None:
        """Schedule a scan soon. Hints until then share one scan."""
        self.next_look = min(self.next_look, time.monotonic() + _HINTED_SCAN_S)

    def read_interval(self) -> list[RunEntry]:
        """Return the entries since the last interval."""
        is_due = time.monotonic() - self._looked > _MIN_SCAN_S
        entries = self.scan_disks() if is_due else []
        samples = self._make_samples(self._rows, self._tracers.read())
        discards, owners = self._discards.read_samples(), self._owners.read_owners(samples)
        # Entries known by now belong to the current interval, but are processed only after the samples are
        # taken.
        looks = [*self._read_drives(), *self._report_blind_contexts(samples)]
        looks += self._report_machine(samples)
        return [*entries, *looks, *self._collect_slow(samples), IntervalEnded(samples, discards, owners)]

    def _report_machine(self, samples: Mapping[int, DiskSample]) -> list[RunEntry]:
        """Return the changes of settings of the disks' queues, and the pressure totals if they are due, with
        the time of these samples."""
        at_ns = min((sample.reading.sample.end_ns for sample in samples.values()), default=0)
        disks = [(row.place, row.leaf.device, row.first.disk.settings) for row in self._rows]
        totals = self._pressure.read_due() if samples else None
        pressure = [PressureRead(at_ns, totals)] if totals else []
        return [*self._settings.report_changes(disks, at_ns), *pressure]

    def end_watch(self, *, with_rest: bool) -> list[RunEntry]:
        """End the watch.

        `with_rest` reports the remainder after the last interval as an interval, if any I/O occurred, so the
        intervals add up to the summary.
        """
        # A command may have changed the disks just before it ended.
        entries = [] if self.find_vanished() else self.scan_disks()
        self._live.poll_now()
        entries += self._read_drives()
        readings = self._tracers.read_settled()
        leaving = {
            row.place: self._make_leaving(why, readings[row.place])
            for row in self._rows
            if (why := self._membership.find_absence(row.member))
        }
        samples = self._make_samples(self._rows, readings)
        ended = RunEnded(
            samples=samples,
            discards=self._discards.read_samples(),
            leaving=leaving,
            with_rest=with_rest,
            owners=self._owners.read_owners(samples),
        )
        return [*entries, *self._report_blind_contexts(samples), *self._collect_slow(samples), ended]

    def close(self) -> None:
        self._live.stop()
        self._discards.close()
        self._membership.close()
        self._cpu.close()

    def _apply_change(self, change: Change) -> list[RunEntry]:
        # Read disks that left first, because another disk may already be counted in their place.
        entries = self._remove_disks(change.left) if change.left else []
        for leaf, reason in change.refused:
            entries += self._record_refusal(leaf, reason)
        if not change.came:
            return entries
        try:
            places = self._tracers.add_leaves([member.leaf for member in change.came])
        except (OpwatchError, OSError) as error:
            # OSError: a new disk disappeared while it was being inspected.
            for member in change.came:
                self._membership.remove_member(member)
                entries += self._record_refusal(member.leaf, str(error))
            return entries
        return entries + self._start_disks(change.came, places, are_late=True)

    def _start_disks(
        self, members: Sequence[Member], places: Sequence[int], *, are_late: bool
    ) -> list[RunEntry]:
        """Take the first reading of attached disks."""
        leaves = dict(zip(places, (member.leaf for member in members), strict=True))
        if not are_late:
            self._add_discards(leaves, may_fail=not self._discards.is_required)
        # Read before the first sample: requests that end in between were in flight at attach time as well.
        in_flight = {place: read_in_flight(leaf.device) for place, leaf in leaves.items()}
        readings = self._tracers.read_first(places)
        misses, anchor, cpu = self._tracers.read_misses(), read_anchor(), self._cpu.read_times()
        owners = self._owners.read_owners(places)
        if are_late:
            self._add_discards(leaves, may_fail=True)
        self._live.add_leaves(list(leaves.values()))
        discards = self._discards.get_latest_samples()
        entries: list[RunEntry] = []
        for place, member in zip(places, members, strict=True):
            disk = self._build_facts(member, in_flight[place])
            sample = DiskSample(disk, readings[place], misses, anchor, cpu)
            self._rows.append(_WatchedRow(place, member, sample, compute_bounds(sample.reading)))
            arrival = self._make_arrival(member.leaf, sample) if are_late else None
            self._not_watched.discard(member.name)
            entries.append(
                DiskAdded(
                    place=place,
                    sample=sample,
                    drive=self._live.drive_of(member.leaf),
                    discards=discards.get(place),
                    arrival=arrival,
                    text=_describe_arrival(member, arrival) if arrival else "",
                    owners=owners.get(place),
                )
            )
        return entries + self._collect_slow({row.place: row.first for row in self._rows})

    def _collect_slow(self, samples: Mapping[int, DiskSample]) -> list[RunEntry]:
        """Return the requests over the latency limit since the last call, with the time of these samples."""
        at_ns = min((sample.reading.sample.end_ns for sample in samples.values()), default=0)
        return [*self._slow.read_slow({row.place: row.leaf for row in self._rows}, at_ns)]

    def _make_arrival(self, leaf: Leaf, first: DiskSample) -> Arrival:
        registered = self._membership.registered
        return self._unwatched.describe_arrival(leaf.device, registered, first.reading, first.anchor)

    def _add_discards(self, leaves: dict[int, Leaf], *, may_fail: bool) -> None:
        try:
            for tracer, places in self._tracers.group_by_tracer(leaves):
                self._discards.add_leaves({place: leaves[place] for place in places}, tracer)
        except OpwatchError as error:
            if not may_fail:
                raise
            names = ", ".join(leaf.device.name for leaf in leaves.values())
            print_message(f"the senders of discards on {names} are unknown: {error}")

    def _build_facts(self, member: Member, in_flight: int) -> WatchedDisk:
        no_cpu = [f"{CPU}: {self._cpu.problem}"] if self._cpu.problem else []
        lacks = (*self._slow.explain_missing(member.leaf), *no_cpu)
        settings = self._settings.read_first(member.leaf.device)
        return describe_watched_disk(member.leaf, self._tracers, in_flight, lacks, settings)

    def _read_drives(self) -> list[RunEntry]:
        return [CountersRead(sample) for sample in self._live.take_samples()]

    def _remove_disks(self, departures: Sequence[Departure]) -> list[RunEntry]:
        why = {departure.member: departure.why for departure in departures}
        rows = [row for row in self._rows if row.member in why]
        readings = self._tracers.read([row.place for row in rows])
        # Another disk may have taken the place of a missing disk before the reading, and then counts in it.
        gone = [member for member in why if why[member] is DepartureReason.GONE]
        why |= {member: self._membership.find_absence(member) or DepartureReason.GONE for member in gone}
        samples, discards = self._make_samples(rows, readings), self._discards.read_samples()
        owners = self._owners.read_owners(samples)
        entries = [*self._read_drives(), *self._report_blind_contexts(samples), *self._collect_slow(samples)]
        for row in rows:
            self._unwatched.record_departure(row.leaf.device, row.beside, readings[row.place])
            leaving = self._make_leaving(why[row.member], readings[row.place])
            entries.append(
                DiskRemoved(
                    place=row.place,
                    sample=samples[row.place],
                    leaving=leaving,
                    text=self._describe_leaving(row.leaf, why[row.member]),
                    discards=discards.get(row.place),
                    owners=owners.get(row.place),
                )
            )
            self._rows.remove(row)
            # Detach discards before the block tracer to which they are chained.
            self._discards.remove_leaf(row.place)
            self._tracers.remove_leaf(row.place)
            self._live.remove_leaf(row.leaf)
            row.member.close()
        return entries

    def _describe_leaving(self, leaf: Leaf, why: DepartureReason) -> str:
        what = {
            DepartureReason.GONE: "is gone",
            DepartureReason.REPLACED: "was replaced by another disk of the same name",
            DepartureReason.RESIZED: "is now at other sectors",
            DepartureReason.UNUSED: f"no longer carries I/O of {leaf.origin.name}",
        }[why]
        words = f"{leaf.device.name} {what}; the summary has its counts up to then"
        if self._membership.find_absent() == leaf.origin.name:
            words += f"; waiting {format_duration(self._membership.return_within_s)} for it to come back"
        return words

    def _make_leaving(self, why: DepartureReason, last: Reading) -> Leaving:
        anchor = read_anchor()
        at_ns = last.sample.end_ns
        doubt = None
        if why is DepartureReason.REPLACED:
            since = anchor.to_wall_time(int(self._looked * 1e9)).astimezone()
            doubt = f"another disk took its place: counts after {since:%H:%M:%S} may belong to that disk"
        return Leaving(anchor.to_wall_time(at_ns), at_ns, why.value, doubt)

    def _record_refusal(self, leaf: Leaf, reason: str) -> list[RunEntry]:
        """Record a new disk that cannot be watched. Attaching is retried, but the failure is reported
        once."""
        name, anchor = leaf.device.name, read_anchor()
        if name in self._not_watched:
            return []
        self._not_watched.add(name)
        text = f"{name} appeared and is not watched: {reason}"
        at = anchor.to_wall_time(anchor.mono_ns)
        return [EventReported(Event("not_watched", name, leaf.origin.name, at, anchor.mono_ns, text))]

    def _make_samples(
        self, rows: Sequence[_WatchedRow], readings: dict[int, Reading]
    ) -> dict[int, DiskSample]:
        # Read the clocks each time, because the wall clock may be set or the machine suspended.
        anchor, cpu, misses = read_anchor(), self._cpu.read_times(), self._tracers.read_misses()
        for row in rows:
            row.beside = narrow_bounds(row.beside, readings[row.place])
        return {
            row.place: DiskSample(row.first.disk, readings[row.place], misses, anchor, cpu) for row in rows
        }

    def _report_blind_contexts(self, samples: Mapping[int, DiskSample]) -> list[RunEntry]:
        """Return the entry about contexts in which the kernel runs no programs, once, when known.

        Wait for the probe only if requests are missing.
        """
        if not self._contexts or not samples:
            return []
        rows = [row for row in self._rows if row.place in samples]
        trusts = (account_losses(row.first.reading, samples[row.place].reading, None) for row in rows)
        is_over = self._contexts.is_over
        is_missing = not is_over and any(
            drift.drift > 0 for account in trusts for drift in account.drift.values()
        )
        is_blind = self._contexts.has_skips(_PROBE_S if is_missing else 0.0)
        if is_over or is_blind:
            self._contexts = None
        at_ns = min(sample.reading.sample.end_ns for sample in samples.values())
        return [ProgramsSkipped(at_ns)] if is_blind else []


def _describe_arrival(member: Member, arrival: Arrival) -> str:
    leaf = member.leaf
    what = f"now carries I/O of {leaf.origin.name}" if leaf.device != leaf.origin else "appeared"
    if member.is_back:
        what = "is back (the same drive)"
    lost = "; ".join(arrival.unexplained)
    return f"{leaf.device.name} {what} and is watched" + (f"; {lost}" if lost else "")
