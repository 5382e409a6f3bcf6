"""Who discards on the disks of a watch: tracers beside those that count requests."""

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
    """What is cheap enough to run beside any workload."""
    return Following(functions=False, commands=False, chained=is_chained)


class _DiscardPart:
    """One tracer, of the disks of one block tracer."""

    def __init__(self, leaves: Mapping[int, Leaf], tracer: Tracer, loading: Loading | None) -> None:
        whole = {place: leaf.device.disk for place, leaf in leaves.items()}
        disks = {disk.name: disk for disk in whole.values()}
        # By place: the disk, and the number of a partition of it. sysfs is not asked again in each interval.
        self.devices = {place: (whole[place].name, _number_of(leaf.device)) for place, leaf in leaves.items()}
        granules = {name: granule for name, disk in disks.items() if (granule := limits_of(disk).granule())}
        # The block tracer looks at every request already, and at what waits behind discards.
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
        # What the last trace said of each disk: nearly always the next one says the same.
        self._samples: dict[int, DiscardSample] = {}

    def read(self) -> bool:
        """Look again; returns whether anybody has discarded on these disks since."""
        before, self.now = self.now, self.tracer.read()
        if self.now == before:
            return False
        self._samples = {}
        return self._origins(before) != self._origins(self.now)

    def _origins(self, trace: Trace) -> list[Origin]:
        """Who discarded on the disks of this part: the programs follow all that there are."""
        names = {disk[:MOST_NAME] for disk, _ in self.devices.values()}
        return [origin for origin in trace.origins if origin.disk in names]

    def samples(self, cgroups: Mapping[int, str], mounts: Mapping[str, str]) -> dict[int, DiscardSample]:
        """The last trace by place, with the names of those who discarded."""
        if self._samples.keys() != self.devices.keys():
            self._samples = {
                place: sample_of(self.now, disk, number, cgroups, mounts, is_chained=self.is_chained)
                for place, (disk, number) in self.devices.items()
            }
        return self._samples


def _number_of(device: BlockDevice) -> str | None:
    """A partition's own number, None of a whole disk."""
    return ":".join(map(str, device.dev)) if device.is_partition else None


class LiveDiscards:
    """Follows discards from add() to close(), which is before the block tracers are closed. `wanted` decides
    for each set of disks that comes; nothing is told of a set for which it says no. `is_required`: without
    them there is nothing to watch; `is_chained`: the block tracer is expected to go on with our programs."""

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
        """Load the programs for the first of them, while the block tracer is being loaded."""
        if self._is_chained and self._wanted(leaves):
            self._loading = Loading(loader(_following(is_chained=True), stalls=True))

    def add(self, leaves: Mapping[int, Leaf], tracer: Tracer) -> None:
        """Attach to further leaves, by their places; `tracer` counts their requests."""
        if self._wanted(list(leaves.values())):
            loading, self._loading = self._loading, None
            self._parts.append(_DiscardPart(leaves, tracer, loading))
            self._look_up_names()

    def drop(self, place: int) -> None:
        """A leaf is wanted no longer; a tracer is closed with the last of its leaves."""
        for part in [part for part in self._parts if place in part.devices]:
            del part.devices[place]
            if not part.devices:
                part.tracer.close()
                self._parts.remove(part)

    def read(self) -> dict[int, DiscardSample]:
        """What was counted by now, by place: of a partition, what is told apart later."""
        # Each part is read, even where one before it has news.
        news = [part.read() for part in self._parts]
        if any(news):
            self._look_up_names()
        return self._samples()

    def latest(self) -> dict[int, DiscardSample]:
        """What the last look gave, by place. Of disks that came, that look was their attachment."""
        return self._samples()

    def _samples(self) -> dict[int, DiscardSample]:
        return {
            place: sample
            for part in self._parts
            for place, sample in part.samples(self._cgroups, self._mounts).items()
        }

    def _look_up_names(self) -> None:
        """Look up the names of those who discard. It is not done for every interval, as it is a walk of all
        control groups."""
        self._cgroups: dict[int, str] = cgroup_names() if self._parts else {}
        mounts = read_usage().mounts if self._parts else ()
        self._mounts = {mount.dev: f"{mount.filesystem} {mount.point}" for mount in mounts}

    def programs(self) -> list[tuple[str, int, int, int, int]]:
        """(name, id, runs, run_ns, recursion misses) of each; what a block tracer calls counts as its own."""
        return [program for part in self._parts for program in part.tracer.programs()]

    def close(self) -> None:
        if self._loading:
            self._loading.abandon()
            self._loading = None
        for part in self._parts:
            part.tracer.close()
        self._parts = []


def offers_discards(leaves: Sequence[Leaf]) -> bool:
    """Whether any of the disks takes discards, by its limits."""
    return any(limits_of(leaf.device.disk).offered for leaf in leaves)
