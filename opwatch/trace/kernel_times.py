"""What iostat knows of a disk, by the kernel's own statistics: await of each group, and how busy it was."""

from __future__ import annotations

from opwatch.frozen import frozen
from opwatch.trace.stat import KernelTicks, StatSample

# The kernel prints its sums in 32 bits of whole milliseconds.
_WRAP, _MS = 1 << 32, 10**6


@frozen
class Awaited:
    """Mean time in ns from the allocation of a request to its end. Each sum is cut off to a millisecond, so
    that the mean is off by less than `error_ns`."""

    mean_ns: float
    error_ns: float


@frozen
class KernelTimes:
    """Between two statistics. `awaits` of groups of which requests ended; `busy_ratio`, iostat's %util, off
    by up to `busy_error`, and more where requests are shorter than a jiffy; `queue_size`, its aqu-sz."""

    awaits: dict[str, Awaited]
    busy_ratio: float
    busy_error: float
    queue_size: float


def kernel_times(then: StatSample | None, now: StatSample | None) -> KernelTimes | None:
    """What lies between two of them; None where either was not read, has no times, or is of another disk: its
    counts went back."""
    if not then or not now or not then.ticks or not now.ticks or now.end_ns <= then.end_ns:
        return None
    if any(now.requests.get(group, 0) < count for group, count in then.requests.items()):
        return None
    elapsed_ns = now.end_ns - then.end_ns
    awaits = {}
    for group, ticks in now.ticks.groups.items():
        before = then.ticks.groups.get(group)
        count = now.requests.get(group, 0) - then.requests.get(group, 0)
        if before is not None and count > 0:
            awaits[group] = Awaited(_grown(before, ticks) * _MS / count, _MS / count)
    return KernelTimes(
        awaits=awaits,
        busy_ratio=_grown(then.ticks.busy, now.ticks.busy) * _MS / elapsed_ns,
        busy_error=_busy_error(now.ticks) / elapsed_ns,
        queue_size=_grown(then.ticks.queued, now.ticks.queued) * _MS / elapsed_ns,
    )


def _grown(before: int, after: int) -> int:
    return (after - before) % _WRAP


def _busy_error(ticks: KernelTicks) -> int:
    """At either end by less than the step of what is printed, or of what is counted."""
    return max(ticks.jiffy_ns, _MS)
