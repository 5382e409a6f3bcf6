"""Derive iostat's figures of a disk from the kernel's own statistics: await per group, and utilisation."""

from __future__ import annotations

from dataclasses import dataclass

from opwatch.trace.stat import KernelTicks, StatSample

# The kernel prints these sums as 32-bit numbers of whole milliseconds.
_WRAP, _MS = 1 << 32, 10**6


@dataclass(frozen=True, slots=True)
class MeanAwait:
    """Mean time in ns from allocation to completion of a request.

    The kernel truncates each sum to milliseconds, so the error of the mean is less than `error_ns`.
    """

    mean_ns: float
    error_ns: float


@dataclass(frozen=True, slots=True)
class KernelTimes:
    """Figures between two readings of the statistics.

    `awaits`: groups with completed requests only. `busy_ratio`: iostat's %util, with an error of up to
    `busy_error`, or more if requests are shorter than a jiffy. `queue_size`: iostat's aqu-sz.
    """

    awaits: dict[str, MeanAwait]
    busy_ratio: float
    busy_error: float
    queue_size: float


def derive_kernel_times(then: StatSample | None, now: StatSample | None) -> KernelTimes | None:
    """Return the figures between two readings, or None if a reading or its times are missing, or if counts
    decreased because the second reading is of another disk."""
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
            awaits[group] = MeanAwait(_wrapped_growth(before, ticks) * _MS / count, _MS / count)
    return KernelTimes(
        awaits=awaits,
        busy_ratio=_wrapped_growth(then.ticks.busy, now.ticks.busy) * _MS / elapsed_ns,
        busy_error=_estimate_busy_error(now.ticks) / elapsed_ns,
        queue_size=_wrapped_growth(then.ticks.queued, now.ticks.queued) * _MS / elapsed_ns,
    )


def _wrapped_growth(before: int, after: int) -> int:
    return (after - before) % _WRAP


def _estimate_busy_error(ticks: KernelTicks) -> int:
    """Return the maximum error of busy time: one jiffy or one printed unit, whichever is longer."""
    return max(ticks.jiffy_ns, _MS)
