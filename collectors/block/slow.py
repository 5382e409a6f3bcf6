"""Read requests that exceeded a latency limit from the tracers of a watch."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping

from opwatch.collectors.block.blk import BlockTracer
from opwatch.collectors.owners.cgroups import find_io_hierarchy, read_cgroup_names
from opwatch.host.device import Leaf
from opwatch.samples.entries import SlowRequestsSeen
from opwatch.samples.slow import SlowRequest
from opwatch.trace.slow import SlowRecord, Submitter
from opwatch.trace.tracer_set import TracerSet

# Minimum time between name lookups, because each walks all cgroups.
_NAMES_S = 5.0


class LiveSlowRequests:
    """Reads slow requests from tracers attached with this limit in ns. Empty for a limit of 0."""

    def __init__(self, tracers: TracerSet, limit_ns: int) -> None:
        self._tracers, self.limit_ns = tracers, limit_ns
        self._noted: dict[int, int] = {}
        self._last: dict[int, int] = {}
        # Names of the processes' control groups, and of the groups that the kernel accounts to.
        self._cgroups: dict[int, str] = {}
        self._accounted: dict[int, str] = {}
        self._looked = float("-inf")

    def explain_missing(self, leaf: Leaf) -> tuple[str, ...]:
        """Return the reason why slow requests of a disk are not recorded although requested."""
        if not self.limit_ns or leaf.device.disk.is_request_based:
            return ()
        return ("individual slow requests: the driver is bio-based and has no requests",)

    def read_slow(self, leaves: Mapping[int, Leaf], at_ns: int) -> list[SlowRequestsSeen]:
        """Return an entry if these disks have new slow requests, by place. `at_ns` is the time of their
        samples."""
        if not self.limit_ns:
            return []
        wanted = {place for place, leaf in leaves.items() if not self.explain_missing(leaf)}
        counts: dict[int, int] = {}
        requests: list[SlowRequest] = []
        for tracer, places in self._tracers.with_places():
            if isinstance(tracer, BlockTracer):
                records, left_out = tracer.take_slow()
                counts |= self._count_requests(records, left_out, places, wanted)
                self._look_up_names(records)
                # The counts of a new disk start at its first reading.
                requests += [
                    self._make_request(record, places[record.leaf])
                    for record in records
                    if places[record.leaf] in self._last and places[record.leaf] in wanted
                ]
        before, self._last = self._last, counts
        return [SlowRequestsSeen(at_ns, self.limit_ns, counts, tuple(requests))] if counts != before else []

    def _count_requests(
        self, records: list[SlowRecord], left_out: list[int], places: list[int], wanted: Collection[int]
    ) -> dict[int, int]:
        """Return the number of slow requests since attachment, recorded or not."""
        for record in records:
            place = places[record.leaf]
            self._noted[place] = self._noted.get(place, 0) + 1
        return {
            place: self._noted.get(place, 0) + lost
            for place, lost in zip(places, left_out, strict=True)
            if place in wanted
        }

    def _make_request(self, record: SlowRecord, place: int) -> SlowRequest:
        return SlowRequest(
            place=place,
            end_ns=record.end_ns,
            op=record.op,
            sector=record.sector,
            bytes=record.bytes,
            latency_ns=record.latency_ns,
            queue_ns=record.queue_ns,
            submitter=record.submitter,
            pid=record.pid,
            name=record.name,
            cgroup_number=record.cgroup,
            cgroup=self._names_for(record).get(record.cgroup) if record.cgroup else None,
        )

    def _names_for(self, record: SlowRecord) -> dict[int, str]:
        """Return the names of the hierarchy to which the record's group number belongs."""
        return self._cgroups if record.submitter is Submitter.PROCESS else self._accounted

    def _look_up_names(self, records: list[SlowRecord]) -> None:
        new = [record for record in records if record.cgroup and record.cgroup not in self._names_for(record)]
        if not new or time.monotonic() - self._looked < _NAMES_S:
            return
        hierarchy = find_io_hierarchy()
        self._cgroups = read_cgroup_names()
        self._accounted = self._cgroups if hierarchy.version == 2 else hierarchy.read_names()
        self._looked = time.monotonic()
