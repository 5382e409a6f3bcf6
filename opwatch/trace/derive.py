"""Derive the figures of an interval from two samples, for live view, JSON and summary alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from opwatch.trace.abi import LATENCY, SIZE, OpSample, TargetSample
from opwatch.trace.hist import Histogram
from opwatch.trace.ops import STATUS_NAMES

_NONE: Mapping[str, int] = {}
QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99_9": 0.999}


@dataclass(frozen=True, slots=True)
class Latency:
    """A latency distribution in ns, with None for missing values if nothing completed.

    `max_slack_ns`: the true maximum may be lower than `max` by up to this amount; 0 if `max` is exact.
    """

    mean: float | None
    quantiles: dict[str, float | None]
    max: int | None
    max_slack_ns: int
    histogram: Histogram


@dataclass(frozen=True, slots=True)
class Wait:
    """Time before the request entered the queue, in ns, over requests for which it is known.

    `waited`: requests that waited at all, None if not counted. `max` is None unless the interval has the
    largest value since attach; no request waited longer than `max_limit`.
    """

    known: int
    waited: int | None
    sum_ns: int
    max: int | None
    max_limit: int

    @property
    def mean(self) -> float | None:
        return self.sum_ns / self.known if self.known else None


@dataclass(frozen=True, slots=True)
class OpInterval:
    """One operation between two samples."""

    count: int
    bytes: int
    errors: int
    error_bytes: int
    statuses: dict[str, int]
    issued: int
    sequential_ratio: float | None
    # Mean number of requests in flight, and the number at the end of the interval.
    queue_depth: float
    in_flight: int
    latency: Latency
    queue: Latency | None
    # Before the queue: in io.max, then in wbt, iocost, io.latency or for a free tag. None if not measured.
    throttle: Wait | None
    admission: Wait | None
    sizes: Histogram

    @property
    def is_idle(self) -> bool:
        return not (self.count or self.issued or self.errors or self.queue_depth)

    def median_size(self) -> int | None:
        """Return the median request size in bytes: its slot's lower edge, exact for powers of two."""
        median = self.sizes.find_quantile(0.5)
        return median.low * 512 if median else None


@dataclass(frozen=True, slots=True)
class Interval:
    """A target between two samples."""

    begin_ns: int
    end_ns: int
    ops: dict[str, OpInterval]

    @property
    def seconds(self) -> float:
        return (self.end_ns - self.begin_ns) / 1e9


def _derive_latency(histogram: Histogram, sum_ns: int, before_max: int, max_ns: int, count: int) -> Latency:
    """Return the latency distribution of an interval.

    The kernel keeps the maximum since attach. If that maximum grew, it belongs to this interval; otherwise
    the interval's maximum is in the highest slot used.
    """
    if not count:
        return Latency(None, dict.fromkeys(QUANTILES), None, 0, histogram)
    top = histogram.top_slot()
    if top is None:
        # Requests without a latency: the source has no latencies, or the sample was read between two updates.
        maximum = max_ns if max_ns > before_max else None
        return Latency(sum_ns / count if sum_ns else None, dict.fromkeys(QUANTILES), maximum, 0, histogram)
    low, high = histogram.scale.low_edge(top), histogram.scale.high_edge(top)
    if max_ns < low:
        # A sample is not read atomically: the slot was filled after the maximum was read.
        maximum, slack = high, high - low
    elif max_ns > before_max:
        maximum, slack = max_ns, 0
    else:
        # The last slot has no upper edge.
        maximum = max_ns if top == histogram.scale.slots - 1 else min(high, max_ns)
        slack = maximum - low
    quantiles = {name: histogram.find_quantile(ratio, maximum) for name, ratio in QUANTILES.items()}
    values = {name: estimate.value if estimate else None for name, estimate in quantiles.items()}
    return Latency(sum_ns / count, values, maximum, max(slack, 0), histogram)


def _derive_queue_time(begin: OpSample, end: OpSample) -> Latency | None:
    """Return the distribution of time in the queue before issue, or None if not measured."""
    queued = end.queued - begin.queued
    if not end.queued:
        return None
    return _derive_latency(
        end.queue.subtract(begin.queue),
        end.queue_sum_ns - begin.queue_sum_ns,
        begin.queue_max_ns,
        end.queue_max_ns,
        queued,
    )


