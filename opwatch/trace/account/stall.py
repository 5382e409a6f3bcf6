"""Detect stalled disks: requests are in flight, but none completes."""

from __future__ import annotations

from dataclasses import dataclass

from opwatch.trace.trust import GROUPS, Reading

# Counters of progress. A requeue by the driver is not progress.
_PROGRESS = ("completed", "ends", "first_ends", "partial")


@dataclass(frozen=True, slots=True)
class Stall:
    """An interval without completions, with `in_flight` requests at its end.

    The oldest request was issued at `since_ns` or before; `least_ns` is its minimum age, 0 if unknown.
    """

    in_flight: int
    since_ns: int
    least_ns: int


def find_stall(then: Reading, now: Reading, before: Stall | None, *, missed: bool) -> Stall | None:
    """Return the stall between two samples, or None.

    `before` is the stall at the end of the previous interval. If completions were `missed`, the tracer may
    count completed requests as in flight.
    """
    begin, end = then.sample, now.sample
    old, new = begin.sum_counters(), end.sum_counters()
    in_flight = _count_in_flight(now, missed=missed)
    if not in_flight or any(old[name] != new[name] for name in _PROGRESS):
        return None
    since_ns = end.end_ns
    if before:
        since_ns = before.since_ns
    elif _count_in_flight(then, missed=missed):
        since_ns = begin.end_ns
    elif new["in_flight"]:
        # All were issued in this interval, so the oldest is at least as old as their average.
        since_ns -= max(new["in_flight_ns"] - old["in_flight_ns"], 0) // new["in_flight"]
    return Stall(in_flight, since_ns, end.end_ns - since_ns)


def count_stale(then: Reading, now: Reading) -> dict[str, int]:
    """Return the requests, by operation, that completed unseen.

    The tracer counts them as in flight at both samples, although the kernel has no requests in flight at
    either.
    """
    readings = (then, now)
    if not all(
        _counts_in_flight(reading) and not _count_in_flight(reading, missed=True) for reading in readings
    ):
        return {}
    ops = {
        name: min(reading.sample.ops[name].in_flight for reading in readings)
        for group, names in GROUPS.items()
        if group != "flush"
        for name in names
    }
    return {name: count for name, count in ops.items() if count}


def _counts_in_flight(reading: Reading) -> bool:
    """Return true if the kernel counts this disk's requests; bio-based drivers may not."""
    return bool(reading.before and reading.after and reading.after.requests)


def _count_in_flight(reading: Reading, *, missed: bool) -> int:
    """Return the number of requests in flight, by the kernel's count if available. The kernel includes
    requests issued before the watch, but not flushes."""
    ops = reading.sample.ops
    if reading.before and reading.after and reading.after.requests:
        flushes = 0 if missed else ops["flush"].in_flight
        return max(min(reading.before.in_flight, reading.after.in_flight), flushes)
    return sum(op.in_flight for op in ops.values())
