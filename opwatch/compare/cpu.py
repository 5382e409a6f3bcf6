"""Estimate CPU use during a run, with errors. Pure.

CPU time is measured for the whole machine, so disks watched together share the same values.
"""

from __future__ import annotations

from collections.abc import Sequence

from opwatch.compare.estimates import LEAST_REQUESTS, Estimate, influences_of, judged, ratio_of
from opwatch.compare.sampling import DiskCourse, SampledRun

# Number of busy CPUs, and CPU time per request.
CPU, CPU_IO = "cpu", "cpu_io"
CPU_METRICS = (CPU, CPU_IO)
# CPU time per request of the watched command, including its children.
COMMAND_IO = "command_io"
NOT_THERE = "this recording has no CPU time: it was made by an opwatch that kept none"
NOT_ALL_OF_IT = "the CPU time of a part of the run is not known"
WHOLE_RUN = "what a command takes is known of all of its run alone: nothing follows from it"
NO_COMMAND = "what its command took of the CPUs was not recorded"
TOO_LITTLE = "it was less than the kernel counts by"


def cpu_estimates(course: DiskCourse) -> dict[str, Estimate]:
    """Return the estimates by metric name."""
    every = [stretch.cpu for stretch in course.stretches]
    uses = [use for use in every if use]
    if not uses or len(uses) < len(every):
        reason = course.no_cpu or (NOT_ALL_OF_IT if uses else NOT_THERE)
        return dict.fromkeys(CPU_METRICS, Estimate(None, reason=reason))
    busy_s, error_s = [use.busy_s for use in uses], max(use.error_s for use in uses)
    requests = [stretch.requests for stretch in course.stretches]
    return {
        CPU: _over(busy_s, [use.seconds for use in uses], error_s, course.seconds),
        CPU_IO: _for_a_request([1e9 * value for value in busy_s], requests, 1e9 * error_s, course.seconds),
    }


def command_estimate(run: SampledRun, course: DiskCourse) -> Estimate:
    """Estimate the command's CPU time per request, in ns. The value is exact, but its variation between runs
    is unknown."""
    requests = sum(stretch.requests for stretch in course.stretches)
    if run.command_s is None or not requests:
        return Estimate(None, reason=NO_COMMAND)
    value = 1e9 * run.command_s / requests
    return Estimate(value, value, value, reason=WHOLE_RUN)


def _for_a_request(
    busy_ns: Sequence[float], requests: Sequence[int], error_ns: float, seconds: float
) -> Estimate:
    count = sum(requests)
    if count < LEAST_REQUESTS:
        return Estimate(None, reason=f"{count} requests are too few, {LEAST_REQUESTS} are needed")
    return _over(busy_ns, requests, error_ns, seconds)


def _over(busy: Sequence[float], under: Sequence[float], error: float, seconds: float) -> Estimate:
    """Estimate the ratio of two sums. Only the first and last reading of a cumulative counter contribute
    error."""
    total, below = sum(busy), sum(under)
    bounds = max(total - error, 0.0) / below, (total + error) / below
    if total <= error:
        return Estimate(total / below, *bounds, reason=TOO_LITTLE)
    return judged(total / below, bounds, ratio_of(busy, under), influences_of(busy, under), seconds=seconds)
