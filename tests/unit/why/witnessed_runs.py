"""Synthetic runs for `opwatch why`: a disk with a base load, and bursts of what each test injects."""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from opwatch.owners.cells import OwnerKey, OwnerKind
from opwatch.samples.sample import GroupSetting, QueueSettings
from opwatch.why.candidate import CauseName
from opwatch.why.decision import CauseVerdict
from opwatch.why.drives import DriveWitness
from opwatch.why.slowness import Slowness, find_slowness
from opwatch.why.witnessed import NAN, OpSeries, OwnerSeries, WitnessedDisk, WitnessedRun

S = 10**9
US = 1_000.0
MS = 1_000_000.0
BLOCK = 4096
LIMIT = GroupSetting("/victim", "io.max", "wiops=100")
SETTINGS = QueueSettings("mq-deadline", 256, 75_000, groups=(LIMIT,))


@dataclass
class Second:
    """One second of a disk; a test changes what its cause changes."""

    reads: float = 1000
    writes: float = 1000
    flushes: float = 0
    discards: float = 0
    read_ns: float = 100 * US
    write_ns: float = 100 * US
    queue_ns: float = 5 * US
    admission_ns: float = 1 * US
    throttle_ns: float = 0
    large_bytes: float = 0
    behind: float = 0
    errors: float = 0
    depth: float = 0.2
    cpu: float = 0.1
    nand_per_s: float = NAN
    sequential: float = 0.0
    write_bytes: float | None = None
    owners: dict[str, float] = field(default_factory=dict)
    kernel: float = 0


Change = Callable[[Second], None]


def draw_bursts(seconds: int, seed: int, *, count: int = 6, length: int = 4) -> list[int]:
    """Return the seconds of randomly placed bursts."""
    rng = random.Random(seed)
    slot = seconds // count
    starts = [number * slot + rng.randrange(2, slot - length - 1) for number in range(count)]
    return [start + offset for start in starts for offset in range(length)]


def make_seconds(
    count: int, seed: int, places: Iterable[int] = (), change: Change | None = None
) -> list[Second]:
    """Return seconds with 3 % noise, changed at the given places."""
    rng = random.Random(seed)
    seconds = []
    chosen = set(places)
    for at in range(count):
        second = Second()
        for name in ("reads", "writes", "read_ns", "write_ns", "queue_ns", "cpu"):
            setattr(second, name, getattr(second, name) * rng.lognormvariate(0, 0.03))
        if change and at in chosen:
            change(second)
        seconds.append(second)
    return seconds


def make_disk(seconds: Sequence[Second], *, has_queue: bool = True, label: str = "nvme0n1") -> WitnessedDisk:
    """Return a disk with these seconds."""
    disk = WitnessedDisk(label, label.split()[0], settings=[(0, SETTINGS)])
    for number, one in enumerate(seconds):
        disk.begins_ns.append(number * S)
        disk.ends_ns.append((number + 1) * S)
        disk.depth.append(one.depth)
        disk.errors.append(one.errors)
        disk.requeued.append(0)
        disk.cpu_busy.append(one.cpu)
        disk.cpu_irq.append(0)
        disk.cpu_steal.append(0)
    disk.ops["read"] = _make_op(
        [one.reads for one in seconds], [one.read_ns for one in seconds], seconds, has_queue
    )
    disk.ops["write"] = _make_op(
        [one.writes for one in seconds], [one.write_ns for one in seconds], seconds, has_queue
    )
    for at, one in enumerate(seconds):
        if one.write_bytes is not None:
            disk.ops["write"].bytes[at] = one.write_bytes
        disk.ops["write"].large_bytes[at] = one.large_bytes
        disk.ops["write"].sequential[at] = one.sequential * one.writes
    for op, name in (("flush", "flushes"), ("discard", "discards")):
        counts = [float(getattr(one, name)) for one in seconds]
        if any(counts):
            disk.ops[op] = _make_op(counts, [50 * US] * len(seconds), seconds, has_queue)
    _add_owners(disk, seconds)
    return disk


def _make_op(
    counts: Sequence[float], mean_ns: Sequence[float], seconds: Sequence[Second], has_queue: bool
) -> OpSeries:
    def fill(values: Iterable[float]) -> array[float]:
        return array("d", values)

    return OpSeries(
        count=fill(counts),
        bytes=fill(count * BLOCK for count in counts),
        device_ns=fill(count * mean for count, mean in zip(counts, mean_ns, strict=True)),
        queue_ns=fill(
            count * one.queue_ns if has_queue else NAN for count, one in zip(counts, seconds, strict=True)
        ),
        p99_ns=fill(mean * 3 if count else NAN for count, mean in zip(counts, mean_ns, strict=True)),
        p10_ns=fill(mean / 2 if count else NAN for count, mean in zip(counts, mean_ns, strict=True)),
        large_bytes=fill(0 for _ in counts),
        behind=fill(one.behind * count for count, one in zip(counts, seconds, strict=True)),
        behind_ns=fill(
            one.behind * count * mean for count, mean, one in zip(counts, mean_ns, seconds, strict=True)
        ),
        issued=fill(counts),
        sequential=fill(0 for _ in counts),
        throttle_ns=fill(
            count * one.throttle_ns if has_queue else NAN for count, one in zip(counts, seconds, strict=True)
        ),
        admission_ns=fill(
            count * one.admission_ns if has_queue else NAN for count, one in zip(counts, seconds, strict=True)
        ),
    )


def _add_owners(disk: WitnessedDisk, seconds: Sequence[Second]) -> None:
    names = dict.fromkeys(name for one in seconds for name in one.owners)
    if not names and not any(one.kernel for one in seconds):
        return
    disk.owners = {}

    def add_owner(key: OwnerKey, name: str, requests: list[float]) -> None:
        values = array("d", requests)
        assert disk.owners is not None
        disk.owners[key] = OwnerSeries(
            name, array("d", [BLOCK * one for one in values]), values, values, values
        )

    for number, name in enumerate(names, 1):
        add_owner(OwnerKey(OwnerKind.PROCESS, number), name, [one.owners.get(name, 0.0) for one in seconds])
    if any(one.kernel for one in seconds):
        add_owner(OwnerKey(OwnerKind.KERNEL, 99), "jbd2/nvme0n1", [float(one.kernel) for one in seconds])


def make_drive(
    seconds: Sequence[Second], *, polled: Iterable[int] = (), throttled: Iterable[int] = ()
) -> DriveWitness:
    """Return what a drive reported."""
    at_poll, at_heat = set(polled), set(throttled)
    return DriveWitness(
        polled=tuple(at in at_poll for at in range(len(seconds))),
        nand_per_s=tuple(one.nand_per_s for one in seconds)
        if any(one.nand_per_s == one.nand_per_s for one in seconds)
        else None,
        throttled=tuple(at in at_heat for at in range(len(seconds))),
    )


def make_slowness(disk: WitnessedDisk, op: str, drive: DriveWitness | None = None) -> Slowness:
    """Return the slowness of an operation, which must exist."""
    run = WitnessedRun(disks={disk.label: disk})
    found = find_slowness(run, disk, op, drive)
    assert found
    return found


def list_names(verdict: CauseVerdict) -> list[CauseName]:
    """Return the named causes in the order of the answer."""
    return [one.candidate.name for cause in verdict.causes for one in cause.found]


def collect_names(verdict: CauseVerdict) -> set[CauseName]:
    """Return the named causes, where their order is not tested."""
    return set(list_names(verdict))
