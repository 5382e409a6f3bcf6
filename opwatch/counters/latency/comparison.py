"""Bound the transport time of requests: host latency minus drive latency.

Host and drive count the commands of one interval, but a command near its edges may be counted on one side
only. The comparison covers the commands counted on both sides. The counts limit how many commands are missing
on either side, but do not identify the missing ones, so each bound assumes the worst case. The host latency
of a command is never below the drive latency. A negative difference therefore proves that the two sides
counted different commands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from opwatch.counters.decode.amazon import DirectionTimes, TimeSlot
from opwatch.counters.latency.quantiles import QUANTILES, TimeRange, compute_rank, find_range_at_rank

MEAN = "mean"
_US = 1000


@dataclass(frozen=True, slots=True)
class HostSlot:
    """Requests that took `low_ns` to `high_ns` on the host."""

    low_ns: int
    high_ns: int
    count: int


@dataclass(frozen=True, slots=True)
class HostTimes:
    """Host latencies of one direction, each from issue to completion. `sum_ns` is exact."""

    requests: int
    bytes: int
    sum_ns: int
    slots: tuple[HostSlot, ...]


@dataclass(frozen=True, slots=True)
class UnmatchedLimits:
    """Maximum number of requests counted only by the host, and only by the drive."""

    only_host: int
    only_drive: int


@dataclass(frozen=True, slots=True)
class TransportTimes:
    """Mean and quantiles of host, drive and transport for one direction, or the `reason` for
    missing values."""

    requests: int
    commands: int
    reason: str | None = None
    host: dict[str, TimeRange] = field(default_factory=dict)
    drive: dict[str, TimeRange] = field(default_factory=dict)
    way: dict[str, TimeRange] = field(default_factory=dict)


def diff_counts(before: DirectionTimes, after: DirectionTimes) -> DirectionTimes | str:
    """Return the drive's counts between two polls, or the reason why they are unknown."""
    if [slot.low_us for slot in before.slots] != [slot.low_us for slot in after.slots]:
        return "the drive changed its histogram slots during the interval"
    slots = tuple(
        TimeSlot(late.low_us, late.high_us, late.count - early.count)
        for early, late in zip(before.slots, after.slots, strict=True)
    )
    added = DirectionTimes(
        after.commands - before.commands,
        after.bytes - before.bytes,
        after.time_us - before.time_us,
        slots,
    )
    if min(added.commands, added.bytes, added.time_us, *(slot.count for slot in slots)) < 0:
        return "the drive's counts decreased during the interval"
    if sum(slot.count for slot in slots) != added.commands:
        return "the drive's histogram and its count of commands differ"
    return added


def _sum_extremes(values: Sequence[tuple[float, int]], number: int, *, largest: bool) -> float:
    """Return the sum of the `number` largest or smallest values, given as (value, count)."""
    total, left = 0.0, number
    for value, count in sorted(values, reverse=largest):
        taken = min(left, count)
        total += value * taken
        left -= taken
    return total


def _bound_host_mean(host: HostTimes, left_out: int) -> TimeRange:
    """Bound the mean without the `left_out` requests, which may be any."""
    most = _sum_extremes([(slot.high_ns, slot.count) for slot in host.slots], left_out, largest=True)
    least = _sum_extremes([(slot.low_ns, slot.count) for slot in host.slots], left_out, largest=False)
    number = host.requests - left_out
    return TimeRange(max(0.0, host.sum_ns - most) / number, (host.sum_ns - least) / number)


def _bound_drive_mean(drive: DirectionTimes, left_out: int) -> TimeRange:
    """Bound the drive's mean without the `left_out` commands, which may be any.

    Each command's time may be rounded by a microsecond, and the slowest slot is unbounded.
    """
    low, high = (drive.time_us - drive.commands) * _US, (drive.time_us + drive.commands) * _US
    tops = [
        ((high if slot.high_us is None else (slot.high_us + 1) * _US), slot.count) for slot in drive.slots
    ]
    least = [(max(0, slot.low_us - 1) * _US, slot.count) for slot in drive.slots]
    number = drive.commands - left_out
    return TimeRange(
        max(0.0, low - _sum_extremes(tops, left_out, largest=True)) / number,
        (high - _sum_extremes(least, left_out, largest=False)) / number,
    )


def _find_host_slot(host: HostTimes, rank: int) -> HostSlot:
    running = 0
    for slot in host.slots:
        running += slot.count
        if running >= rank:
            return slot
    return host.slots[-1]


def _find_drive_range(drive: DirectionTimes, rank: int) -> TimeRange:
    return find_range_at_rank(drive.slots, min(rank, drive.commands)) or TimeRange(0, None)


def _bound_transport(host: TimeRange, drive: TimeRange) -> TimeRange | None:
    """Return the range of the transport time, or None if the host was faster than the drive."""
    assert host.high is not None
    high = host.high - drive.low
    low = 0.0 if drive.high is None else max(0.0, host.low - drive.high)
    return TimeRange(low, high) if high >= 0 else None


def _find_excluded(host: HostTimes, drive: DirectionTimes, edges: UnmatchedLimits) -> range | None:
    """Return the possible numbers of requests unknown to the drive, or None if no number fits both counts."""
    more = drive.commands - host.requests
    least, most = max(0, -more), min(edges.only_host, edges.only_drive - more)
    return range(least, most + 1) if least <= most else None


def compare_latency(host: HostTimes, drive: DirectionTimes, edges: UnmatchedLimits) -> TransportTimes:
    """Compute mean and quantiles of host, drive and difference over the commands that both counted."""
    outside = _find_excluded(host, drive, edges)
    if outside is None:
        return TransportTimes(
            host.requests,
            drive.commands,
            f"the host completed {host.requests} requests and the drive {drive.commands} commands, but the "
            f"interval's edges explain only {edges.only_host} and {edges.only_drive}: requests were split or "
            "merged, the page is outdated, or the drive has other users",
        )
    if len(outside) == 1 and not outside[0] and drive.commands == host.requests and drive.bytes != host.bytes:
        reason = f"the host's requests have {host.bytes} bytes, but the drive's commands {drive.bytes} bytes"
        return TransportTimes(host.requests, drive.commands, reason)
    more, most_left = drive.commands - host.requests, outside[-1]
    least, most = host.requests - most_left, host.requests - outside[0]
    if least < 1:
        return TransportTimes(
            host.requests,
            drive.commands,
            "no request is certain to be counted on both sides" if most else None,
        )
    hosts = {MEAN: _bound_host_mean(host, most_left)}
    drives = {MEAN: _bound_drive_mean(drive, most_left + more)}
    for name, ratio in QUANTILES.items():
        low, high = compute_rank(ratio, least), compute_rank(ratio, most)
        high_slot = _find_host_slot(host, min(high + most_left, host.requests))
        hosts[name] = TimeRange(_find_host_slot(host, low).low_ns, high_slot.high_ns)
        drives[name] = TimeRange(
            _find_drive_range(drive, low).low, _find_drive_range(drive, high + most_left + more).high
        )
    ways = {name: way for name in hosts if (way := _bound_transport(hosts[name], drives[name])) is not None}
    if len(ways) < len(hosts):
        reason = "the drive reports longer times than the host measured: the two counted different commands"
        return TransportTimes(host.requests, drive.commands, reason, hosts, drives)
    return TransportTimes(host.requests, drive.commands, None, hosts, drives, ways)
