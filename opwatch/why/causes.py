"""The causes of latency: for each a rule that finds when it acted, and what excludes it. Pure.

A rule returns None if the recording has no witness of its cause. Whether a candidate is the cause is decided
in decision.py, the same way for all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from opwatch import units
from opwatch.owners.cells import OwnerKey, OwnerKind
from opwatch.why.candidate import Candidate, CauseName
from opwatch.why.layers import StackLayer
from opwatch.why.slowness import Slowness
from opwatch.why.statistics.bursts import flag_bursts
from opwatch.why.witnessed import OwnerSeries

# The load is the same up to this ratio.
SAME_RATIO = 1.25
# A load that grows by more than this explains slowness better than the drive.
_GROWN_RATIO = 1.5
# The kernel's default timeout of a request is 30 s.
_TIMEOUT_NS = 29e9
# A poll in more intervals than this share cannot be separated from its absence.
_MAX_POLLED = 0.5
_SEQUENTIAL = 0.7
_SLC_DROP = 0.75
_SLOW_MEMBER_RATIO = 2.0
_PINNED = 0.9
_MOSTLY = 0.5
_KERNEL_KINDS = (OwnerKind.KERNEL, OwnerKind.WRITE_BACK)

Rule = Callable[[Slowness], Candidate | None]


def _per_s(slowness: Slowness, values: Sequence[float], *, as_bytes: bool = False) -> str:
    slow, usual = slowness.compare_means(values)
    shown = units.format_megabytes if as_bytes else units.format_rate
    unit = " MB/s" if as_bytes else "/s"
    otherwise = f"{shown(usual)}{unit}" if usual else "none"
    return f"{shown(slow)}{unit} in slow intervals, {otherwise} otherwise"


def _sum_ops(slowness: Slowness, name: str, *ops: str) -> list[float]:
    """Return the sum over operations of a series, for all operations by default."""
    chosen = [one for op, one in slowness.disk.ops.items() if not ops or op in ops]
    return [math.fsum(values) for values in zip(*(getattr(one, name) for one in chosen), strict=True)]


def _has_own_load_grown(slowness: Slowness) -> bool:
    return slowness.find_ratio(slowness.series.issued) > _GROWN_RATIO


def find_flushes(slowness: Slowness) -> Candidate | None:
    flushes = slowness.disk.ops.get("flush")
    if flushes is None:
        return None
    owner = _find_grown_owner(slowness, lambda one: one.flushes)
    whom = f" by {owner}" if owner else ""
    return Candidate(
        CauseName.FLUSHES,
        flag_bursts(list(flushes.count)),
        f"flushes{whom}: {_per_s(slowness, flushes.count)}",
        "commit less often, or use a drive with power-loss protection, whose flushes cost nothing",
    )


def find_kernel_work(slowness: Slowness) -> Candidate | None:
    owners = slowness.disk.owners or {}
    kernel = {key: one for key, one in owners.items() if key.kind in _KERNEL_KINDS}
    if not kernel:
        return None
    rates = [math.fsum(values) for values in zip(*(one.requests for one in kernel.values()), strict=True)]
    owner = _find_grown_owner(slowness, lambda one: one.requests, kernel)
    return Candidate(
        CauseName.KERNEL_WORK,
        flag_bursts(rates),
        f"requests of the kernel{f' (mostly {owner})' if owner else ''}: {_per_s(slowness, rates)}",
        "spread write-back: lower vm.dirty_background_bytes, or lengthen the commit interval of the file "
        "system",
        explains=(
            CauseName.FLUSHES,
            CauseName.READ_BEHIND_WRITE,
            CauseName.LARGE_REQUESTS,
            CauseName.SATURATION,
            CauseName.NEIGHBOUR,
        ),
    )


def _find_grown_owner(
    slowness: Slowness,
    series: Callable[[OwnerSeries], Sequence[float]],
    owners: dict[OwnerKey, OwnerSeries] | None = None,
) -> str | None:
    """Return the owner whose rate grew most in the slow intervals, or None if no owner's grew."""
    chosen = owners if owners is not None else slowness.disk.owners or {}
    grown = {
        one.name: slow - usual
        for one in chosen.values()
        for slow, usual in [slowness.compare_means(series(one))]
        if slow > usual
    }
    return max(grown, key=lambda name: grown[name]) if grown else None


