"""Estimate CPU use during a run, with errors. Pure.

CPU time is measured for the whole machine, so disks watched together share the same values.
"""

from __future__ import annotations

from collections.abc import Sequence

from opwatch.compare.estimates import (
    MIN_REQUESTS,
    Estimate,
    compute_influences,
    make_estimate,
    make_ratio_figure,
)
from opwatch.compare.sampling import DiskTimeline, SampledRun

# Number of busy CPUs, and CPU time per request.
CPU, CPU_IO = "cpu", "cpu_io"
CPU_METRICS = (CPU, CPU_IO)
# CPU time per request of the watched command, including its children.
COMMAND_IO = "command_io"
CPU_NOT_RECORDED = "the recording has no CPU time: an older version of opwatch made it"
CPU_INCOMPLETE = "the CPU time is unknown for part of the run"
WHOLE_RUN = "the command's CPU time is known only for the whole run, so its variation is unknown"
NO_COMMAND = "the CPU time of the run's command was not recorded"
BELOW_RESOLUTION = "the CPU time is below the resolution of the kernel's counters"


def estimate_cpu(course: DiskTimeline) -> dict[str, Estimate]:
    """Return the estimates by metric name."""
    every = [stretch.cpu for stretch in course.stretches]
    uses = [use for use in every if use]
    if not uses or len(uses) < len(every):
        reason = course.no_cpu or (CPU_INCOMPLETE if uses else CPU_NOT_RECORDED)
        return dict.fromkeys(CPU_METRICS, Estimate(None, reason=reason))
    busy_s, error_s = [use.busy_s for use in uses], max(use.error_s for use in uses)
    requests = [stretch.requests for stretch in course.stretches]
    return {
        CPU: _estimate_ratio(busy_s, [use.seconds for use in uses], error_s, course.seconds),
        CPU_IO: _estimate_per_request(
            [1e9 * value for value in busy_s], requests, 1e9 * error_s, course.seconds
        ),
    }


def estimate_command_cpu(run: SampledRun, course: DiskTimeline) -> Estimate:
    """Estimate the command's CPU time per request, in ns. The value is exact, but its variation between runs
    is unknown."""
    requests = sum(stretch.requests for stretch in course.stretches)
    if run.command_s is None or not requests:
        return Estimate(None, reason=NO_COMMAND)
    value = 1e9 * run.command_s / requests
    return Estimate(value, value, value, reason=WHOLE_RUN)


def _estimate_per_request(
    busy_ns: Sequence[float], requests: Sequence[int], error_ns: float, seconds: float
) -> Estimate:
    count = sum(requests)
    if count < MIN_REQUESTS:
        return Estimate(None, reason=f"only {count} requests ({MIN_REQUESTS} needed)")
    return _estimate_ratio(busy_ns, requests, error_ns, seconds)


def _estimate_ratio(busy: Sequence[float], under: Sequence[float], error: float, seconds: float) -> Estimate:
    """Estimate the ratio of two sums. Only the first and last reading of a cumulative counter contribute
    error."""
    total, below = sum(busy), sum(under)
    bounds = max(total - error, 0.0) / below, (total + error) / below
    if total <= error:
        return Estimate(total / below, *bounds, reason=BELOW_RESOLUTION)
    return make_estimate(
        total / below,
        bounds,
        make_ratio_figure(busy, under),
        compute_influences(busy, under),
        seconds=seconds,
    )
