"""Summarize a disk's discards between two samples: senders, results, and delayed reads and writes. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from opwatch.trace.abi import TargetSample
from opwatch.trim.audit.flow import Amount, Origin, SenderKind, Stage, Trace, sum_flows

OPS = ("discard", "write_zeroes", "secure_erase")
# OW_DISK_NAME, the stored length of a disk's name.
DISK_NAME_BYTES = 16


@dataclass(frozen=True, slots=True)
class Sender:
    """A sender of discards. `min_bytes` and `max_bytes` are bio sizes since the tracer was attached. `where`
    is the sending filesystem, None if no mount matches the device."""

    comm: str
    cgroup: str
    where: str | None
    op: str
    kernel_thread: bool
    count: int
    bytes: int
    min_bytes: int
    max_bytes: int
    below_granule: int


@dataclass(frozen=True, slots=True)
class DelayedRequests:
    """Reads or writes that were issued while a discard was in flight. `max_ns` is the maximum since the
    tracer was attached."""

    op: str
    count: int
    mean_ns: float
    max_ns: int


@dataclass(frozen=True, slots=True)
class DiscardSummary:
    """Discards of a disk or partition. `split_ratio` is requests per bio, None without bios or requests.
    `whole_ratio` is the share of completed bytes in whole granules of the device, None if no bytes completed.
    `lost` counts events on all disks without room in the BPF maps. `unseen` is the kernel's request count
    minus `ended`, None without a comparable count."""

    senders: tuple[Sender, ...]
    bios: int
    requests: int
    ended: int
    ranges: int
    bytes: int
    split_ratio: float | None
    whole_ratio: float | None
    mean_ns: float | None
    stalled: tuple[DelayedRequests, ...]
    lost: int = 0
    unseen: int | None = None


@dataclass(frozen=True, slots=True)
class DiscardSample:
    """The discard tracer's counters of a disk at a point in time. `device` is a partition's number, None for
    the whole disk. `cgroups` (names by id) and `mounts` (filesystems by device number) describe the senders
    at that time. `is_chained` is True if the block tracer counts reads and writes issued during discards."""

    disk: str
    trace: Trace
    device: str | None = None
    cgroups: Mapping[int, str] = field(default_factory=dict)
    mounts: Mapping[str, str] = field(default_factory=dict)
    is_chained: bool = False


DevNumbers = Collection[str] | None  # device numbers; None for the whole disk


def _compute_growth(
    then: Trace, now: Trace, stage: Stage, disk: str, op: str, devs: DevNumbers = None
) -> Amount:
    first, last = (sum_flows(trace.select(stage, disk=disk, op=op, devs=devs)) for trace in (then, now))
    return Amount(
        last.count - first.count,
        last.bytes - first.bytes,
        last.ranges - first.ranges,
        last.granule_bytes - first.granule_bytes,
        last.sum_ns - first.sum_ns,
        last.max_ns,
    )


def _find_senders(
    then: Trace,
    now: Trace,
    disk: str,
    cgroups: Mapping[int, str],
    mounts: Mapping[str, str],
    devs: DevNumbers,
) -> Iterable[Sender]:
    before = {origin.key: origin for origin in then.origins}
    for origin in now.origins:
        was: Origin | None = before.get(origin.key)
        count = origin.count - (was.count if was else 0)
        if origin.disk != disk or not count or (devs is not None and origin.dev not in devs):
            continue
        yield Sender(
            comm=origin.comm,
            cgroup=cgroups.get(origin.cgroup, f"cgroup {origin.cgroup}"),
            where=mounts.get(origin.dev),
            op=origin.op,
            kernel_thread=origin.who is SenderKind.KERNEL,
            count=count,
            bytes=origin.bytes - (was.bytes if was else 0),
            min_bytes=origin.min_bytes,
            max_bytes=origin.max_bytes,
            below_granule=origin.below_granule - (was.below_granule if was else 0),
        )


def find_delayed(begin: TargetSample, end: TargetSample) -> tuple[DelayedRequests, ...]:
    """Return the reads and writes issued during discards, between two block tracer samples."""
    waited = []
    for op in ("read", "write"):
        then, now = begin.ops[op], end.ops[op]
        if count := now.behind - then.behind:
            mean_ns = (now.behind_sum_ns - then.behind_sum_ns) / count
            waited.append(DelayedRequests(op, count, mean_ns, now.behind_max_ns))
    return tuple(waited)


def summarize_discards(
    then: Trace,
    now: Trace,
    disk: str,
    cgroups: Mapping[int, str],
    mounts: Mapping[str, str],
    devs: DevNumbers = None,
) -> DiscardSummary:
    """Return the discards between two traces of a disk, or of its devices `devs`. `cgroups` are names by id,
    `mounts` are filesystems by device number. `stalled` always covers the whole disk."""
    disk = disk[:DISK_NAME_BYTES]
    # Filter by disk once; each stage below then scans fewer flows.
    then, now = then.select_disk(disk), now.select_disk(disk)
    bios, issued, requeued, done, bios_done = (
        _compute_growth(then, now, stage, disk, "discard", devs)
        for stage in (Stage.BIO, Stage.ISSUED, Stage.REQUEUED, Stage.DONE, Stage.BIO_DONE)
    )
    if not issued.count and not done.count:
        # A bio-based driver has no requests.
        done = bios_done
    requests = issued.count - requeued.count
    behind = {op: _compute_growth(then, now, Stage.BEHIND, disk, op) for op in ("read", "write")}
    senders = sorted(_find_senders(then, now, disk, cgroups, mounts, devs), key=lambda sender: -sender.bytes)
    return DiscardSummary(
        senders=tuple(senders),
        bios=bios.count,
        requests=requests,
        ended=done.count,
        ranges=issued.ranges - requeued.ranges,
        bytes=bios.bytes,
        split_ratio=requests / bios.count if bios.count and issued.count else None,
        whole_ratio=done.granule_bytes / done.bytes if done.bytes else None,
        mean_ns=done.sum_ns / done.count if done.count else None,
        stalled=tuple(
            DelayedRequests(op, delay.count, delay.sum_ns / delay.count, delay.max_ns)
            for op, delay in behind.items()
            if delay.count
        ),
        lost=sum(now.loss) - sum(then.loss),
    )


def _make_empty_summary(lost: int) -> DiscardSummary:
    """Return the summary of an interval without discards."""
    return DiscardSummary(
        senders=(),
        bios=0,
        requests=0,
        ended=0,
        ranges=0,
        bytes=0,
        split_ratio=None,
        whole_ratio=None,
        mean_ns=None,
        stalled=(),
        lost=lost,
    )


def extract_sample(
    trace: Trace,
    disk: str,
    device: str | None,
    cgroups: Mapping[int, str],
    mounts: Mapping[str, str],
    *,
    is_chained: bool,
) -> DiscardSample:
    """Extract the sample of a disk or partition from a trace of several disks."""
    known_as = disk[:DISK_NAME_BYTES]
    origins = tuple(origin for origin in trace.origins if origin.disk == known_as)
    own = Trace(
        flows=tuple(flow for flow in trace.flows if flow.disk == known_as),
        origins=origins,
        absent=trace.absent,
        loss=trace.loss,
        misses=trace.misses,
        stats={disk: trace.stats[disk]} if disk in trace.stats else {},
        claims_seen=trace.claims_seen,
    )
    ids, devs = {origin.cgroup for origin in origins}, {origin.dev for origin in origins}
    return DiscardSample(
        disk=disk,
        trace=own,
        device=device,
        cgroups={number: cgroups[number] for number in sorted(ids) if number in cgroups},
        mounts={dev: mounts[dev] for dev in sorted(devs) if dev in mounts},
        is_chained=is_chained,
    )


def compare_samples(
    then: DiscardSample, now: DiscardSample, begin: TargetSample, end: TargetSample, *, final: bool
) -> DiscardSummary:
    """Return the discards between two samples of a disk. `begin` and `end` are the block tracer's samples of
    the same times. With `final`, the interval is the whole watch, which the kernel's own count covers."""
    if (now.trace.flows, now.trace.origins) == (then.trace.flows, then.trace.origins):
        discards = _make_empty_summary(sum(now.trace.loss) - sum(then.trace.loss))
    else:
        devs = None if now.device is None else [now.device]
        discards = summarize_discards(then.trace, now.trace, now.disk, now.cgroups, now.mounts, devs)
    if now.is_chained:
        waited = find_delayed(begin, end)
        discards = replace(discards, stalled=waited) if waited != discards.stalled else discards
    counted = None if now.device else now.trace.stats.get(now.disk)
    if final and counted:
        discards = replace(discards, unseen=counted[0] - discards.ended)
    return discards
