"""Block tracer: converts BPF maps to samples, one target per disk or partition."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from opwatch.collectors.block.diskstats import StatReader
from opwatch.errors import (
    OpwatchError,
    ProbeRejected,
    TracerMissing,
    Unsupported,
    UsageError,
)
from opwatch.host.device import BlockDevice, Leaf
from opwatch.host.privilege import make_permission_error
from opwatch.owners.cells import OwnerGrouping, ReadCells, decode_cells, decode_forgotten, fit_cells
from opwatch.owners.lives import MAX_PAST, Cell, Earlier, OwnerTotals
from opwatch.trace import abi
from opwatch.trace.programs import ProgramSet, list_program_sets, load_first
from opwatch.trace.slow import SlowRecord, decode_dropped_counts, decode_slow
from opwatch.trace.tracing import SettledReadings, read_until_settled
from opwatch.trace.trust import Reading
from opwatch.trace.unavailable import THROTTLE

# An I/O scheduler enabled later uses separate tags: 2 * BLKDEV_DEFAULT_RQ.
SCHEDULER_TAGS = 256
BIOS = 16384
# Slots for requests in flight, 16 bytes each. A host adapter may report thousands of tags on each queue
# although the queues share the tags. Above the limit some tags share a slot, and a request whose slot is
# taken goes to the hash.
MAX_STAMPS = 1 << 17
# Maximum number of slots for all disks of a watch.
MAX_STAMPS_TOTAL = 1 << 22
# Maximum wait for a CPU preempted between counting a request for the disk and for the owner.
_OWNED_S = 0.05
# Above this number, idle owners are evicted to make room for new processes. If half of the table is still in
# use, only this many of the largest stay, so short-lived processes cannot fill the table.
_KEPT_OWNERS, _IDLE_NS = 512, 30 * 10**9
# OW_MAX_OWNERS of bpf/abi/owners.h.
_MAX_OWNERS = 8192
# Missing privileges or memory affect all kinds of programs equally.
_FINAL = (errno.EPERM, errno.ENOMEM)


@dataclass(frozen=True, slots=True)
class Plan:
    """Tracer configuration: targets, disk keys and room for requests in flight."""

    leaves: Sequence[Leaf]
    targets: Sequence[abi.Target]
    disk_keys: bytes
    stamps: int
    bios: int


@dataclass(frozen=True, slots=True)
class _Tags:
    """Hardware queues, tags per queue, and slots for requests in flight. All 0 for a bio-based disk."""

    queues: int
    depth: int
    stamps: int

    @property
    def stamp_mask(self) -> int:
        return self.stamps - 1 if self.stamps < self.queues * self.depth else 0


def _read_tags(disk: BlockDevice, most: int, *, may_share: bool) -> _Tags:
    """Return the current tags of a disk.

    A driver may change its queues at any time. Requests without a slot go to the hash.
    """
    queues = disk.hardware_queues
    if not queues:
        return _Tags(0, 0, 0)
    depth = max(SCHEDULER_TAGS, disk.read_number("queue/nr_requests") or 0, *map(_count_queue_tags, queues))
    # Queue numbers may have gaps, so the highest number determines the number of slots.
    count = max(int(queue.name) for queue in queues) + 1
    if not may_share:
        depth = min(depth, most // count)
    return _Tags(count, depth, min(count * depth, most))


def _count_queue_tags(queue: Path) -> int:
    try:
        return int((queue / "nr_tags").read_text())
    except OSError:
        return 0  # Removed since the listing


def completes_twice(device: BlockDevice) -> bool:
    """Return whether data complete before the request does (request-based device mapper)."""
    return device.disk.is_request_based and (device.disk.sysfs / "dm").is_dir()


def make_plan(leaves: Sequence[Leaf], *, may_share: bool = True) -> Plan:
    """Lay out the targets. Targets on the same disk are chained and share the disk's slots.

    `may_share`: tags may share slots if a disk reports too many.
    """
    if len(leaves) > abi.MAX_TARGETS:
        raise UsageError(f"{len(leaves)} disks are too many for one tracer (at most {abi.MAX_TARGETS})")
    first_of_disk: dict[str, int] = {}
    keys = bytearray()
    targets: list[abi.Target] = []
    disks = {leaf.device.disk.name for leaf in leaves}
    most = min(MAX_STAMPS, 1 << (MAX_STAMPS_TOTAL // max(1, len(disks))).bit_length() - 1)
    stamps = bios = 0
    for index, leaf in enumerate(leaves):
        disk = leaf.device.disk
        if disk.name in first_of_disk:
            targets.append(_append_target(leaf, leaves, targets, first_of_disk[disk.name]))
            continue
        first_of_disk[disk.name] = index
        keys += abi.pack_disk_key(disk.dev, disk.name, index)
        tags = _read_tags(disk, most, may_share=may_share)
        sectors = leaf.device.sector_range if leaf.device.is_partition else abi.WHOLE_DISK
        bio_based = not disk.is_request_based
        targets.append(
            abi.Target(
                *sectors,
                stamps,
                tags.queues,
                tags.depth,
                bio_based=bio_based,
                ends_twice=completes_twice(disk),
                stamp_mask=tags.stamp_mask,
            )
        )
        stamps += tags.stamps
        bios = BIOS if bio_based else bios
    return Plan(leaves, targets, bytes(keys), stamps, bios)


def _append_target(leaf: Leaf, leaves: Sequence[Leaf], targets: list[abi.Target], first: int) -> abi.Target:
    """Return the target of another partition of a disk, appended to the disk's chain."""
    whole = next((x.device for x in leaves if x.device.name == leaf.device.disk.name), None)
    if whole or not leaf.device.is_partition:
        name = leaf.device.disk.name
        raise UsageError(f"{leaf.device.name}: its whole disk {name} is already watched")
    last = first
    while targets[last].next:
        last = targets[last].next - 1
    targets[last] = replace(targets[last], next=len(targets) + 1)
    first_sector, last_sector = leaf.device.sector_range
    return replace(targets[first], first_sector=first_sector, last_sector=last_sector, next=0)