def find_discards(slowness: Slowness) -> Candidate | None:
    discards = slowness.disk.ops.get("discard")
    if discards is None:
        return None
    series, usual = slowness.series, slowness.device_usual
    behind = math.fsum(series.behind)
    waited = math.fsum(series.behind_ns) - behind * usual
    whole = slowness.device_excess
    evidence = f"discards: {_per_s(slowness, discards.count)}"
    flags = [count > 0 for count in discards.count]
    if not behind or whole <= 0:
        return Candidate(CauseName.DISCARDS, flags, evidence, _DISCARD_CHECK)
    share = waited / whole
    evidence += f"; requests issued during a discard have {100 * min(share, 1):.0f} % of the excess"
    excluded = None if share >= _MOSTLY else "requests issued during a discard have little of the excess"
    return Candidate(
        CauseName.DISCARDS,
        flags,
        evidence,
        _DISCARD_CHECK,
        is_direct=share >= _MOSTLY,
        excluded=excluded,
        explains=(
            CauseName.READ_BEHIND_WRITE,
            CauseName.LARGE_REQUESTS,
            CauseName.NEIGHBOUR,
            CauseName.SATURATION,
        ),
    )


_DISCARD_CHECK = "mount without discard and run fstrim at quiet times, or lower queue/discard_max_bytes"


def find_errors(slowness: Slowness) -> Candidate | None:
    disk = slowness.disk
    troubles = [one + other for one, other in zip(disk.errors, disk.requeued, strict=True)]
    if not any(troubles):
        return None
    return Candidate(
        CauseName.ERRORS,
        [count > 0 for count in troubles],
        f"errors: {_per_s(slowness, disk.errors)}; requeues: {_per_s(slowness, disk.requeued)}",
        "read the kernel log of that time (journalctl -k)",
        explains=(CauseName.TIMEOUT,),
    )


def find_timeouts(slowness: Slowness) -> Candidate | None:
    flags = [value >= _TIMEOUT_NS for value in slowness.series.p99_ns]
    if not any(flags):
        return None
    return Candidate(
        CauseName.TIMEOUT,
        flags,
        "requests took 30 s, the kernel's timeout",
        "read the kernel log: 'completion polled' is a lost interrupt, 'aborting' the drive or its link",
        is_direct=True,
    )


def find_thermal(slowness: Slowness) -> Candidate | None:
    drive = slowness.drive
    if drive is None or drive.throttled is None or not any(drive.throttled):
        return None
    heat = f", at up to {max(drive.temperature):.0f} °C" if drive.temperature else ""
    return Candidate(
        CauseName.THERMAL,
        drive.throttled,
        f"the drive counted thermal throttling{heat}",
        "cool the drive; opwatch counters shows its temperature",
        explains=(CauseName.HOUSEKEEPING,),
    )


def find_collection(slowness: Slowness) -> Candidate | None:
    drive, writes = slowness.drive, slowness.disk.ops.get("write")
    if drive is None or drive.nand_per_s is None or writes is None:
        return None
    rates = [count / seconds for count, seconds in zip(writes.bytes, slowness.seconds, strict=True)]
    extra = [
        0.0 if math.isnan(nand) else max(nand - rate, 0.0)
        for nand, rate in zip(drive.nand_per_s, rates, strict=True)
    ]
    known = [at for at, nand in enumerate(drive.nand_per_s) if not math.isnan(nand)]
    slow_nand, usual_nand = (
        math.fsum(drive.nand_per_s[at] for at in known if slowness.slow[at] is is_slow)
        for is_slow in (True, False)
    )
    slow_host, usual_host = (
        math.fsum(rates[at] for at in known if slowness.slow[at] is is_slow) for is_slow in (True, False)
    )
    slow_waf = slow_nand / slow_host if slow_host else math.inf
    usual_waf = usual_nand / usual_host if usual_host else math.inf
    is_sequential = _find_sequential(slowness) >= _SEQUENTIAL
    excluded = None
    if slow_waf < SAME_RATIO * usual_waf:
        excluded = "the drive writes no more to NAND per host byte than otherwise"
    elif is_sequential:
        excluded = "the writes are sequential"
    elif slowness.find_ratio(writes.issued) > _GROWN_RATIO:
        excluded = "the host writes more than otherwise"
    return Candidate(
        CauseName.GARBAGE_COLLECTION,
        flag_bursts(extra),
        f"NAND {slow_waf:.1f} times host in slow intervals, {usual_waf:.1f} times otherwise, at "
        f"{_per_s(slowness, writes.bytes, as_bytes=True)} of writes",
        "leave more spare area (opwatch sweep advise), or trim free space (opwatch trim audit)",
        excluded=excluded,
        explains=(CauseName.READ_BEHIND_WRITE,),
    )


