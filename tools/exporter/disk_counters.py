"""The watched disks: attached when they come, read at the scrape."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from opwatch.clock import read_anchor
from opwatch.collectors.block.blk import BlockTracer, OwnerLimits
from opwatch.collectors.block.contexts import ContextProbe
from opwatch.collectors.block.owners import LiveOwners
from opwatch.errors import OpwatchError
from opwatch.host.device import Devices, Leaf
from opwatch.metrics.family import MetricSamples
from opwatch.metrics.kernel import LossCounter, add_disk_metrics, add_refused_disk
from opwatch.metrics.owner_ranking import OwnerRanking, drop_histograms
from opwatch.owners.cells import OwnerGrouping
from opwatch.samples.membership import Change, Member, Membership
from opwatch.samples.sample import MAX_DISKS, DiskSample, WatchedDisk
from opwatch.samples.selection import Selection
from opwatch.tools.exporter.access import HostAccess
from opwatch.tools.exporter.threads import start_thread
from opwatch.tools.runs.disk_facts import describe_watched_disk, read_in_flight
from opwatch.trace.tracer_set import MAX_PARTS, TracerSet
from opwatch.trace.tracing import Tracer
from opwatch.trace.trust import Reading

# A named device that disappears is waited for without end: the exporter runs for months.
_RETURN_S = float("inf")
# Time before another attempt to attach to disks that were refused, or whose tracer was lost.
RETRY_S = 30.0
# Names kept of control groups, besides those that had requests at the last reading.
_MAX_OWNER_NAMES = 512
# The ranking adds growths, so an owner that comes back needs no memory of what it did before.
_OWNER_LIMITS = OwnerLimits(kept=64, most=256, idle_ns=10 * 10**9, remembered=256)


@dataclass(frozen=True, slots=True)
class CountingOptions:
    """What to count, besides the default."""

    queue_time: bool = False
    by: OwnerGrouping | None = None


@dataclass(slots=True)
class _WatchedDisk:
    """A disk at a place of its group."""

    place: int
    member: Member
    facts: WatchedDisk
    losses: LossCounter
    ranking: OwnerRanking | None


class DiskGroup:
    """Disks that were attached together. Made in a thread, and used in the loop's thread from then on."""

    def __init__(self, access: HostAccess, members: Sequence[Member], options: CountingOptions) -> None:
        def attach(leaves: Sequence[Leaf]) -> Tracer:
            return access.attach_tracer(leaves, queue_time=options.queue_time, by=options.by)

        self._options = options
        self._tracers = TracerSet(attach, MAX_DISKS)
        places = self._tracers.add_leaves([member.leaf for member in members])
        for tracer, _ in self._tracers.with_places():
            if options.by and isinstance(tracer, BlockTracer):
                tracer.limit_owners(_OWNER_LIMITS)
        try:
            in_flight = [read_in_flight(member.leaf.device) for member in members]
            readings = self._tracers.read_first(places)
        except BaseException:
            self._tracers.close()
            raise
        self._owners = LiveOwners(self._tracers, options.by, _MAX_OWNER_NAMES)
        misses, anchor = self._tracers.read_misses(), read_anchor()
        self.disks: list[_WatchedDisk] = []
        for place, member, flying in zip(places, members, in_flight, strict=True):
            facts = describe_watched_disk(member.leaf, self._tracers, flying)
            # The first sample is kept for as long as the disk, so without its histograms.
            reading = readings[place]
            small = Reading(
                drop_histograms(reading.sample), reading.before, reading.after, reading.no_witness
            )
            losses = LossCounter(DiskSample(facts, small, misses, anchor))
            self.disks.append(
                _WatchedDisk(place, member, facts, losses, OwnerRanking() if options.by else None)
            )

    def add_metrics(self, samples: MetricSamples, *, is_blind: bool) -> None:
        """Read the disks, and add their counters. Raise OpwatchError if the tracer is lost."""
        readings = self._tracers.read()
        misses, anchor = self._tracers.read_misses(), read_anchor()
        owners = self._owners.read_owners(readings)
        for disk in self.disks:
            reading = readings[disk.place]
            sample = DiskSample(disk.facts, reading, misses, anchor)
            lost = disk.losses.update(sample, is_blind=is_blind)
            add_disk_metrics(samples, sample, lost, with_queue=self._options.queue_time)
            if disk.ranking and disk.place in owners:
                disk.ranking.update_counts(owners[disk.place], reading.sample)
                disk.ranking.add_metrics(samples, disk.facts.device)

    def remove_disk(self, disk: _WatchedDisk) -> None:
        """Forget a disk that left. close() follows the last one."""
        self.disks.remove(disk)
        if self.disks:
            self._tracers.remove_leaf(disk.place)

    def close(self) -> None:
        with suppress(OpwatchError):
            self._tracers.close()


