"""Discards on the disks of a watch, by origin. Runs next to the request tracers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from opwatch.collectors.audit.discard_programs import Loading, make_loader
from opwatch.collectors.audit.discards import DiscardTracer
from opwatch.collectors.block.blk import BlockTracer
from opwatch.collectors.owners.cgroups import read_cgroup_names
from opwatch.collectors.stack.discard_limits import read_queue_limits
from opwatch.host.device import BlockDevice, Leaf
from opwatch.host.usage import read_usage
from opwatch.trace.tracing import Tracer
from opwatch.trim.audit.flow import Origin, Trace
from opwatch.trim.audit.live import DISK_NAME_BYTES, DiscardSample, extract_sample
from opwatch.trim.audit.programs import ProgramOptions


def _select_tracepoints(*, is_chained: bool) -> ProgramOptions:
    """Return the tracepoints that are cheap enough for any workload."""
    return ProgramOptions(functions=False, commands=False, chained=is_chained)


class _DiscardGroup:
    """Discard tracer for the disks of a block tracer."""

    def __init__(self, leaves: Mapping[int, Leaf], tracer: Tracer, loading: Loading | None) -> None:
        whole = {place: leaf.device.disk for place, leaf in leaves.items()}
        disks = {disk.name: disk for disk in whole.values()}
        # By place: disk and partition number, cached to avoid sysfs reads in each interval.
        self.devices = {
            place: (whole[place].name, _find_partition_number(leaf.device)) for place, leaf in leaves.items()
        }
        granules = {
            name: granule
            for name, disk in disks.items()
            if (granule := read_queue_limits(disk).find_granule())
        }
        # The block tracer sees each request already, including I/O that waits behind discards.
        chain = tracer.chain_function if isinstance(tracer, BlockTracer) else None
        self.is_chained = chain is not None
        if loading and not chain:
            loading.abandon()
            loading = None
        self.tracer = DiscardTracer(
            list(disks.values()),
            granules,
            _select_tracepoints(is_chained=self.is_chained),
            stalls=True,
            programs=loading.wait_for_programs() if loading else None,
            chain=chain,
        )
        self.now = self.tracer.read_trace()
        # Samples of the last trace, which rarely changes between reads.
        self._samples: dict[int, DiscardSample] = {}

    def read_trace(self) -> bool:
        """Read the trace again, and return whether these disks got new discards."""
        before, self.now = self.now, self.tracer.read_trace()
        if self.now == before:
            return False
        self._samples = {}
        return self._find_origins(before) != self._find_origins(self.now)

    def _find_origins(self, trace: Trace) -> list[Origin]:
        """Return the origins on this part's disks only, because the programs follow all disks."""
        names = {disk[:DISK_NAME_BYTES] for disk, _ in self.devices.values()}
        return [origin for origin in trace.origins if origin.disk in names]

    def make_samples(self, cgroups: Mapping[int, str], mounts: Mapping[str, str]) -> dict[int, DiscardSample]:
        """Return the last trace by place, with the names of the origins."""
        if self._samples.keys() != self.devices.keys():
            self._samples = {
                place: extract_sample(self.now, disk, number, cgroups, mounts, is_chained=self.is_chained)
                for place, (disk, number) in self.devices.items()
            }
        return self._samples


def _find_partition_number(device: BlockDevice) -> str | None:
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
        self._parts: list[_DiscardGroup] = []
        self._look_up_names()

    def prepare_programs(self, leaves: Sequence[Leaf]) -> None:
        """Load the programs for the first disks while the block tracer loads."""
        if self._is_chained and self._wanted(leaves):
            self._loading = Loading(make_loader(_select_tracepoints(is_chained=True), stalls=True))

    def add_leaves(self, leaves: Mapping[int, Leaf], tracer: Tracer) -> None:
        """Attach to more leaves, by place. `tracer` counts their requests."""
        if self._wanted(list(leaves.values())):
            loading, self._loading = self._loading, None
            self._parts.append(_DiscardGroup(leaves, tracer, loading))
            self._look_up_names()

    def remove_leaf(self, place: int) -> None:
        """Remove a leaf. A tracer closes with its last leaf."""
        for part in [part for part in self._parts if place in part.devices]:
            del part.devices[place]
            if not part.devices:
                part.tracer.close()
                self._parts.remove(part)

    def read_samples(self) -> dict[int, DiscardSample]:
        """Return the current counts by place. Counts of partitions are separated later."""
        # Read all parts, even after one has changed.
        news = [part.read_trace() for part in self._parts]
        if any(news):
            self._look_up_names()
        return self._make_samples()

    def get_latest_samples(self) -> dict[int, DiscardSample]:
        """Return the last reading by place. For new disks this is the reading at attachment."""
        return self._make_samples()

    def _make_samples(self) -> dict[int, DiscardSample]:
        return {
            place: sample
            for part in self._parts
            for place, sample in part.make_samples(self._cgroups, self._mounts).items()
        }

    def _look_up_names(self) -> None:
        """Look up the names of the origins. Not done in each interval, because it walks all cgroups."""
        self._cgroups: dict[int, str] = read_cgroup_names() if self._parts else {}
        mounts = read_usage().mounts if self._parts else ()
        self._mounts = {mount.dev: f"{mount.filesystem} {mount.point}" for mount in mounts}

    def list_programs(self) -> list[tuple[str, int, int, int, int]]:
        """Return (name, id, runs, run_ns, recursion misses) of each program. Chained programs count as the
        block tracer's."""
        return [program for part in self._parts for program in part.tracer.list_programs()]

    def close(self) -> None:
        if self._loading:
            self._loading.abandon()
            self._loading = None
        for part in self._parts:
            part.tracer.close()
        self._parts = []


def offers_discards(leaves: Sequence[Leaf]) -> bool:
    """Return whether any of the disks accepts discards."""
    return any(read_queue_limits(leaf.device.disk).can_discard for leaf in leaves)