def _find_sequential(slowness: Slowness) -> float:
    """Return the sequential share of the writes in slow intervals."""
    writes = slowness.disk.ops["write"]
    issued = math.fsum(writes.issued[at] for at, slow in enumerate(slowness.slow) if slow)
    sequential = math.fsum(writes.sequential[at] for at, slow in enumerate(slowness.slow) if slow)
    return sequential / issued if issued else 0.0


def find_full_cache(slowness: Slowness) -> Candidate | None:
    """Sequential writes that drop to a lower rate in each episode, with the depth unchanged."""
    if slowness.op != "write" or _find_sequential(slowness) < _SEQUENTIAL:
        return None
    if slowness.find_ratio(slowness.series.bytes) > _SLC_DROP:
        return None
    drive = slowness.drive
    excluded = "the drive throttled by heat" if drive and drive.throttled and any(drive.throttled) else None
    return Candidate(
        CauseName.SLC_CACHE,
        slowness.slow,
        f"sequential writes fell: {_per_s(slowness, slowness.series.bytes, as_bytes=True)}",
        "let the drive idle for some minutes and write the same again: the same bytes must pass before the "
        "drop",
        excluded=excluded,
    )


def find_polling(slowness: Slowness) -> Candidate | None:
    drive = slowness.drive
    if drive is None or not any(drive.polled):
        return None
    share = sum(drive.polled) / len(drive.polled)
    if share > _MAX_POLLED:
        return None
    return Candidate(
        CauseName.POLLING,
        drive.polled,
        f"opwatch read the drive's log pages in {100 * share:.0f} % of the intervals",
        "record once with --waf 0: the slow requests must disappear; smartd and exporters poll likewise",
        explains=(CauseName.HOUSEKEEPING,),
    )


def find_reads_behind_writes(slowness: Slowness) -> Candidate | None:
    writes = slowness.disk.ops.get("write")
    if slowness.op != "read" or writes is None:
        return None
    return Candidate(
        CauseName.READ_BEHIND_WRITE,
        flag_bursts(list(writes.bytes)),
        f"writes: {_per_s(slowness, writes.bytes, as_bytes=True)}",
        "limit the writer (cgroup io.max), or move it to another drive",
        excluded="the reads grew as well" if _has_own_load_grown(slowness) else None,
    )


def find_large_requests(slowness: Slowness) -> Candidate | None:
    large = _sum_ops(slowness, "large_bytes", "read", "write")
    if not any(large):
        return None
    return Candidate(
        CauseName.LARGE_REQUESTS,
        flag_bursts(large),
        f"requests of 256 KiB and more: {_per_s(slowness, large, as_bytes=True)}",
        "limit the bandwidth of the large requests (cgroup io.max), or queue/max_sectors_kb",
        explains=(CauseName.READ_BEHIND_WRITE, CauseName.SATURATION),
    )


def find_saturation(slowness: Slowness) -> Candidate | None:
    issued = _sum_ops(slowness, "issued", "read", "write")
    depth = list(slowness.disk.depth)
    slow, usual = slowness.compare_means(issued)
    own = slowness.find_ratio(slowness.series.issued)
    excluded = None
    if slowness.find_ratio(depth) < SAME_RATIO:
        excluded = "no more requests were in flight than otherwise"
    elif own < SAME_RATIO:
        excluded = "the load was the same"
    return Candidate(
        CauseName.SATURATION,
        flag_bursts(issued),
        f"load: {units.format_rate(slow)} requests/s in slow intervals, {units.format_rate(usual)}/s "
        "otherwise, with more in flight",
        "limit the load, or spread it over more drives",
        excluded=excluded,
    )