class DiskCounters:
    """Follows the machine's disks, or the named ones, from start() to close().

    Methods are called in the loop's thread. Programs are attached and detached in other threads, because the
    kernel takes its time for that.
    """

    def __init__(
        self,
        access: HostAccess,
        devices: Devices,
        names: Sequence[str] | None,
        options: CountingOptions,
        call_soon: Callable[[Callable[[], None]], None],
        say: Callable[[str], None],
    ) -> None:
        self._access, self._options, self._call_soon, self._say = access, options, call_soon, say
        selection = Selection(devices, names)
        self.notes = selection.list_notes()
        self._membership = Membership(devices, selection, _RETURN_S)
        self._groups: list[DiskGroup] = []
        # Members whose programs are being attached, or were refused with a reason.
        self._attaching: list[Member] = []
        self._refused: dict[str, str] = {}
        # The probe for contexts in which the kernel runs no programs needs privileges.
        self._contexts = ContextProbe() if access.is_broker_up is None else None

    def start(self) -> None:
        """Attach to the disks that are there, and wait for that. Raise OpwatchError if that fails."""
        members = list(self._membership.members)
        if members:
            self._groups.append(DiskGroup(self._access, members, self._options))
        if self._contexts:
            self._contexts.start()

    @property
    def leaves(self) -> list[Leaf]:
        """Return the disks of the selection, watched or not."""
        return [member.leaf for member in self._membership.members]

    @property
    def is_ready(self) -> bool:
        """Return True if there are counters to read, or no disk to watch."""
        return bool(self._groups) or not self._membership.members

    def add_metrics(self, samples: MetricSamples) -> None:
        """Read all disks now. A disk that cannot be read has a reason in place of counters."""
        is_blind = self._contexts is not None and self._contexts.has_skips()
        for group in list(self._groups):
            try:
                group.add_metrics(samples, is_blind=is_blind)
            except (OpwatchError, OSError) as error:
                self._lose_group(group, str(error))
        for name, reason in self._refused.items():
            add_refused_disk(samples, name, reason)

    def scan_disks(self) -> bool:
        """Look for disks that came or left, and return True if there were any."""
        before = self._membership.registered
        change = self._membership.poll_changes()
        self._drop_refusals(before)
        if change is None:
            return False
        self._refused |= {leaf.device.name: reason for leaf, reason in change.refused}
        self._remove_disks(change)
        self._start_attaching(list(change.came))
        return True

    def _drop_refusals(self, before: Mapping[str, int]) -> None:
        """Forget the refusals of devices that are not the same as at the scan before."""
        now = self._membership.registered
        self._refused = {
            name: reason
            for name, reason in self._refused.items()
            if name in now and now[name] == before.get(name)
        }

    @property
    def is_unsettled(self) -> bool:
        """Return True if another scan should follow soon, because a new disk is not complete."""
        return self._membership.is_unsettled

    def retry_refused(self) -> None:
        """Attach again to disks that were refused, e.g. by a broker that was restarting."""
        watched = {disk.member for group in self._groups for disk in group.disks}
        waiting = [
            member
            for member in self._membership.members
            if member not in watched and member not in self._attaching
        ]
        self._start_attaching(waiting)

    def _remove_disks(self, change: Change) -> None:
        gone = {departure.member for departure in change.left}
        for member in gone:
            self._refused.pop(member.name, None)
        for group in list(self._groups):
            for disk in [disk for disk in group.disks if disk.member in gone]:
                group.remove_disk(disk)
            if not group.disks:
                self._groups.remove(group)
                self._detach(group)
        for member in gone:
            member.close()

    def _start_attaching(self, members: list[Member]) -> None:
        if not members:
            return
        if len(self._groups) >= MAX_PARTS:
            reason = (
                f"{MAX_PARTS} sets of programs are attached already, one for each arrival of disks; restart "
                "the exporter to watch this disk, too"
            )
            self._refused |= {member.name: reason for member in members}
            return
        self._attaching += members

        def attach() -> None:
            made: DiskGroup | Exception
            try:
                made = DiskGroup(self._access, members, self._options)
            # OSError: a new disk disappeared while it was inspected.
            except (OpwatchError, OSError) as error:
                made = error
            self._call_soon(lambda: self._end_attaching(members, made))

        try:
            start_thread("attach", attach)
        except OpwatchError as error:
            self._end_attaching(members, error)

    def _end_attaching(self, members: list[Member], made: DiskGroup | Exception) -> None:
        self._attaching = [member for member in self._attaching if member not in members]
        if isinstance(made, Exception):
            # A disk may have left meanwhile.
            for member in [member for member in members if member in self._membership.members]:
                if self._refused.get(member.name) != str(made):
                    self._say(f"{member.name} is not watched: {made}")
                self._refused[member.name] = str(made)
            return
        for disk in list(made.disks):
            self._refused.pop(disk.member.name, None)
            # The disk may have left meanwhile.
            if disk.member not in self._membership.members:
                made.remove_disk(disk)
        if made.disks:
            self._groups.append(made)
        else:
            self._detach(made)

    def _lose_group(self, group: DiskGroup, reason: str) -> None:
        """Give up a group whose tracer does not answer. retry_refused() attaches again."""
        self._say(f"the tracer is lost and will be attached again: {reason}")
        self._groups.remove(group)
        self._refused |= {disk.member.name: reason for disk in group.disks}
        self._detach(group)

    @staticmethod
    def _detach(group: DiskGroup) -> None:
        """Close a group in a thread, because the kernel takes its time."""
        try:
            start_thread("detach", group.close)
        except OpwatchError:
            group.close()

    def close(self) -> None:
        for group in self._groups:
            group.close()
        self._groups = []
        self._membership.close()
