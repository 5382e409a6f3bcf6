"""Discards of one disk between two readings: who sent them, what became of them, what waited. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from opwatch.trace.abi import TargetSample
from opwatch.trim.audit.flow import Amount, Origin, Stage, Trace, Who, total

OPS = ("discard", "write_zeroes", "secure_erase")


@dataclass(frozen=True, slots=True)
class Sender:
    """Who discarded. Sizes are of single bios, and of all since the tracer was attached; `where` is the
    filesystem that the bios came from, None where no mount tells."""

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
class Stalled:
    """Reads or writes that were issued while a discard was in flight. `max_ns` is since the attachment."""

    op: str
    count: int
    mean_ns: float
    max_ns: int


@dataclass(frozen=True, slots=True)
class Discards:
    """One disk or partition. `split_ratio` is requests a bio, None without either; `whole_ratio` the share of
    their bytes in whole granules of the device, None without bytes. `lost` are events of all disks that found
    no room; `unseen` is how many more requests the kernel counted than `ended`, None where it has no count
    of the same."""

    senders: tuple[Sender, ...]
    bios: int
    requests: int
    ended: int
    ranges: int
    bytes: int
    split_ratio: float | None
    whole_ratio: float | None
    mean_ns: float | None
    stalled: tuple[Stalled, ...]
    lost: int = 0
    unseen: int | None = None


Devs = Collection[str] | None  # numbers of devices, None for all of a disk


def _grown(then: Trace, now: Trace, stage: Stage, disk: str, op: str, devs: Devs = None) -> Amount:
    first, last = (total(trace.select(stage, disk=disk, op=op, devs=devs)) for trace in (then, now))
    return Amount(
        last.count - first.count,
        last.bytes - first.bytes,
        last.ranges - first.ranges,
        last.granule_bytes - first.granule_bytes,
        last.sum_ns - first.sum_ns,
        last.max_ns,
    )


def _senders(
    then: Trace, now: Trace, disk: str, cgroups: dict[int, str], mounts: dict[str, str], devs: Devs
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
            kernel_thread=origin.who is Who.KERNEL,
            count=count,
            bytes=origin.bytes - (was.bytes if was else 0),
            min_bytes=origin.min_bytes,
            max_bytes=origin.max_bytes,
            below_granule=origin.below_granule - (was.below_granule if was else 0),
        )


def stalled(begin: TargetSample, end: TargetSample) -> tuple[Stalled, ...]:
    """What the block tracer says of what waited, between two of its samples."""
    waited = []
    for op in ("read", "write"):
        then, now = begin.ops[op], end.ops[op]
        if count := now.behind - then.behind:
            mean_ns = (now.behind_sum_ns - then.behind_sum_ns) / count
            waited.append(Stalled(op, count, mean_ns, now.behind_max_ns))
    return tuple(waited)


def between(
    then: Trace,
    now: Trace,
    disk: str,
    cgroups: dict[int, str],
    mounts: dict[str, str],
    devs: Devs = None,
) -> Discards:
    """What happened on a disk, or on these devices of it. `cgroups` are names by id, `mounts` filesystems by
    device number. What waits behind discards is of the whole disk."""
    disk = disk[:16]
    # One look at all of them, and not one for each of the stages below.
    then, now = then.of(disk), now.of(disk)
    bios, issued, requeued, done, bios_done = (
        _grown(then, now, stage, disk, "discard", devs)
        for stage in (Stage.BIO, Stage.ISSUED, Stage.REQUEUED, Stage.DONE, Stage.BIO_DONE)
    )
    if not issued.count and not done.count:
        # Its driver has no requests, or there was nothing.
        done = bios_done
    requests = issued.count - requeued.count
    behind = {op: _grown(then, now, Stage.BEHIND, disk, op) for op in ("read", "write")}
    senders = sorted(_senders(then, now, disk, cgroups, mounts, devs), key=lambda each: -each.bytes)
    return Discards(
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
            Stalled(op, found.count, found.sum_ns / found.count, found.max_ns)
            for op, found in behind.items()
            if found.count
        ),
        lost=sum(now.loss) - sum(then.loss),
    )
