"""Discards on the disks of a watch, by origin. Runs next to the request tracers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from opwatch.collectors.audit.discard_programs import Loading, loader
from opwatch.collectors.audit.discards import DiscardTracer
from opwatch.collectors.block.blk import BlockTracer
from opwatch.collectors.owners.cgroups import cgroup_names
from opwatch.collectors.stack.discard_limits import limits_of
from opwatch.host.device import BlockDevice, Leaf
from opwatch.host.usage import read_usage
from opwatch.trace.tracing import Tracer
from opwatch.trim.audit.flow import Origin, Trace
from opwatch.trim.audit.live import MOST_NAME, DiscardSample, sample_of
from opwatch.trim.audit.programs import Following


def _following(*, is_chained: bool) -> Following:
    """Return the tracepoints that are cheap enough for any workload."""
    return Following(functions=False, commands=False, chained=is_chained)


class _DiscardPart:
    """Discard tracer for the disks of a block tracer."""

    def __init__(self, leaves: Mapping[int, Leaf], tracer: Tracer, loading: Loading | None) -> None:
        whole = {place: leaf.device.disk for place, leaf in leaves.items()}
        disks = {disk.name: disk for disk in whole.values()}
        # By place: disk and partition number, cached to avoid sysfs reads in each interval.
        self.devices = {place: (whole[place].name, _number_of(leaf.device)) for place, leaf in leaves.items()}
        granules = {name: granule for name, disk in disks.items() if (granule := limits_of(disk).granule())}
        # The block tracer sees each request already, including I/O that waits behind discards.
        chain = tracer.chain if isinstance(tracer, BlockTracer) else None
        self.is_chained = chain is not None
        if loading and not chain:
            loading.abandon()
            loading = None
        self.tracer = DiscardTracer(
            list(disks.values()),
            granules,
            _following(is_chained=self.is_chained),
            stalls=True,
            programs=loading.programs() if loading else None,
            chain=chain,
        )
        self.now = self.tracer.read()
        # Samples of the last trace, which rarely changes between reads.
        self._samples: dict[int, DiscardSample] = {}

    def read(self) -> bool:
        """Read the trace again, and return whether these disks got new discards."""
        before, self.now = self.now, self.tracer.read()
        if self.now == before:
            return False
        self._samples = {}
        return self._origins(before) != self._origins(self.now)

    def _origins(self, trace: Trace) -> list[Origin]:
        """Return the origins on this part's disks only, because the programs follow all disks."""
        names = {disk[:MOST_NAME] for disk, _ in self.devices.values()}
        return [origin for origin in trace.origins if origin.disk in names]

    def samples(self, cgroups: Mapping[int, str], mounts: Mapping[str, str]) -> dict[int, DiscardSample]:
        """Return the last trace by place, with the names of the origins."""
        if self._samples.keys() != self.devices.keys():
            self._samples = {
                place: sample_of(self.now, disk, number, cgroups, mounts, is_chained=self.is_chained)
                for place, (disk, number) in self.devices.items()
            }
        return self._samples


def _number_of(device: BlockDevice) -> str | None:
    """Return a partition's device number, or None for a whole disk."""
    return ":".join(map(str, device.dev)) if device.is_partition else None


class LiveDiscards:
    """Follows discards from add() until close(), which must precede closing the block tracers.

    `wanted` decides for each set of new disks. `is_required`: a watch without discards is useless.
    `is_chained`: the block tracer is expected to call our programs.
    """

    def __init__(
        self,
        wanted: Callable[[Sequence[Leaf]], bool],
        *,
        is_required: bool = False,
        is_chained: bool = False,
    ) -> None:
        self._wanted = wanted
        self.is_required, self._is_chained = is_required, is_chained
        self._loading: Loading | None = None
        self._parts: list[_DiscardPart] = []
        self._look_up_names()

    def prepare(self, leaves: Sequence[Leaf]) -> None:
        """Load the programs for the first disks while the block tracer loads."""
        if self._is_chained and self._wanted(leaves):
            self._loading = Loading(loader(_following(is_chained=True), stalls=True))

    def add(self, leaves: Mapping[int, Leaf], tracer: Tracer) -> None:
        """Attach to more leaves, by place. `tracer` counts their requests."""
        if self._wanted(list(leaves.values())):
            loading, self._loading = self._loading, None
            self._parts.append(_DiscardPart(leaves, tracer, loading))
            self._look_up_names()

    def drop(self, place: int) -> None:
        """Remove a leaf. A tracer closes with its last leaf."""
        for part in [part for part in self._parts if place in part.devices]:
            del part.devices[place]
            if not part.devices:
                part.tracer.close()
                self._parts.remove(part)

    def read(self) -> dict[int, DiscardSample]:
        """Return the current counts by place. Counts of partitions are separated later."""
        # Read all parts, even after one has changed.
        news = [part.read() for part in self._parts]
        if any(news):
            self._look_up_names()
        return self._samples()

    def latest(self) -> dict[int, DiscardSample]:
        """Return the last reading by place. For new disks this is the reading at attachment."""
        return self._samples()

    def _samples(self) -> dict[int, DiscardSample]:
        return {
            place: sample
            for part in self._parts
            for place, sample in part.samples(self._cgroups, self._mounts).items()
        }

    def _look_up_names(self) -> None:
        """Look up the names of the origins. Not done in each interval, because it walks all cgroups."""
        self._cgroups: dict[int, str] = cgroup_names() if self._parts else {}
        mounts = read_usage().mounts if self._parts else ()
        self._mounts = {mount.dev: f"{mount.filesystem} {mount.point}" for mount in mounts}

    def programs(self) -> list[tuple[str, int, int, int, int]]:
        """Return (name, id, runs, run_ns, recursion misses) of each program. Chained programs count as the
        block tracer's."""
        return [program for part in self._parts for program in part.tracer.programs()]

    def close(self) -> None:
        if self._loading:
            self._loading.abandon()
            self._loading = None
        for part in self._parts:
            part.tracer.close()
        self._parts = []


def offers_discards(leaves: Sequence[Leaf]) -> bool:
    """Return whether any of the disks accepts discards."""
    return any(limits_of(leaf.device.disk).offered for leaf in leaves)
