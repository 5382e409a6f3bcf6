"""What a recorder would have seen of a run in virtual time. Pure."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from opwatch.owners.cells import OwnerKey
from opwatch.why.drives import DriveWitness, measure_host_bytes, spread_rates
from opwatch.why.witnessed import (
    LARGE_BYTES,
    NAN,
    OpSeries,
    OwnerSeries,
    SlowSpan,
    WitnessedDisk,
    WitnessedRun,
)
from tests.why.virtual_host import SECOND_NS, Completion, Span
from tests.why.virtual_run import VirtualRun

_SLOW_NS, _MAX_SLOW = 20_000_000, 20_000
_CPU_BUSY, _CPU_NOISE = 0.4, 0.05
_LABEL = "virtual0"


@dataclass(frozen=True)
class Witnesses:
    """A run as `why` reads it."""

    run: WitnessedRun
    disk: WitnessedDisk
    drive: DriveWitness


def witness_run(made: VirtualRun) -> Witnesses:
    disk = _make_disk(made)
    drive_ns: dict[str, array[float]] = {op: array("d", bytes(8 * made.seconds)) for op in disk.ops}
    latencies: dict[tuple[str, int], list[int]] = defaultdict(list)
    discards = [one for one in made.completions if one.op == "discard"]
    begins = [one.issue_ns for one in discards]
    for one in made.completions:
        if (begin := one.issue_ns // SECOND_NS) < made.seconds:
            disk.ops[one.op].issued[begin] += 1
            disk.ops[one.op].sequential[begin] += one.is_sequential
        if (at := one.end_ns // SECOND_NS) >= made.seconds:
            continue
        _add_completion(disk, one, at)
        latencies[one.op, at].append(one.end_ns - one.issue_ns)
        drive_ns[one.op][at] += one.drive_ns
        newest = bisect_right(begins, one.issue_ns) - 1
        if one.op != "discard" and newest >= 0 and discards[newest].end_ns > one.issue_ns:
            disk.ops[one.op].behind[at] += 1
            disk.ops[one.op].behind_ns[at] += one.end_ns - one.issue_ns
    for (op, at), values in latencies.items():
        values.sort()
        disk.ops[op].p10_ns[at], disk.ops[op].p99_ns[at] = (
            values[math.ceil(share * len(values)) - 1] for share in (0.1, 0.99)
        )
    return Witnesses(WitnessedRun(disks={_LABEL: disk}), disk, _witness_drive(made, disk, drive_ns))


def _make_disk(made: VirtualRun) -> WitnessedDisk:
    disk = WitnessedDisk(_LABEL, _LABEL, drive=_LABEL, settings=list(made.settings), owners={})
    disk.begins_ns.extend(number * SECOND_NS for number in range(made.seconds))
    disk.ends_ns.extend((number + 1) * SECOND_NS for number in range(made.seconds))
    for _ in range(made.seconds):
        for series in (disk.errors, disk.requeued, disk.depth, disk.cpu_steal):
            series.append(0.0)
        disk.cpu_busy.append(min(max(made.source.gauss(_CPU_BUSY, _CPU_NOISE), 0.0), 1.0))
        disk.cpu_irq.append(0.01)
    for op in sorted({one.op for one in made.completions}):
        disk.ops[op] = OpSeries.make_idle(made.seconds)
    return disk


def _add_completion(disk: WitnessedDisk, one: Completion, at: int) -> None:
    series, device_ns = disk.ops[one.op], one.end_ns - one.issue_ns
    series.count[at] += 1
    series.bytes[at] += one.size
    series.device_ns[at] += device_ns
    series.queue_ns[at] += one.queue_ns
    series.admission_ns[at] += one.admission_ns
    if one.size >= LARGE_BYTES and one.op in ("read", "write"):
        series.large_bytes[at] += one.size
    disk.depth[at] += device_ns / SECOND_NS
    disk.errors[at] += one.is_error
    _add_owned(disk, one, at)
    if device_ns > _SLOW_NS and len(disk.slow_requests) < _MAX_SLOW:
        disk.slow_requests.append(SlowSpan(one.op, one.issue_ns, one.end_ns))


def _add_owned(disk: WitnessedDisk, one: Completion, at: int) -> None:
    assert disk.owners is not None
    if one.owner not in disk.owners:
        disk.owners[one.owner] = OwnerSeries.make_idle(_name_owner(one.owner), len(disk))
    owner = disk.owners[one.owner]
    if one.op in ("read", "write"):
        owner.bytes[at] += one.size
        owner.device_ns[at] += one.end_ns - one.issue_ns
        owner.requests[at] += 1
    owner.flushes[at] += one.op == "flush"


def _name_owner(key: OwnerKey) -> str:
    return f"{key.kind.value} {key.number}"


def _witness_drive(made: VirtualRun, disk: WitnessedDisk, drive_ns: dict[str, array[float]]) -> DriveWitness:
    seconds = made.seconds
    throttled = [False] * seconds
    for one, other in pairwise(made.counts):
        span = Span(one.at_ns, other.at_ns)
        is_hot = any(heat.begin_ns < span.end_ns and heat.end_ns > span.begin_ns for heat in made.throttled)
        for at in _find_places(span, seconds):
            throttled[at] |= is_hot
    polled = [False] * seconds
    for poll in made.polls:
        for at in _find_places(poll, seconds):
            polled[at] = True
    polls = [Span(one.at_ns, other.at_ns) for one, other in pairwise(made.counts)]
    growth = [
        (one.at_ns, other.at_ns, other.nand_bytes - one.nand_bytes) for one, other in pairwise(made.counts)
    ]
    shares: dict[str, tuple[float, ...]] = {
        op: tuple(_share_time(polls, disk.ops[op].device_ns, drive_ns[op]))
        for op in ("read", "write")
        if op in disk.ops
    }
    return DriveWitness(
        polled=tuple(polled),
        polls_ns=tuple(made.polls),
        nand_per_s=spread_rates(disk, growth),
        host_per_s=spread_rates(disk, measure_host_bytes(disk, polls)),
        temperature=(40.0,) * seconds,
        throttled=tuple(throttled),
        drive_shares=shares,
    )


def _find_places(span: Span, seconds: int) -> range:
    """Return the intervals that overlap a time."""
    return range(span.begin_ns // SECOND_NS, min(span.end_ns // SECOND_NS, seconds - 1) + 1)


def _share_time(spans: Iterable[Span], host_ns: Sequence[float], drive_ns: Sequence[float]) -> list[float]:
    """Return the drive's share of the device time, known per span. Unknown ones are as the nearest."""
    shares = [NAN] * len(host_ns)
    for span in spans:
        places = _find_places(span, len(host_ns))
        whole = math.fsum(host_ns[at] for at in places)
        for at in places:
            shares[at] = min(math.fsum(drive_ns[at] for at in places) / whole, 1.0) if whole else NAN
    known = [at for at, share in enumerate(shares) if not math.isnan(share)]
    return (
        [shares[known[min(bisect_left(known, at), len(known) - 1)]] for at in range(len(shares))]
        if known
        else []
    )