def find_neighbour(slowness: Slowness) -> Candidate | None:
    owners = slowness.disk.owners or {}
    users = {key: one for key, one in owners.items() if key.kind not in (*_KERNEL_KINDS, OwnerKind.NOBODY)}
    if len(users) < 2:
        return None
    victim = max(users, key=lambda key: _count_usual(slowness, users[key]))
    others = {key: one for key, one in users.items() if key != victim}
    name = _find_grown_owner(slowness, lambda one: one.bytes, others)
    if name is None:
        return None
    nearest = next(one for one in others.values() if one.name == name)
    return Candidate(
        CauseName.NEIGHBOUR,
        flag_bursts(list(nearest.bytes)),
        f"{name}: {_per_s(slowness, nearest.bytes, as_bytes=True)}; {users[victim].name} unchanged",
        f"limit {name} (cgroup io.max or io.weight)",
        excluded=(
            f"{users[victim].name} grew as well"
            if slowness.find_ratio(users[victim].bytes) > _GROWN_RATIO
            else None
        ),
        explains=(
            CauseName.READ_BEHIND_WRITE,
            CauseName.LARGE_REQUESTS,
            CauseName.SATURATION,
            CauseName.FLUSHES,
        ),
    )


def _count_usual(slowness: Slowness, owner: OwnerSeries) -> float:
    """Return the requests of an owner outside of the slow intervals."""
    return math.fsum(count for count, slow in zip(owner.requests, slowness.slow, strict=True) if not slow)


def find_busy_host(slowness: Slowness) -> Candidate | None:
    disk = slowness.disk
    if not any(value == value for value in disk.cpu_busy):
        return None
    worst = max(
        (disk.cpu_steal, disk.cpu_irq, disk.cpu_busy),
        key=lambda series: (
            slowness.compare_means(_weigh(slowness, series))[0]
            - slowness.compare_means(_weigh(slowness, series))[1]
        ),
    )
    slow, usual = slowness.compare_means(_weigh(slowness, worst))
    known = [0.0 if math.isnan(value) else value for value in worst]
    return Candidate(
        CauseName.HOST_CPU,
        flag_bursts(known),
        f"CPUs: {100 * slow:.0f} % busy in slow intervals, {100 * usual:.0f} % otherwise",
        "compare the drive's own latency with the host's (opwatch counters --latency), or bind the "
        "interrupts to idle CPUs",
        excluded="the CPUs were not busier" if not slow > SAME_RATIO * usual else None,
        explains=(CauseName.PATH,),
    )


def _weigh(slowness: Slowness, shares: Sequence[float]) -> list[float]:
    """Return shares times seconds, so that a rate of them is a mean share."""
    return [share * seconds for share, seconds in zip(shares, slowness.seconds, strict=True)]


def find_sleep(slowness: Slowness) -> Candidate | None:
    counts = _sum_ops(slowness, "count")
    flags = [count > 0 and at > 0 and not counts[at - 1] for at, count in enumerate(counts)]
    if not any(flags):
        return None
    return Candidate(
        CauseName.SLEEP,
        flags,
        "the slow requests follow intervals without any request",
        "forbid deep sleep states for a test: nvme_core.default_ps_max_latency_us=0",
    )