class LoadedTracer(Protocol):
    """Loaded programs and their counters, as opwatch._native.Tracer has them."""

    @property
    def lanes(self) -> tuple[int, int]: ...
    @property
    def max_owners(self) -> int: ...
    @property
    def throttle_error(self) -> int: ...
    def sample(self, target: int) -> bytes: ...
    def programs(self) -> list[tuple[str, int, int, int, int]]: ...
    def slow(self) -> tuple[bytes, bytes]: ...
    def owners(self, target: int, /) -> bytes: ...
    def evict_owners(self, keep: int, max_kept: int, idle_ns: int, /) -> bytes: ...
    def chain(self, issued: int, done: int, /) -> None: ...
    def close(self) -> None: ...


class TracerLoader(Protocol):
    """Loads the programs, in this process or in another."""

    @property
    def rejected(self) -> type[Exception]:
        """The exception for programs that the kernel refuses, with (errno, what, log) as arguments."""

    def load(
        self, plan: Plan, programs: ProgramSet, *, queue_time: bool, slow_ns: int, by: int
    ) -> LoadedTracer: ...


class ExtensionLoader:
    """Loads the programs into the kernel by the extension, with the privileges of this process."""

    def __init__(self) -> None:
        try:
            from opwatch._native import ProbeError, Tracer
        except ImportError as error:
            raise TracerMissing from error
        self._tracer = Tracer
        self.rejected: type[Exception] = ProbeError

    def load(
        self, plan: Plan, programs: ProgramSet, *, queue_time: bool, slow_ns: int, by: int
    ) -> LoadedTracer:
        return self._tracer(
            abi.pack_targets(plan.targets),
            plan.disk_keys,
            plan.stamps,
            plan.bios,
            queue_time=queue_time,
            programs=programs,
            slow_ns=slow_ns,
            by=by,
        )


