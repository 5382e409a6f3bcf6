"""Causes that hold requests before the device or on the path to it, and what casts doubt on them. Pure.

The time in a layer is measured; what holds the requests there follows from the settings of the disk's queue,
and from idle CPUs: on a busy machine, requests wait everywhere.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from statistics import median

from opwatch.samples.sample import GroupSetting, QueueSettings
from opwatch.trace.unavailable import THROTTLE
from opwatch.why.candidate import DIRECT_CHANCE, Candidate, CauseName
from opwatch.why.layers import StackLayer
from opwatch.why.slowness import GROWN_RATIO, MAIN_SHARE, SAME_RATIO, Slowness
from opwatch.why.statistics.bursts import flag_bursts
from opwatch.why.waiting_owners import list_waiting_owners
from opwatch.why.witnessed import WitnessedDisk

# The least number of slow intervals for a cause that only a layer's time shows, in episodes of this length.
_MIN_SLOW, _LASTING = 10, 3
# CPUs that are this busy delay requests at any time.
_SATURATED = 0.9
# A smaller difference of the CPU time is noise.
_BUSIER = 0.05
_PINNED = 0.9
_LITTLE = 0.1
# A device with a smaller share of its tags in use takes more requests.
_FULL = 0.5
# Schedulers have this many requests at most, unless queue/nr_requests was changed.
_DEFAULT_REQUESTS = 256
# If the fastest requests are slower by this ratio, the CPUs are not the reason, however busy.
_ALL_LATE = 2.5

Rule = Callable[[Slowness], Candidate | None]
_UNKNOWN_SETTINGS = "the settings of the disk's queue are not in the recording: record again"
UNKNOWN_GROUPS = (
    "the limits of control groups are not in the recording: record again, and read io.max and io.latency of "
    "the groups"
)
# More settings of control groups than these are not named.
_SHOWN_GROUPS = 3
_MAX_NAMES = ("io.max", "blkio.throttle.")


def compare_cpus(slowness: Slowness) -> tuple[list[bool], float, float] | None:
    """Return the bursts of CPU, interrupt or steal time, whichever grew most, and its mean shares in slow and
    in other intervals; None if CPU time is unknown."""
    disk = slowness.disk
    if not any(value == value for value in disk.cpu_busy):
        return None
    found = [
        (slow - usual, series, slow, usual)
        for series in (disk.cpu_steal, disk.cpu_irq, disk.cpu_busy)
        for slow, usual in [_compare_shares(slowness, series)]
    ]
    _, series, slow, usual = max(found, key=lambda one: one[0])
    return flag_bursts([0.0 if math.isnan(value) else value for value in series]), slow, usual


def _compare_shares(slowness: Slowness, shares: Sequence[float]) -> tuple[float, float]:
    weighed = [share * seconds for share, seconds in zip(shares, slowness.seconds, strict=True)]
    return slowness.compare_means(weighed)


def explain_doubt(slowness: Slowness, *, may_be_saturated: bool = False) -> str | None:
    """Return why the time in a layer alone does not prove a cause: few slow intervals, or busy CPUs."""
    if few := _explain_few(slowness):
        return few
    usual_ns, slow_ns = slowness.mean_ns
    if slow_ns < GROWN_RATIO * usual_ns:
        return "the mean grew by less than half"
    return explain_busy_cpus(slowness, may_be_saturated=may_be_saturated)


def explain_busy_cpus(slowness: Slowness, *, may_be_saturated: bool = False) -> str | None:
    """Return why the CPUs may have made requests slow, or None if they did not. CPUs that are always busy are
    no reason if they may be saturated."""
    found = compare_cpus(slowness)
    if found is None:
        return "CPU time was not recorded"
    _, busy, otherwise = found
    if busy > otherwise + _BUSIER and busy > SAME_RATIO * otherwise:
        return f"the CPUs were busier ({100 * busy:.0f} %, {100 * otherwise:.0f} % otherwise)"
    if may_be_saturated:
        return None
    busiest, _ = _compare_shares(slowness, slowness.disk.cpu_busy)
    return f"the CPUs were {100 * busiest:.0f} % busy" if busiest > _SATURATED else None


def _explain_few(slowness: Slowness) -> str | None:
    """Return that too few slow intervals are in episodes of some length, or None. Single slow intervals occur
    on any busy machine."""
    lasting = sum(
        sum(slowness.slow[episode.begin : episode.end])
        for episode in slowness.episodes
        if len(episode.places) >= _LASTING
    )
    if lasting >= _MIN_SLOW:
        return None
    return f"only {lasting} slow intervals are in episodes of {_LASTING} or more ({_MIN_SLOW} needed)"


def find_io_max(slowness: Slowness) -> Candidate | None:
    limits = _list_slow_groups(slowness, *_MAX_NAMES)
    excluded = None
    if limits is None:
        excluded = UNKNOWN_GROUPS
    elif not limits:
        excluded = "no control group has a limit for the disk"
    return Candidate(
        CauseName.IO_MAX,
        slowness.slow,
        f"requests waited for the limit of their control group: {_describe_groups(limits or ())}",
        "raise the group's limit (opwatch top --by cgroup shows the groups)",
        is_direct=True,
        excluded=excluded,
    )


def find_io_latency(slowness: Slowness) -> Candidate | None:
    """Return None without a group whose latency is protected: others then never wait."""
    targets = _list_slow_groups(slowness, "io.latency")
    if not targets:
        return None
    return Candidate(
        CauseName.IO_LATENCY,
        slowness.slow,
        f"requests waited before their allocation while {_describe_groups(targets)} was protected",
        "raise or remove the target of io.latency",
        is_direct=True,
        excluded=explain_doubt(slowness),
    )


def find_io_cost(slowness: Slowness) -> Candidate | None:
    """Return None if iocost does not control the disk."""
    costs = [one.io_cost for one in _list_slow_settings(slowness) if one.io_cost]
    if not costs:
        return None
    weights = _list_slow_groups(slowness, "io.weight")
    shown = f" and {_describe_groups(weights)}" if weights else ""
    return Candidate(
        CauseName.IO_COST,
        slowness.slow,
        f"requests waited before their allocation, with io.cost.qos {costs[0]}{shown}",
        "compare io.cost.model with the disk's real speed, raise io.weight of the group, or set enable=0 in "
        "io.cost.qos for a test",
        is_direct=True,
        excluded=explain_doubt(slowness),
    )


def explain_unmeasured_limit(disk: WitnessedDisk) -> str | None:
    """Return the limits of control groups for a disk whose time was not measured, and why; None if it was, or
    without limits. Such a wait is in no layer."""
    found = [one.groups or () for one in disk.list_settings() or ()]
    limits = tuple(
        dict.fromkeys(one for groups in found for one in groups if one.name.startswith(_MAX_NAMES))
    )
    if not limits or any(op.is_known(op.throttle_ns) for op in disk.ops.values()):
        return None
    reasons = [text for text in disk.lacks if text.startswith(THROTTLE)] or ["record with --queue"]
    return f"{disk.label}: {_describe_groups(limits)}, and the wait for it was not measured; {reasons[0]}"


def _list_slow_groups(slowness: Slowness, *names: str) -> tuple[GroupSetting, ...] | None:
    """Return the settings of control groups with these names that were there in slow intervals, or None if
    they are unknown. If owners of requests are known, only the settings for them are returned."""
    known = [one.groups for one in _list_slow_settings(slowness) if one.groups is not None]
    if not known:
        return None
    found = tuple(dict.fromkeys(one for groups in known for one in groups if one.name.startswith(names)))
    # A setting also acts on the groups below. Those of groups without requests say nothing.
    users = [owner.name for owner in (slowness.disk.owners or {}).values()]
    if names == _MAX_NAMES:
        # The requests that wait for this limit are those of the group itself.
        users = [name for name, _ in list_waiting_owners(slowness, StackLayer.THROTTLE)] or users
    acting = tuple(one for one in found if any(_is_below(name, one.group) for name in users))
    return acting or found


def _is_below(name: str, group: str) -> bool:
    return f"{name}/".startswith(f"{group.rstrip('/')}/")


def _describe_groups(found: Sequence[GroupSetting]) -> str:
    shown = ", ".join(f"{one.group} has {one.name} {one.value}" for one in found[:_SHOWN_GROUPS])
    more = len(found) - _SHOWN_GROUPS
    return f"{shown}, and {more} more" if more > 0 else shown


def find_write_back_throttling(slowness: Slowness) -> Candidate | None:
    reads, settings = slowness.disk.ops.get("read"), _list_slow_settings(slowness)
    if slowness.op != "write" or reads is None or not any(reads.count):
        return None
    waits = slowness.find_ratio([0.0 if math.isnan(value) else value for value in reads.admission_ns])
    excluded = None
    if not settings:
        excluded = _UNKNOWN_SETTINGS
    elif not all(one.wbt_lat_us for one in settings):
        excluded = "write-back throttling is off (queue/wbt_lat_usec)"
    elif waits > GROWN_RATIO:
        excluded = "reads waited as well"
    return Candidate(
        CauseName.WRITE_BACK_THROTTLING,
        slowness.slow,
        "writes waited before a request was allocated, reads did not",
        "set queue/wbt_lat_usec to 0 for a test",
        is_direct=True,
        excluded=excluded or _explain_few(slowness),
    )


def _list_slow_settings(slowness: Slowness) -> list[QueueSettings]:
    """Return the settings of the queue in the slow intervals, empty if unknown."""
    settings = slowness.disk.list_settings() or []
    return [one for one, is_slow in zip(settings, slowness.slow, strict=False) if is_slow]


def find_tags(slowness: Slowness) -> Candidate | None:
    check = "raise queue/nr_requests, or limit the load"
    limits = [one.nr_requests or 0 for one in slowness.disk.list_settings() or []]
    if not any(limits):
        return Candidate(CauseName.TAGS, slowness.slow, "", check, is_direct=True, excluded=_UNKNOWN_SETTINGS)
    if len(set(limits)) > 1:
        fewer = [limit < max(limits) for limit in limits]
        evidence = f"queue/nr_requests was {min(limits)} instead of {max(limits)}"
        return Candidate(CauseName.TAGS, fewer, evidence, check)
    pending = [
        value for value, is_slow in zip(_list_pending(slowness), slowness.slow, strict=True) if is_slow
    ]
    excluded = None
    if sum(value >= _PINNED * limits[0] for value in pending) < _PINNED * len(pending):
        excluded = f"fewer than {limits[0]} requests were allocated (queue/nr_requests)"
    return Candidate(
        CauseName.TAGS,
        slowness.slow,
        f"up to {max(pending):.0f} requests were allocated, and queue/nr_requests is {limits[0]}",
        check,
        is_direct=True,
        excluded=excluded or _explain_few(slowness),
    )


def _list_pending(slowness: Slowness) -> list[float]:
    """Return the mean number of allocated requests per interval: those in flight and in the queue."""
    queued = [
        math.fsum(value for value in values if not math.isnan(value))
        for values in zip(*(one.queue_ns for one in slowness.disk.ops.values()), strict=True)
    ]
    return [
        depth + queue_ns / (1e9 * seconds)
        for depth, queue_ns, seconds in zip(slowness.disk.depth, queued, slowness.seconds, strict=True)
    ]


def is_device_as_usual(slowness: Slowness) -> bool:
    """Return whether the device has hardly any of the excess, so that requests do not queue behind it."""
    return slowness.device_excess <= _LITTLE * math.fsum(slowness.total_excess.values())


def waits_for_free_device(slowness: Slowness) -> bool:
    """Return whether most of the excess is in the queue although less than half of the device's tags were in
    use, so that it is not the device that requests wait for."""
    total = slowness.total_excess
    if total.get(StackLayer.QUEUE, 0.0) < MAIN_SHARE * math.fsum(total.values()):
        return False
    tags = [_find_tags(one) for one in _list_slow_settings(slowness)]
    known = [count for count in tags if count is not None]
    depth = [count * seconds for count, seconds in zip(slowness.disk.depth, slowness.seconds, strict=True)]
    in_flight, _ = slowness.compare_means(depth)
    return bool(tags) and len(known) == len(tags) and in_flight < _FULL * min(known)


def _find_tags(settings: QueueSettings) -> float | None:
    """Return the tags of a device, or None if they are unknown. A scheduler has twice as many requests, as
    long as their number was not raised."""
    count = settings.nr_requests or 0
    if not settings.scheduler or settings.scheduler == "none":
        return count or None
    return count / 2 if 0 < count <= _DEFAULT_REQUESTS else None


def find_scheduler(slowness: Slowness) -> Candidate | None:
    names = [one.scheduler or "none" for one in slowness.disk.list_settings() or []]
    slow_names = {name for name, is_slow in zip(names, slowness.slow, strict=False) if is_slow}
    flags: Sequence[bool] = slowness.slow
    is_as_usual = is_device_as_usual(slowness)
    excluded = None
    if not names:
        excluded = _UNKNOWN_SETTINGS
    elif slow_names == {"none"}:
        excluded = "the disk has no scheduler"
    elif len(set(names)) > 1:
        # The scheduler was changed, so its effect can be tested. It issues requests in bursts, in which the
        # device is slower.
        usual = Counter(name for name, is_slow in zip(names, slowness.slow, strict=True) if not is_slow)
        flags = [name not in ("none", usual.most_common(1)[0][0]) for name in names]
    else:
        excluded = explain_doubt(slowness) if is_as_usual else "the device was slower too"
    shown = ", ".join(sorted(slow_names)) or "unknown"
    device = "the device was as fast as otherwise" if is_as_usual else "less in the device"
    return Candidate(
        CauseName.SCHEDULER,
        flags,
        f"requests waited in the queue ({shown}), {device}",
        "compare with queue/scheduler set to none",
        is_direct=flags is slowness.slow,
        chance=DIRECT_CHANCE,
        excluded=excluded,
    )


def find_path(slowness: Slowness) -> Candidate | None:
    return Candidate(
        CauseName.PATH,
        slowness.slow,
        "the drive's own latency (log D0h) did not grow with the host's, and the CPUs were not busier",
        "look for interrupts and the transport: opwatch counters --latency compares both",
        is_direct=True,
        excluded=_explain_fast_requests(slowness),
    )


def _explain_fast_requests(slowness: Slowness) -> str | None:
    """Return that only some requests were late, or another doubt, or None. A path that is slow delays all
    requests, processes that wait for a CPU delay some of them, whether or not the CPUs are busy otherwise."""
    fastest = slowness.series.p10_ns
    slow, usual = (
        [value for value, flag in zip(fastest, flags, strict=True) if flag and not math.isnan(value)]
        for flags in (slowness.slow, slowness.list_usual())
    )
    growth = median(slow) / median(usual) if slow and usual else 1.0
    if growth >= GROWN_RATIO:
        return explain_doubt(slowness, may_be_saturated=growth >= _ALL_LATE)
    return "the fastest tenth of the requests was hardly slower than otherwise"


BEFORE_THE_DEVICE: dict[StackLayer, tuple[Rule, ...]] = {
    StackLayer.THROTTLE: (find_io_max,),
    StackLayer.ADMISSION: (find_write_back_throttling, find_io_cost, find_io_latency, find_tags),
}
