"""The causes of latency: for each a rule that finds when it acted, and what excludes it. Pure.

A rule returns None if the recording has no witness of its cause. Whether a candidate is the cause is decided
in decision.py, the same way for all.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from statistics import median
from typing import NamedTuple

from opwatch import units
from opwatch.owners.cells import OwnerKey, OwnerKind
from opwatch.why.candidate import DIRECT_CHANCE, Candidate, CauseName
from opwatch.why.collection import find_collection
from opwatch.why.episodes import find_episodes
from opwatch.why.full_cache import find_full_cache
from opwatch.why.layers import StackLayer
from opwatch.why.slowness import GROWN_RATIO, SAME_RATIO, Slowness
from opwatch.why.statistics.bursts import flag_bursts, flag_largest
from opwatch.why.statistics.matching import MIN_EPISODES
from opwatch.why.waits import (
    BEFORE_THE_DEVICE,
    Rule,
    compare_cpus,
    explain_busy_cpus,
    find_path,
    find_scheduler,
    is_device_as_usual,
    waits_for_free_device,
)
from opwatch.why.witnessed import LARGE_BYTES, NAN, OwnerSeries

# The kernel's default timeout of a request is 30 s.
_TIMEOUT_NS = 29e9
# A poll in more intervals than this share cannot be separated from its absence.
_MAX_POLLED = 0.5
# Slow requests in flight during a poll: their least number, and share; the most that is expected by chance.
_MIN_REQUESTS, _MOSTLY_INSIDE, _MAX_COVERED = 10, 0.5, 0.1
# Requests of the kernel must grow by this ratio, in this many slow intervals, to be the cause by themselves.
_GROWN_KERNEL, _MIN_KERNEL = 2.0, 10
_SLOW_MEMBER_RATIO = 2.0
# Requests of a drive at its limit take at least this multiple of the usual time; one that is merely busier
# than usual delays them less.
_SATURATED_RATIO = 2.5
# With more writes per flush, the writes themselves may be the cause.
_WRITES_PER_FLUSH = 4
_MOSTLY, _SOME = 0.5, 0.2
_KERNEL_KINDS = (OwnerKind.KERNEL, OwnerKind.WRITE_BACK)


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
    return slowness.find_ratio(slowness.series.issued) > GROWN_RATIO


def _has_load_grown(slowness: Slowness) -> bool:
    """Return whether more requests or more bytes were read and written than in other intervals with any."""
    issued, sizes = (_sum_ops(slowness, name, "read", "write") for name in ("issued", "bytes"))
    return any(_find_busy_ratio(slowness, values) > GROWN_RATIO for values in (issued, sizes))


def _find_busy_ratio(slowness: Slowness, values: Sequence[float]) -> float:
    """Return the rate in slow intervals over that in other intervals in which requests were issued."""
    issued = _sum_ops(slowness, "issued", "read", "write")
    return slowness.find_ratio([value if count else NAN for value, count in zip(values, issued, strict=True)])


def find_flushes(slowness: Slowness) -> Candidate | None:
    flushes = slowness.disk.ops.get("flush")
    if flushes is None:
        return None
    owner = _find_grown_owner(slowness, lambda one: one.flushes)
    writes = slowness.disk.ops.get("write")
    more_flushes, more_writes = (
        slow - usual
        for slow, usual in (
            slowness.compare_means(flushes.count),
            slowness.compare_means(writes.issued) if writes else (0.0, 0.0),
        )
    )
    explains = [CauseName.PATH]
    if more_writes <= _WRITES_PER_FLUSH * more_flushes:
        # The writes between the flushes are part of the same load.
        explains += [CauseName.READ_BEHIND_WRITE, CauseName.SATURATION]
    whom = f" by {owner}" if owner else ""
    return Candidate(
        CauseName.FLUSHES,
        flag_bursts(list(flushes.count)),
        f"flushes{whom}: {_per_s(slowness, flushes.count)}",
        "commit less often, or use a drive with power-loss protection, whose flushes cost nothing",
        explains=tuple(explains),
    )


def find_kernel_work(slowness: Slowness) -> Candidate | None:
    owners = slowness.disk.owners or {}
    kernel = {key: one for key, one in owners.items() if key.kind in _KERNEL_KINDS}
    if not kernel:
        return None
    rates = [math.fsum(values) for values in zip(*(one.requests for one in kernel.values()), strict=True)]
    owner = _find_grown_owner(slowness, lambda one: one.requests, kernel)
    evidence = f"requests of the kernel{f' (mostly {owner})' if owner else ''}: {_per_s(slowness, rates)}"
    share = _find_own_share(slowness, list(kernel.values()))
    is_direct = (
        share >= _MOSTLY
        and slowness.find_ratio(rates) >= _GROWN_KERNEL
        and sum(slowness.slow) >= _MIN_KERNEL
        and explain_busy_cpus(slowness) is None
    )
    if is_direct:
        evidence += f"; they have {100 * min(share, 1):.0f} % of the excess themselves"
    return Candidate(
        CauseName.KERNEL_WORK,
        flag_bursts(rates),
        evidence,
        "spread write-back: lower vm.dirty_background_bytes, or lengthen the commit interval of the file "
        "system",
        is_direct=is_direct,
        explains=(
            CauseName.FLUSHES,
            CauseName.READ_BEHIND_WRITE,
            CauseName.LARGE_REQUESTS,
            CauseName.SATURATION,
            CauseName.NEIGHBOUR,
        ),
    )


def _find_own_share(slowness: Slowness, owners: Sequence[OwnerSeries]) -> float:
    """Return the share of the device's excess that these owners' own requests have."""
    usual, whole = slowness.device_usual, slowness.device_excess
    own = math.fsum(
        owner.device_ns[at] - owner.requests[at] * usual
        for owner in owners
        for at, is_slow in enumerate(slowness.slow)
        if is_slow
    )
    return own / whole if whole > 0 else 0.0


def _find_grown_owner(
    slowness: Slowness,
    series: Callable[[OwnerSeries], Sequence[float]],
    owners: dict[OwnerKey, OwnerSeries] | None = None,
) -> str | None:
    """Return the owner whose rate grew most in the slow intervals, or None if no owner's grew."""
    chosen = owners if owners is not None else slowness.disk.owners or {}
    grown = {
        one.name: slow - usual
        for key, one in chosen.items()
        if key.kind is not OwnerKind.NOBODY
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
    excluded = None if share >= _SOME else "requests issued during a discard have little of the excess"
    return Candidate(
        CauseName.DISCARDS,
        flags,
        evidence,
        _DISCARD_CHECK,
        is_direct=share >= _MOSTLY,
        excluded=excluded,
        chance=DIRECT_CHANCE,
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
    counts = {"errors": disk.errors, "requeues": disk.requeued}
    return Candidate(
        CauseName.ERRORS,
        [count > 0 for count in troubles],
        "; ".join(f"{name}: {_per_s(slowness, series)}" for name, series in counts.items() if any(series)),
        "read the kernel log of that time (journalctl -k)",
        chance=DIRECT_CHANCE,
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
        chance=DIRECT_CHANCE,
        explains=(CauseName.HOUSEKEEPING,),
    )


def find_polling(slowness: Slowness) -> Candidate | None:
    drive = slowness.drive
    if drive is None or not any(drive.polled):
        return None
    share = sum(drive.polled) / len(drive.polled)
    if share > _MAX_POLLED:
        return None
    inside = _find_inside_polls(slowness, drive.polls_ns)
    return Candidate(
        CauseName.POLLING,
        drive.polled if inside is None else inside.flags,
        f"opwatch read the drive's log pages in {100 * share:.0f} % of the intervals"
        f"{inside.evidence if inside else ''}",
        "record once with --waf 0: the slow requests must disappear; smartd and exporters poll likewise",
        is_direct=inside is not None,
        explains=(CauseName.HOUSEKEEPING,),
    )


class _InsidePolls(NamedTuple):
    """The intervals with recorded slow requests that were in flight during a poll."""

    flags: list[bool]
    evidence: str


def _find_inside_polls(slowness: Slowness, polls_ns: Sequence[tuple[int, int]]) -> _InsidePolls | None:
    """Return which recorded slow requests were in flight during a poll, if far more than by chance.

    A poll at regular times and slowness at regular times coincide by chance as often as not; but requests
    that are slow only while a poll is answered are slow because of it.
    """
    requests = [one for one in slowness.disk.slow_requests if one.op == slowness.op]
    if len(requests) < _MIN_REQUESTS or not polls_ns:
        return None
    ends_ns = [end_ns for _, end_ns in polls_ns]
    places = [bisect_left(ends_ns, one.begin_ns) for one in requests]
    inside = [
        (one, at)
        for one, at in zip(requests, places, strict=True)
        if at < len(polls_ns) and polls_ns[at][0] <= one.end_ns
    ]
    mean_ns = sum(one.end_ns - one.begin_ns for one in requests) / len(requests)
    covered_ns = sum(end_ns - begin_ns + mean_ns for begin_ns, end_ns in polls_ns)
    by_chance = covered_ns / (slowness.seconds_in_all * 1e9)
    if len(inside) < _MOSTLY_INSIDE * len(requests) or by_chance > _MAX_COVERED:
        return None
    if len({at for _, at in inside}) < MIN_EPISODES:
        return None
    flags = [False] * len(slowness.slow)
    for one, _ in inside:
        flags[min(bisect_left(slowness.disk.ends_ns, one.end_ns), len(flags) - 1)] = True
    evidence = (
        f"; {len(inside)} of {len(requests)} requests above the limit of --slow were in flight during a "
        f"poll, {100 * by_chance:.2g} % expected by chance"
    )
    return _InsidePolls(flags, evidence)


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
    slow, usual = slowness.compare_means(issued)
    large_slow, large_usual = slowness.compare_means(_sum_ops(slowness, "large_bytes", "read", "write"))
    flags, excluded = flag_bursts(issued), None
    is_varied = not any(flags)
    if is_varied:
        flags = _flag_busiest(slowness)
    # Idle intervals say nothing about the drive under its usual load.
    if _find_busy_ratio(slowness, slowness.disk.depth) < SAME_RATIO:
        excluded = "no more requests were in flight than otherwise"
    elif _find_busy_ratio(slowness, slowness.series.issued) < SAME_RATIO:
        excluded = "the load was the same"
    elif slow - usual <= (large_slow - large_usual) / LARGE_BYTES:
        excluded = "the additional requests are large"
    elif waits_for_free_device(slowness):
        excluded = "requests waited in the queue of a device with free tags"
    elif is_varied:
        excluded = _explain_unsaturated(slowness, flags)
    return Candidate(
        CauseName.SATURATION,
        flags,
        f"load: {units.format_rate(slow)} requests/s in slow intervals, {units.format_rate(usual)}/s "
        "otherwise, with more in flight",
        "limit the load, or spread it over more drives",
        excluded=excluded,
    )


def _flag_busiest(slowness: Slowness) -> list[bool]:
    """Return which intervals are the busiest ones, at most as many as there are slow ones.

    This is for a load that varies as much by itself, or that is near the drive's limit already.
    """
    largest = flag_largest(list(slowness.series.issued), sum(slowness.slow))
    return [flag and is_busy for flag, is_busy in zip(largest, _flag_busy(slowness), strict=True)]


def _flag_busy(slowness: Slowness) -> list[bool]:
    least = SAME_RATIO * median(slowness.series.issued)
    return [value >= least for value in slowness.series.issued]


def _explain_unsaturated(slowness: Slowness, busiest: Sequence[bool]) -> str | None:
    """Return why the busiest intervals do not show that the drive reached its limit, or None if they do."""
    # One busy time has many slow episodes, or one slow time has many busy ones: neither is a coincidence.
    for times in (slowness.episodes, find_episodes(_flag_busy(slowness))):
        if sum(any(busiest[at] and slowness.slow[at] for at in one.places) for one in times) < MIN_EPISODES:
            return "a load that varies by itself was higher and slow in few episodes"
    means = [mean for mean, slow in zip(slowness.times.list_means(), slowness.slow, strict=True) if slow]
    usual, _ = slowness.mean_ns
    if median(means) < _SATURATED_RATIO * usual:
        return "the load varies as much by itself, and most slow intervals are far from the drive's limit"
    return None


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
            if slowness.find_ratio(users[victim].bytes) > GROWN_RATIO
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
    return math.fsum(
        count for count, usual in zip(owner.requests, slowness.list_usual(), strict=True) if usual
    )


def find_busy_host(slowness: Slowness) -> Candidate | None:
    found = compare_cpus(slowness)
    if found is None:
        return None
    flags, slow, usual = found
    return Candidate(
        CauseName.HOST_CPU,
        flags,
        f"CPUs: {100 * slow:.0f} % busy in slow intervals, {100 * usual:.0f} % otherwise",
        "compare the drive's own latency with the host's (opwatch counters --latency), or bind the "
        "interrupts to idle CPUs",
        excluded="the CPUs were not busier" if not slow > SAME_RATIO * usual else None,
        explains=(CauseName.PATH,),
    )


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
        # A load that resumes with more requests or larger writes is slower for that reason.
        excluded="the load grew as well" if _has_load_grown(slowness) else None,
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
    **BEFORE_THE_DEVICE,
    # Requests queue behind a slow device, so its causes are causes of the queue as well; see list_rules().
    StackLayer.QUEUE: (find_scheduler, *_DEVICE_RULES),
    StackLayer.DEVICE: _DEVICE_RULES,
    StackLayer.DRIVE: _DRIVE_RULES,
    # A file or a network below the device also waits for flushes and discards on its path.
    StackLayer.PATH: (find_path, find_timeouts, find_errors, find_flushes, find_discards, find_busy_host),
}


def list_rules(slowness: Slowness, layer: StackLayer) -> tuple[Rule, ...]:
    """Return the rules for slow intervals of a layer."""
    if layer is StackLayer.QUEUE and is_device_as_usual(slowness):
        return (find_scheduler, find_timeouts, find_errors, find_busy_host)
    return RULES[layer]
