"""The block tracer: BPF maps -> samples, one target for each disk or partition that does the I/O."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from opwatch.collectors.block.diskstats import StatReader
from opwatch.errors import (
    OpwatchError,
    ProbeRejected,
    TracerMissing,
    Unsupported,
    UsageError,
)
from opwatch.frozen import frozen, replace
from opwatch.host.device import BlockDevice, Leaf
from opwatch.host.privilege import missing
from opwatch.owners.cells import By, ReadCells, decode_cells, decode_forgotten, fitted
from opwatch.owners.lives import Cell, Earlier, Lives
from opwatch.trace import abi
from opwatch.trace.programs import Way, first_loaded, tracer_ways
from opwatch.trace.slow import SlowRecord, decode_left_out, decode_slow
from opwatch.trace.tracing import Counted, settled
from opwatch.trace.trust import Reading

if TYPE_CHECKING:
    from opwatch._native import Tracer

# An I/O scheduler that is switched on later brings tags of its own: 2 * BLKDEV_DEFAULT_RQ of them.
SCHEDULER_TAGS = 256
BIOS = 16384
# Places for requests in flight, 16 bytes each. A host adapter may show thousands of tags on every queue,
# although the queues share them: above these some tags have a place in common, and who finds it taken goes to
# the hash.
MOST_STAMPS = 1 << 17
# All disks of a watch together have no more places than these.
MOST_STAMPS_IN_ALL = 1 << 22
# A CPU that is taken away between counting a request for its disk and for its owner is waited for so long.
_OWNED_S = 0.05
# Where there are more owners, those that did nothing for that long make room: processes come and go. Where
# half of the table is used all the same, only that many of the largest stay: short processes cannot fill it.
_KEPT_OWNERS, _IDLE_NS = 512, 30 * 10**9
# No rights or no memory is the same for programs of another kind.
_FINAL = (errno.EPERM, errno.ENOMEM)


@frozen
class Plan:
    """What the tracer is asked for: targets, disk keys and room for what is in flight."""

    leaves: Sequence[Leaf]
    targets: Sequence[abi.Target]
    disk_keys: bytes
    stamps: int
    bios: int


@frozen
class _Tags:
    """Hardware queues, tags in each, and places for what is in flight; all 0 for a bio-based disk."""

    queues: int
    depth: int
    stamps: int

    @property
    def mask(self) -> int:
        return self.stamps - 1 if self.stamps < self.queues * self.depth else 0


def _tags(disk: BlockDevice, most: int, *, may_share: bool) -> _Tags:
    """The tags that a disk has now. A driver may give it other queues at any time: what has no place then
    goes to the hash."""
    queues = disk.hardware_queues
    if not queues:
        return _Tags(0, 0, 0)
    depth = max(SCHEDULER_TAGS, disk.number("queue/nr_requests") or 0, *map(_queue_tags, queues))
    # Queues may be numbered with gaps: the highest number says how many places there must be.
    count = max(int(queue.name) for queue in queues) + 1
    if not may_share:
        depth = min(depth, most // count)
    return _Tags(count, depth, min(count * depth, most))


def _queue_tags(queue: Path) -> int:
    try:
        return int((queue / "nr_tags").read_text())
    except OSError:
        return 0  # it has gone since it was listed


def ends_twice(device: BlockDevice) -> bool:
    """Whether a disk's requests end with their data first and then as a whole: device mapper's own."""
    return device.disk.is_request_based and (device.disk.sysfs / "dm").is_dir()


def plan(leaves: Sequence[Leaf], *, may_share: bool = True) -> Plan:
    """Lay out targets: those on one disk are chained and share its place for requests in flight. `may_share`:
    tags may have a place in common, where a disk shows too many."""
    if len(leaves) > abi.MAX_TARGETS:
        raise UsageError(f"{len(leaves)} disks are more than the {abi.MAX_TARGETS} that one tracer takes")
    first_of_disk: dict[str, int] = {}
    keys = bytearray()
    targets: list[abi.Target] = []
    disks = {leaf.device.disk.name for leaf in leaves}
    most = min(MOST_STAMPS, 1 << (MOST_STAMPS_IN_ALL // max(1, len(disks))).bit_length() - 1)
    stamps = bios = 0
    for index, leaf in enumerate(leaves):
        disk = leaf.device.disk
        if disk.name in first_of_disk:
            targets.append(_on_same_disk(leaf, leaves, targets, first_of_disk[disk.name]))
            continue
        first_of_disk[disk.name] = index
        keys += abi.pack_disk_key(disk.dev, disk.name, index)
        tags = _tags(disk, most, may_share=may_share)
        sectors = leaf.device.sectors if leaf.device.is_partition else abi.WHOLE_DISK
        bio_based = not disk.is_request_based
        targets.append(
            abi.Target(
                *sectors,
                stamps,
                tags.queues,
                tags.depth,
                bio_based=bio_based,
                ends_twice=ends_twice(disk),
                stamp_mask=tags.mask,
            )
        )
        stamps += tags.stamps
        bios = BIOS if bio_based else bios
    return Plan(leaves, targets, bytes(keys), stamps, bios)


def _on_same_disk(leaf: Leaf, leaves: Sequence[Leaf], targets: list[abi.Target], first: int) -> abi.Target:
    """A further partition of a disk, put at the end of its chain."""
    whole = next((x.device for x in leaves if x.device.name == leaf.device.disk.name), None)
    if whole or not leaf.device.is_partition:
        name = leaf.device.disk.name
        raise UsageError(f"{leaf.device.name}: its disk {name} is watched as a whole already")
    last = first
    while targets[last].next:
        last = targets[last].next - 1
    targets[last] = replace(targets[last], next=len(targets) + 1)
    first_sector, last_sector = leaf.device.sectors
    return replace(targets[first], first_sector=first_sector, last_sector=last_sector, next=0)


class BlockTracer:
    """Our programs, attached from construction to close(). It reads absolute samples, one per leaf."""

    backend = "libbpf"
    lacks: Sequence[str] = ()
    notes: Sequence[str] = ()

    def __init__(
        self,
        leaves: Sequence[Leaf],
        *,
        queue_time: bool = False,
        raw_tp: bool = False,
        slow_ns: int = 0,
        by: By | None = None,
    ) -> None:
        self.leaves = list(leaves)
        self.plan = plan(self.leaves)
        ways = tracer_ways(
            requests=self.plan.stamps > 0,
            bios=self.plan.bios > 0,
            queue_time=queue_time,
            slow=slow_ns > 0,
            owners=by is not None,
            submitters=by is By.PROCESS,
        )
        if raw_tp:
            del ways["tp_btf"]
        self._native, way = self._loaded([*ways.values()], queue_time=queue_time, slow_ns=slow_ns, by=by)
        self._hooks = next(name for name in ways if ways[name] is way)
        self.notes = self._notes_of_lanes()
        self._stats = [StatReader(leaf.device) for leaf in self.leaves]
        self._counted = [Counted(stat.read_with_ticks) for stat in self._stats]
        self._has_owners = by is not None
        # The owners of each leaf at its last reading; none where nobody asked.
        self.owned: list[ReadCells] = []
        # What those of each leaf did before they were forgotten that came back.
        self.earlier: list[Mapping[Cell, Earlier]] = []
        self._lives = [Lives() for _ in self.leaves]

    def _loaded(
        self, ways: Sequence[Way], *, queue_time: bool, slow_ns: int, by: By | None
    ) -> tuple[Tracer, Way]:
        """The programs of the first way that the kernel takes, attached."""
        try:
            from opwatch._native import ProbeError, Tracer
        except ImportError as error:
            raise TracerMissing from error

        def load(way: Way) -> Tracer:
            return Tracer(
                abi.pack_targets(self.plan.targets),
                self.plan.disk_keys,
                self.plan.stamps,
                self.plan.bios,
                queue_time=queue_time,
                programs=way,
                slow_ns=slow_ns,
                by=by.number if by else 0,
            )

        try:
            return first_loaded(ways, load, ProbeError, _FINAL)
        except ProbeError as error:
            raise explain_probe_error(error) from error

    def _notes_of_lanes(self) -> list[str]:
        lanes, cpus = self._native.lanes
        if lanes >= cpus:
            return []
        return [
            f"{cpus} CPUs and {len(self.leaves)} disks want more than 256 MiB of counters: "
            f"{-(-cpus // lanes)} CPUs each share histograms; it is slower, and as exact"
        ]

    @property
    def hooks(self) -> str:
        """Which twins are attached."""
        return self._hooks

    def read(self) -> list[Reading]:
        """One reading per leaf, each between two readings of the kernel's statistics."""
        readings, owned, earlier = [], [], []
        for index, (stat, counted) in enumerate(zip(self._stats, self._counted, strict=True)):
            before = stat.read()
            if self._has_owners:
                sample, cells, lives = self._sample_with_owners(index)
                owned.append(cells)
                earlier.append(lives)
            else:
                sample = abi.decode_sample(self._native.sample(index))
            readings.append(counted.reading(Reading(sample, before, stat.read_with_ticks(), stat.reason)))
        self.owned, self.earlier = owned, earlier
        if self._has_owners:
            self.forget_owners(_KEPT_OWNERS, self._native.owner_room // 2, _IDLE_NS)
        return readings

    def forget_owners(self, keep: int, most: int, idle_ns: int) -> None:
        """Make room for new owners, and keep what those did that are forgotten for it: with more than `keep`
        the idle ones go; with more than `most` left, the smallest."""
        for target, cells in decode_forgotten(self._native.forget_owners(keep, most, idle_ns)).items():
            self._lives[target].forget(cells)

    def _sample_with_owners(self, index: int) -> tuple[abi.TargetSample, ReadCells, Mapping[Cell, Earlier]]:
        """A sample, its owners as they were at the same moment, and their earlier lives."""
        lives = self._lives[index]
        before = decode_cells(self._native.owners(index)).cells
        sample = abi.decode_sample(self._native.sample(index))
        deadline = time.monotonic() + _OWNED_S
        while True:
            after = decode_cells(self._native.owners(index))
            whole = lives.whole(before, after.cells)
            cells, is_short = fitted(sample, whole.before, whole.after)
            if not is_short or time.monotonic() > deadline:
                lives.note_sample(after.cells, sample.end_ns)
                return sample, replace(after, cells=cells), whole.earlier
            time.sleep(0.001)

    def read_settled(self, patience_s: float = 0.2) -> list[Reading]:
        """A reading with nothing completing meanwhile, if there is such a moment soon; else the last."""
        return settled(self.read, patience_s)

    @property
    def chain(self) -> Callable[[int, int], None] | None:
        """What lets programs of these descriptors go on with the issue and the end of discards, -1 for none;
        None where the kernel refuses typed programs."""
        return self._native.chain if self._hooks == "tp_btf" else None

    def slow(self) -> tuple[list[SlowRecord], list[int]]:
        """Requests that were slower than the limit, since the last call; and by leaf, how many there was no
        room for since attach."""
        raw, left_out = self._native.slow()
        return decode_slow(raw), decode_left_out(left_out)[: len(self.leaves)]

    def misses(self) -> int:
        """Runs of our programs that the kernel skipped since attach, whatever disk they were for."""
        return sum(program[4] for program in self._native.programs())

    def programs(self) -> list[tuple[str, int, int, int, int]]:
        """(name, id, runs, run_ns, recursion misses) of each attached program."""
        return self._native.programs()

    def close(self) -> None:
        self._native.close()
        for stat in self._stats:
            stat.close()


def explain_probe_error(error: Exception) -> OpwatchError:
    """ProbeError(errno, what, log) as the error that tells the user what to do."""
    number, what, log = error.args
    if number == errno.EPERM:
        return missing(f"{what}: it", "CAP_BPF and CAP_PERFMON, or root")
    if number in (errno.ENOENT, errno.ESRCH) and "BTF" in log:
        return Unsupported(
            f"{what}: no BTF in /sys/kernel/btf (CONFIG_DEBUG_INFO_BTF, or hidden from this container)"
        )
    if number in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
        name = errno.errorcode[number]
        return OpwatchError(f"{what}: {name}, {os.strerror(number)}. ulimit -a shows what is allowed")
    return ProbeRejected(f"{what}: {errno.errorcode.get(number, number)}", log)
