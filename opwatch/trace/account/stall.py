"""Whether a disk stands still: requests are in flight, and none completes."""

from __future__ import annotations

from opwatch.frozen import frozen
from opwatch.trace.trust import GROUPS, Reading

# What counts as progress. A request that its driver gave back made none.
_PROGRESS = ("completed", "ends", "first_ends", "partial")


@frozen
class Stall:
    """Nothing completed in an interval, at whose end so many requests were in flight. The oldest of them was
    issued at `since_ns` or before; `least_ns` is its age at least, 0 if that is not known."""

    in_flight: int
    since_ns: int
    least_ns: int


def stall_between(then: Reading, now: Reading, before: Stall | None, *, missed: bool) -> Stall | None:
    """Return how the disk stood still between two samples, None if it did not. `before` is the stall in which
    the interval before ended. `missed`: completions were, so that the tracer may take requests for in flight
    that have ended."""
    begin, end = then.sample, now.sample
    old, new = begin.totals(), end.totals()
    in_flight = _in_flight(now, missed=missed)
    if not in_flight or any(old[name] != new[name] for name in _PROGRESS):
        return None
    since_ns = end.end_ns
    if before:
        since_ns = before.since_ns
    elif _in_flight(then, missed=missed):
        since_ns = begin.end_ns
    elif new["in_flight"]:
        # All were issued in this interval: the oldest is no younger than they are on average.
        since_ns -= max(new["in_flight_ns"] - old["in_flight_ns"], 0) // new["in_flight"]
    return Stall(in_flight, since_ns, end.end_ns - since_ns)


def stale_requests(then: Reading, now: Reading) -> dict[str, int]:
    """Return the requests, by operation, that the tracer takes for in flight at both samples and that have
    ended unseen: the kernel has none in flight at either."""
    readings = (then, now)
    if not all(_counts_in_flight(reading) and not _in_flight(reading, missed=True) for reading in readings):
        return {}
    ops = {
        name: min(reading.sample.ops[name].in_flight for reading in readings)
        for group, names in GROUPS.items()
        if group != "flush"
        for name in names
    }
    return {name: count for name, count in ops.items() if count}


def _counts_in_flight(reading: Reading) -> bool:
    """Whether the kernel counts the requests of this disk: drivers of bios need not."""
    return bool(reading.before and reading.after and reading.after.requests)


def _in_flight(reading: Reading, *, missed: bool) -> int:
    """Return how many requests are in flight, by the kernel's count if there is one. It has those that were
    issued before the watch, but no flushes."""
    ops = reading.sample.ops
    if reading.before and reading.after and reading.after.requests:
        flushes = 0 if missed else ops["flush"].in_flight
        return max(min(reading.before.in_flight, reading.after.in_flight), flushes)
    return sum(op.in_flight for op in ops.values())