def find_slow_member(slowness: Slowness) -> Candidate | None:
    origin = slowness.disk.label.partition(" (of ")[2]
    peers = [
        disk.ops[slowness.op]
        for disk in slowness.run.disks.values()
        if origin
        and disk is not slowness.disk
        and disk.label.endswith(f"(of {origin}")
        and slowness.op in disk.ops
        and len(disk) == len(slowness.disk)
    ]
    if not peers:
        return None
    own = _mean_latency(slowness.series.device_ns, slowness.series.count)
    others = [_mean_latency(peer.device_ns, peer.count) for peer in peers]
    flags = [
        slow and value > _SLOW_MEMBER_RATIO * max(other[at] for other in others) > 0
        for at, (slow, value) in enumerate(zip(slowness.slow, own, strict=True))
    ]
    if sum(flags) < _MOSTLY * sum(slowness.slow):
        return None
    return Candidate(
        CauseName.SLOW_MEMBER,
        flags,
        f"its device time is more than {_SLOW_MEMBER_RATIO:g} times that of the other members of "
        f"{origin.rstrip(')')}",
        "replace the member, or look for its own cause below",
        is_direct=True,
        explains=tuple(CauseName),
    )


def _mean_latency(sums: Sequence[float], counts: Sequence[float]) -> list[float]:
    return [total / count if count else 0.0 for total, count in zip(sums, counts, strict=True)]


def find_io_max(slowness: Slowness) -> Candidate | None:
    return Candidate(
        CauseName.IO_MAX,
        slowness.slow,
        "requests waited for their control group's limit",
        "raise io.max of the group (opwatch top --by cgroup shows it)",
        is_direct=True,
    )


def find_write_back_throttling(slowness: Slowness) -> Candidate | None:
    reads = slowness.disk.ops.get("read")
    if slowness.op != "write" or reads is None or not any(reads.count):
        return None
    waits = slowness.find_ratio([0.0 if math.isnan(value) else value for value in reads.admission_ns])
    return Candidate(
        CauseName.WRITE_BACK_THROTTLING,
        slowness.slow,
        "writes waited before a request was allocated, reads did not",
        "set queue/wbt_lat_usec to 0 for a test",
        is_direct=True,
        excluded="reads waited as well" if waits > _GROWN_RATIO else None,
    )


def find_tags(slowness: Slowness) -> Candidate | None:
    depth = list(slowness.disk.depth)
    most = max(depth)
    slow = [value for value, is_slow in zip(depth, slowness.slow, strict=True) if is_slow]
    pinned = sum(value >= _PINNED * most for value in slow)
    return Candidate(
        CauseName.TAGS,
        slowness.slow,
        f"{most:.0f} requests were in flight in most slow intervals and never more",
        "raise queue/nr_requests, or limit the load",
        is_direct=True,
        excluded=None if pinned >= _PINNED * len(slow) and most > 1 else "the number in flight varied",
    )


def find_scheduler(slowness: Slowness) -> Candidate | None:
    device = slowness.device_excess
    whole = math.fsum(slowness.total_excess.values())
    return Candidate(
        CauseName.SCHEDULER,
        slowness.slow,
        "requests waited in the queue, the device was as fast as otherwise",
        "compare with queue/scheduler set to none",
        is_direct=True,
        excluded="the device was slower too" if device > 0.1 * whole else None,
    )


def find_path(slowness: Slowness) -> Candidate | None:
    return Candidate(
        CauseName.PATH,
        slowness.slow,
        "the drive's own latency (log D0h) did not grow with the host's",
        "look for busy CPUs, interrupts and the transport: opwatch counters --latency compares both",
        is_direct=True,
    )


_DRIVE_RULES: tuple[Rule, ...] = (
    find_timeouts,
    find_errors,
    find_flushes,
    find_kernel_work,
    find_discards,
    find_thermal,
    find_collection,
    find_full_cache,
    find_polling,
    find_reads_behind_writes,
    find_large_requests,
    find_saturation,
    find_neighbour,
    find_sleep,
    find_slow_member,
)
_DEVICE_RULES = (*_DRIVE_RULES, find_busy_host)
RULES: dict[StackLayer, tuple[Rule, ...]] = {
    StackLayer.THROTTLE: (find_io_max,),
    StackLayer.ADMISSION: (find_write_back_throttling, find_tags),
    # Requests queue behind a slow device, so its causes are causes of the queue as well.
    StackLayer.QUEUE: (find_scheduler, *_DEVICE_RULES),
    StackLayer.DEVICE: _DEVICE_RULES,
    StackLayer.DRIVE: _DRIVE_RULES,
    StackLayer.PATH: (find_path, find_timeouts, find_errors, find_busy_host),
}