@dataclass(frozen=True, slots=True)
class OwnerLimits:
    """How many owners stay in the tracer's table and in memory.

    Owners above `kept` that were idle for `idle_ns` are evicted, and the smallest if there are more than
    `most`. `remembered` evicted owners per disk continue their counts if they come back.
    """

    kept: int = _KEPT_OWNERS
    most: int = _MAX_OWNERS
    idle_ns: int = _IDLE_NS
    remembered: int = MAX_PAST


class BlockTracer:
    """Tracer with our programs, attached from construction until close(). Reads absolute samples, one per
    leaf."""

    backend = "libbpf"
    notes: Sequence[str] = ()

    def __init__(
        self,
        leaves: Sequence[Leaf],
        *,
        queue_time: bool = False,
        raw_tp: bool = False,
        slow_ns: int = 0,
        by: OwnerGrouping | None = None,
        loader: TracerLoader | None = None,
    ) -> None:
        """`loader` loads the programs, by default this process itself."""
        self.leaves = list(leaves)
        self.plan = make_plan(self.leaves)
        ways = list_program_sets(
            requests=self.plan.stamps > 0,
            bios=self.plan.bios > 0,
            queue_time=queue_time,
            slow=slow_ns > 0,
            owners=by is not None,
            submitters=by is OwnerGrouping.PROCESS,
        )
        if raw_tp:
            del ways["tp_btf"]
        loader = loader or ExtensionLoader()

        def load_variant(way: ProgramSet) -> LoadedTracer:
            return loader.load(
                self.plan, way, queue_time=queue_time, slow_ns=slow_ns, by=by.number if by else 0
            )

        try:
            self._native, way = load_first([*ways.values()], load_variant, loader.rejected, _FINAL)
        except loader.rejected as error:
            raise explain_probe_error(error) from error
        self._hooks = next(name for name in ways if ways[name] is way)
        self.notes = self._make_lane_notes()
        self.lacks: Sequence[str] = explain_throttle_error(self._native.throttle_error)
        self._stats = [StatReader(leaf.device) for leaf in self.leaves]
        self._counted = [SettledReadings(stat.read_with_ticks) for stat in self._stats]
        self._has_owners = by is not None
        # Waits before the issue are counted by owner.
        self.has_owner_waits = by is not None and queue_time
        # Owners of each leaf at the last reading. Empty unless requested.
        self.owned: list[ReadCells] = []
        # Earlier activity of owners that were evicted and returned.
        self.earlier: list[Mapping[Cell, Earlier]] = []
        self._owner_limits = OwnerLimits()
        self._lives = [OwnerTotals() for _ in self.leaves]

    def _make_lane_notes(self) -> list[str]:
        lanes, cpus = self._native.lanes
        if lanes >= cpus:
            return []
        return [
            f"{cpus} CPUs and {len(self.leaves)} disks would need more than 256 MiB of counters: "
            f"groups of {-(-cpus // lanes)} CPUs share histograms (slower, but equally exact)"
        ]

    @property
    def hooks(self) -> str:
        """Return the variant of the attached programs."""
        return self._hooks

    def read(self) -> list[Reading]:
        """Return one reading per leaf, each between two readings of the kernel's statistics."""
        readings, owned, earlier = [], [], []
        for index, (stat, counted) in enumerate(zip(self._stats, self._counted, strict=True)):
            before = stat.read_stats()
            if self._has_owners:
                sample, cells, lives = self._sample_with_owners(index)
                owned.append(cells)
                earlier.append(lives)
            else:
                sample = abi.decode_sample(self._native.sample(index))
            readings.append(
                counted.settle_reading(Reading(sample, before, stat.read_with_ticks(), stat.reason))
            )
        self.owned, self.earlier = owned, earlier
        if self._has_owners:
            limits = self._owner_limits
            most = min(limits.most, self._native.max_owners // 2)
            self.evict_owners(limits.kept, most, limits.idle_ns)
        return readings

    def limit_owners(self, limits: OwnerLimits) -> None:
        """Keep fewer owners from now on. Call before the first reading."""
        self._owner_limits = limits
        self._lives = [OwnerTotals(limits.remembered) for _ in self.leaves]

    def evict_owners(self, keep: int, most: int, idle_ns: int) -> None:
        """Evict owners and keep their counts: idle ones above `keep`, the smallest above `most`."""
        for target, cells in decode_forgotten(self._native.evict_owners(keep, most, idle_ns)).items():
            self._lives[target].record_eviction(cells)

    def _sample_with_owners(self, index: int) -> tuple[abi.TargetSample, ReadCells, Mapping[Cell, Earlier]]:
        """Return a sample, its owners at the same moment, and the owners' earlier activity."""
        lives = self._lives[index]
        before = decode_cells(self._native.owners(index)).cells
        sample = abi.decode_sample(self._native.sample(index))
        deadline = time.monotonic() + _OWNED_S
        while True:
            after = decode_cells(self._native.owners(index))
            whole = lives.add_earlier(before, after.cells)
            cells, is_short = fit_cells(sample, whole.before, whole.after)
            if not is_short or time.monotonic() > deadline:
                lives.note_sample(after.cells, sample.end_ns)
                return sample, replace(after, cells=cells), whole.earlier
            time.sleep(0.001)

    def read_settled(self, patience_s: float = 0.2) -> list[Reading]:
        """Return a reading without concurrent completions if one succeeds soon, else the last reading."""
        return read_until_settled(self.read, patience_s)

    @property
    def chain_function(self) -> Callable[[int, int], None] | None:
        """Return the function that chains programs to discard issue and completion, by descriptor (-1: none).

        None if the kernel refuses typed programs.
        """
        return self._native.chain if self._hooks == "tp_btf" else None

    def take_slow(self) -> tuple[list[SlowRecord], list[int]]:
        """Return the slow requests since the last call, and the number of dropped records per leaf since
        attach."""
        raw, dropped = self._native.slow()
        return decode_slow(raw), decode_dropped_counts(dropped)[: len(self.leaves)]

    def read_misses(self) -> int:
        """Return the skipped runs of our programs since attach, for all disks."""
        return sum(program[4] for program in self._native.programs())

    def list_programs(self) -> list[tuple[str, int, int, int, int]]:
        """Return (name, id, runs, run_ns, recursion misses) of each attached program."""
        return self._native.programs()

    def close(self) -> None:
        self._native.close()
        for stat in self._stats:
            stat.close()


def explain_throttle_error(number: int) -> tuple[str, ...]:
    """Return why the time in io.max is not measured, empty if there is no error."""
    if not number:
        return ()
    if number == errno.ESRCH:
        return (f"{THROTTLE}: this kernel has no io.max, or its types do not name __blk_throtl_bio",)
    name = errno.errorcode.get(number, str(number))
    return (
        f"{THROTTLE}: the kernel refuses a program at the exit of __blk_throtl_bio ({name}), so it is "
        "unknown for how long io.max holds requests back",
    )


def explain_probe_error(error: Exception) -> OpwatchError:
    """Convert ProbeError(errno, what, log) to an error with advice for the user."""
    number, what, log = error.args
    if number == errno.EPERM:
        return make_permission_error(f"{what}: it", "CAP_BPF and CAP_PERFMON, or root")
    if number in (errno.ENOENT, errno.ESRCH) and "BTF" in log:
        return Unsupported(
            f"{what}: no BTF in /sys/kernel/btf (CONFIG_DEBUG_INFO_BTF, or hidden from this container)"
        )
    if number in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
        name = errno.errorcode[number]
        return OpwatchError(f"{what}: {name}, {os.strerror(number)}. ulimit -a shows the limits")
    return ProbeRejected(f"{what}: {errno.errorcode.get(number, number)}", log)
