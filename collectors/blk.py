"""The block tracer: BPF maps -> samples, one target for each disk or partition that does the I/O."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from dataclasses import dataclass

from opwatch import abi
from opwatch.collectors.diskstats import StatReader
from opwatch.device import BlockDevice, Leaf
from opwatch.errors import (
    OpwatchError,
    PermissionMissing,
    ProbeRejected,
    TracerMissing,
    Unsupported,
    UsageError,
)
from opwatch.tracing import settled
from opwatch.trust import Reading

# An I/O scheduler that is switched on later brings tags of its own: 2 * BLKDEV_DEFAULT_RQ of them.
SCHEDULER_TAGS = 256
BIOS = 16384
# A host adapter may show thousands of tags on every queue, although the queues share them. Tags beyond these
# (2 MiB a disk) go to the hash, which counts what it cannot take.
MAX_STAMPS = 131072


@dataclass(frozen=True, slots=True)
class Plan:
    """What the tracer is asked for: targets, disk keys and room for what is in flight."""

    leaves: Sequence[Leaf]
    targets: Sequence[abi.Target]
    disk_keys: bytes
    stamps: int
    bios: int


def _tags(disk: BlockDevice) -> tuple[int, int]:
    """Hardware queues and places for tags in each, (0, 0) for a bio-based disk."""
    queues = disk.hardware_queues
    depths = [SCHEDULER_TAGS, disk.number("queue/nr_requests") or 0]
    for queue in queues:
        text = (queue / "nr_tags").read_text()
        depths.append(int(text))
    if not queues:
        return 0, 0
    return len(queues), min(max(depths), MAX_STAMPS // len(queues))


def plan(leaves: Sequence[Leaf]) -> Plan:
    """Lay out targets: those on one disk are chained and share its place for requests in flight."""
    if len(leaves) > abi.MAX_TARGETS:
        raise UsageError(f"{len(leaves)} disks are more than the {abi.MAX_TARGETS} opwatch watches at once")
    first_of_disk: dict[str, int] = {}
    keys = bytearray()
    targets: list[abi.Target] = []
    stamps = bios = 0
    for index, leaf in enumerate(leaves):
        disk = leaf.device.disk
        if disk.name in first_of_disk:
            targets.append(_on_same_disk(leaf, leaves, targets, first_of_disk[disk.name]))
            continue
        first_of_disk[disk.name] = index
        keys += abi.pack_disk_key(disk.dev, disk.name, index)
        queues, depth = _tags(disk)
        sectors = leaf.device.sectors if leaf.device.is_partition else abi.WHOLE_DISK
        bio_based = not disk.is_request_based
        targets.append(abi.Target(*sectors, stamps, queues, depth, bio_based=bio_based))
        stamps += queues * depth
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
    chained = targets[last]
    targets[last] = abi.Target(
        chained.first_sector,
        chained.last_sector,
        chained.stamps,
        chained.queues,
        chained.depth,
        len(targets) + 1,
        chained.bio_based,
    )
    return abi.Target(
        *leaf.device.sectors, chained.stamps, chained.queues, chained.depth, 0, chained.bio_based
    )


class BlockTracer:
    """Attached from construction to close(). Reads absolute samples; one per leaf."""

    backend = "libbpf"
    lacks: Sequence[str] = ()

    def __init__(self, leaves: Sequence[Leaf], *, queue_time: bool = False, raw_tp: bool = False) -> None:
        self.leaves = list(leaves)
        self.plan = plan(self.leaves)
        try:
            from opwatch._native import ProbeError, Tracer
        except ImportError as error:
            raise TracerMissing from error
        try:
            self._native = Tracer(
                abi.pack_targets(self.plan.targets),
                self.plan.disk_keys,
                self.plan.stamps,
                self.plan.bios,
                queue_time=queue_time,
                raw_tp=raw_tp,
            )
        except ProbeError as error:
            raise explain_probe_error(error) from error
        self._stats = [StatReader(leaf.device) for leaf in self.leaves]

    @property
    def hooks(self) -> str:
        """Which twins are attached."""
        return "raw_tp" if self._native.raw_tp else "tp_btf"

    def read(self) -> list[Reading]:
        """One reading per leaf, each between two readings of the kernel's statistics."""
        readings = []
        for index, stat in enumerate(self._stats):
            before = stat.read()
            sample = abi.decode_sample(self._native.sample(index))
            readings.append(Reading(sample, before, stat.read(), stat.reason))
        return readings

    def read_settled(self, patience_s: float = 0.2) -> list[Reading]:
        """A reading with nothing completing meanwhile, if there is such a moment soon; else the last."""
        return settled(self.read, patience_s)

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
        return PermissionMissing(f"{what}: needs CAP_BPF and CAP_PERFMON, or root. Try: sudo opwatch ...")
    if number in (errno.ENOENT, errno.ESRCH) and "BTF" in log:
        return Unsupported(f"{what}: this kernel has no BTF (CONFIG_DEBUG_INFO_BTF)")
    if number in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
        name = errno.errorcode[number]
        return OpwatchError(f"{what}: {name}, {os.strerror(number)}. ulimit -a shows what is allowed")
    return ProbeRejected(f"{what}: {errno.errorcode.get(number, number)}", log)
