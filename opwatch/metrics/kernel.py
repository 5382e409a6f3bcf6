"""Metrics of a watched disk's requests, from absolute samples."""

from __future__ import annotations

from opwatch.metrics.buckets import count_durations, count_without_buckets
from opwatch.metrics.family import DurationCounts, MetricFamily, MetricSamples
from opwatch.metrics.table import (
    ADMISSION_DURATION,
    IO_BYTES,
    IO_DURATION,
    IO_ERRORS,
    IO_IN_FLIGHT,
    QUEUE_DURATION,
    THROTTLE_DURATION,
    UNEXPLAINED,
    UNTRACED,
    WATCH_REFUSED,
    WATCHED,
)
from opwatch.samples.losses import tally_losses_since
from opwatch.samples.sample import DiskSample
from opwatch.trace.abi import OpSample
from opwatch.trace.account.losses import LostRequests, Tally, count_lost_requests
from opwatch.trace.trust import Reading
from opwatch.trace.unavailable import DEPTH, ERRORS, PERCENTILES, TRUST, list_unavailable

# Operations with series from the first answer on. The others get theirs with their first request, and
# operations without data have no bytes.
USUAL_OPS = ("read", "write", "flush", "discard")
DATA_OPS = ("read", "write", "discard", "write_zeroes", "secure_erase", "other")


class LossCounter:
    """Counts the requests of one disk that are missing or unexplained since its first sample.

    The difference from the kernel's statistics is known within the requests that end during a reading, so
    it may shrink with a later reading. The counter keeps the largest numbers, and never decreases."""

    def __init__(self, first: DiskSample) -> None:
        self._first = first
        self._tally: Tally = Tally()
        self._most = LostRequests(0, 0)

    def update(self, sample: DiskSample, *, is_blind: bool = False) -> LostRequests | None:
        """Return the numbers up to a sample, or None if the kernel has no statistics to compare with.
        `is_blind`: the kernel skips programs while PID 1 is current."""
        first, now = self._first.reading, sample.reading
        if TRUST in list_unavailable(sample.disk.lacks) or None in (
            *(first.before, first.after),
            *(now.before, now.after),
        ):
            return None
        self._tally |= tally_losses_since(self._first, sample)
        lost = count_lost_requests(self._tally, is_blind=is_blind)
        self._most = LostRequests(
            max(lost.explained, self._most.explained), max(lost.unexplained, self._most.unexplained)
        )
        return self._most


def add_disk_metrics(
    samples: MetricSamples, sample: DiskSample, losses: LostRequests | None, *, with_queue: bool = False
) -> None:
    """Add the counters of a disk. `losses` are from its LossCounter."""
    device, reading = sample.disk.device, sample.reading.sample
    absent = list_unavailable(sample.disk.lacks) if sample.disk.lacks else {}
    for op, counts in reading.ops.items():
        if op in USUAL_OPS or counts.completed or counts.errors:
            samples.add(IO_DURATION, _count_io(counts, has_buckets=PERCENTILES not in absent), device, op)
            if op in DATA_OPS:
                samples.add(IO_BYTES, counts.bytes, device, op)
            if ERRORS not in absent:
                samples.add(IO_ERRORS, counts.errors, device, op)
            if with_queue and op in USUAL_OPS[:2]:
                queue = count_durations(counts.queue, counts.queue_sum_ns)
                samples.add(QUEUE_DURATION, queue, device, op)
                for family, known, sum_ns in list_waits(counts):
                    samples.add(family, count_without_buckets(known, sum_ns), device, op)
    if DEPTH not in absent:
        samples.add(IO_IN_FLIGHT, count_in_flight(sample.reading), device)
    if losses is not None:
        samples.add(UNEXPLAINED, losses.unexplained, device)
        samples.add(UNTRACED, losses.explained, device)
    samples.add(WATCHED, 1, device)


def list_waits(counts: OpSample) -> list[tuple[MetricFamily, int, int]]:
    """Return (metric, number, sum in ns) of the waits before the queue, without those of no request."""
    waits = (
        (THROTTLE_DURATION, counts.throttle_known, counts.throttle_sum_ns),
        (ADMISSION_DURATION, counts.admission_known, counts.admission_sum_ns),
    )
    return [wait for wait in waits if wait[1]]


def count_in_flight(reading: Reading) -> int:
    """Return the requests in flight. After missed completions the tracer counts too many, unless the kernel,
    which does not count flushes, had none before and after the sample."""
    ops = reading.sample.ops
    before, after = reading.before, reading.after
    if before and after and after.requests and not before.in_flight and not after.in_flight:
        return ops["flush"].in_flight
    return sum(counts.in_flight for counts in ops.values())


def _count_io(counts: OpSample, *, has_buckets: bool) -> DurationCounts:
    if has_buckets:
        return count_durations(counts.latency, counts.sum_ns)
    return count_without_buckets(counts.completed, counts.sum_ns)


def add_refused_disk(samples: MetricSamples, device: str, reason: str) -> None:
    """Add a disk whose requests are not counted, and the reason."""
    samples.add(WATCHED, 0, device)
    samples.add(WATCH_REFUSED, 1, device, reason)