def _derive_throttle(begin: OpSample, end: OpSample) -> Wait | None:
    if not end.throttle_known:
        return None
    waited = end.throttled - begin.throttled
    limit = end.throttle_max_ns if waited else 0
    return Wait(
        end.throttle_known - begin.throttle_known,
        waited,
        end.throttle_sum_ns - begin.throttle_sum_ns,
        limit if end.throttle_max_ns > begin.throttle_max_ns or not waited else None,
        limit,
    )


def _derive_admission(begin: OpSample, end: OpSample) -> Wait | None:
    if not end.admission_known:
        return None
    return Wait(
        end.admission_known - begin.admission_known,
        None,
        end.admission_sum_ns - begin.admission_sum_ns,
        end.admission_max_ns if end.admission_max_ns > begin.admission_max_ns else None,
        end.admission_max_ns,
    )


def _count_statuses(begin: OpSample, end: OpSample) -> dict[str, int]:
    counts: dict[str, int] = {}
    for status, (before, after) in enumerate(zip(begin.statuses, end.statuses, strict=True)):
        if after > before:
            name = STATUS_NAMES.get(status, f"status {status}")
            counts[name] = counts.get(name, 0) + after - before
    return counts


def derive_op(begin: OpSample, end: OpSample, elapsed_ns: int, stale: int = 0) -> OpInterval:
    """Return one operation's figures between two samples of a tracer. The tracer wrongly counts `stale`
    requests as in flight."""
    count = end.completed - begin.completed
    issued = end.issued - begin.issued
    sum_ns = end.sum_ns - begin.sum_ns
    return OpInterval(
        count=count,
        bytes=end.bytes - begin.bytes,
        errors=end.errors - begin.errors,
        error_bytes=end.error_bytes - begin.error_bytes,
        statuses=_count_statuses(begin, end) if end.errors > begin.errors else {},
        issued=issued,
        sequential_ratio=(end.sequential - begin.sequential) / issued if issued else None,
        queue_depth=_derive_queue_depth(begin, end, elapsed_ns, stale),
        in_flight=max(end.in_flight - stale, 0),
        latency=_derive_latency(end.latency.subtract(begin.latency), sum_ns, begin.max_ns, end.max_ns, count),
        queue=_derive_queue_time(begin, end),
        throttle=_derive_throttle(begin, end),
        admission=_derive_admission(begin, end),
        sizes=end.sizes.subtract(begin.sizes),
    )


def _derive_queue_depth(begin: OpSample, end: OpSample, elapsed_ns: int, stale: int) -> float:
    """Return the mean number of requests in flight: the growth of the integral divided by the time."""
    return max((end.in_flight_ns - begin.in_flight_ns) / elapsed_ns - stale, 0.0) if elapsed_ns else 0.0


def make_idle_op() -> OpInterval:
    """Return the figures of an operation without requests: counts are 0, other values None."""
    nothing = Latency(None, dict.fromkeys(QUANTILES), None, 0, Histogram(LATENCY, []))
    return OpInterval(
        count=0,
        bytes=0,
        errors=0,
        error_bytes=0,
        statuses={},
        issued=0,
        sequential_ratio=None,
        queue_depth=0.0,
        in_flight=0,
        latency=nothing,
        queue=None,
        throttle=None,
        admission=None,
        sizes=Histogram(SIZE, []),
    )


def derive_interval(begin: TargetSample, end: TargetSample, stale: Mapping[str, int] = _NONE) -> Interval:
    """Return the figures between two samples, without operations that had no requests, not even in flight.
    `stale`: completed requests, by operation, whose completion was missed before."""
    elapsed = end.end_ns - begin.end_ns
    ops = {}
    for name, after in end.ops.items():
        before = begin.ops[name]
        has_moved = (after.issued, after.completed, after.errors) != (
            before.issued,
            before.completed,
            before.errors,
        )
        if has_moved or min(before.in_flight, after.in_flight) > stale.get(name, 0):
            ops[name] = derive_op(before, after, elapsed, stale.get(name, 0))
    return Interval(begin.end_ns, end.end_ns, ops)
