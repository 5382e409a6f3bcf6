"""Metrics of a disk's requests from absolute samples."""

from __future__ import annotations

from dataclasses import replace

from opwatch.metrics.buckets import count_without_buckets
from opwatch.metrics.family import DurationCounts, MetricSamples
from opwatch.metrics.kernel import LossCounter, add_disk_metrics, add_refused_disk, count_in_flight
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
from opwatch.samples.sample import DiskSample, WatchedDisk
from opwatch.trace.account.losses import LostRequests
from opwatch.trace.stat import StatSample
from opwatch.trace.trust import Reading
from tests.unit.support.metric_answers import ANCHOR, NO_LOSSES, make_disk_sample
from tests.unit.support.samples import Op, make_sample


def collect(
    sample: DiskSample, losses: LostRequests | None = NO_LOSSES, *, queue: bool = False
) -> MetricSamples:
    samples = MetricSamples()
    add_disk_metrics(samples, sample, losses, with_queue=queue)
    return samples


def test_counts_are_those_of_the_sample() -> None:
    read = Op([5_000, 70_000, 9_000_000], [4096, 4096, 512], statuses={7: 1}, scalars={"in_flight": 2})
    rows = collect(make_disk_sample("sda", read=read, write=Op([8], [512]))).rows
    durations = dict(rows[IO_DURATION.name])
    assert [labels for labels, _ in rows[IO_DURATION.name]] == [
        ("sda", op) for op in ("read", "write", "flush", "discard")
    ]
    counted = durations["sda", "read"]
    assert isinstance(counted, DurationCounts)
    assert (counted.total, counted.sum_s) == (3, 9_075_000 / 1e9)
    assert dict(rows[IO_BYTES.name]) == {("sda", "read"): 8704, ("sda", "write"): 512, ("sda", "discard"): 0}
    assert dict(rows[IO_ERRORS.name])["sda", "read"] == 1
    assert rows[IO_IN_FLIGHT.name] == [(("sda",), 2)]
    assert rows[WATCHED.name] == [(("sda",), 1)]
    assert QUEUE_DURATION.name not in rows


def test_rare_operations_have_series_from_their_first_request() -> None:
    rows = collect(make_disk_sample("sda", other=Op([5], [512]), write_zeroes=Op([9], [1 << 20]))).rows
    assert dict(rows[IO_BYTES.name])["sda", "write_zeroes"] == 1 << 20
    assert {op for (_, op), _ in rows[IO_DURATION.name]} >= {"other", "write_zeroes"}
    assert "secure_erase" not in {op for (_, op), _ in rows[IO_DURATION.name]}


def test_queue_times_are_added_on_demand() -> None:
    rows = collect(make_disk_sample(read=Op([5], [512], queue_ns=[100, 200])), queue=True).rows
    [(_, read), (_, write)] = rows[QUEUE_DURATION.name]
    assert isinstance(read, DurationCounts)
    assert isinstance(write, DurationCounts)
    assert (read.total, read.sum_s, write.total) == (2, 300 / 1e9, 0)


def test_waits_before_the_queue_have_a_count_and_a_sum() -> None:
    waits = {"throttle_known": 2, "throttle_sum_ns": 500, "admission_known": 1, "admission_sum_ns": 70}
    sample = make_disk_sample("sda", read=Op([5], [512], scalars=waits))
    rows = collect(sample, queue=True).rows
    assert rows[THROTTLE_DURATION.name] == [(("sda", "read"), count_without_buckets(2, 500))]
    assert rows[ADMISSION_DURATION.name] == [(("sda", "read"), count_without_buckets(1, 70))]
    assert THROTTLE_DURATION.name not in collect(sample).rows


def test_values_that_the_source_lacks_have_no_series() -> None:
    lacks = ("errors: not counted", "queue_depth: no issue seen", "trust: nothing to compare with")
    rows = collect(make_disk_sample("sda", lacks, read=Op([5], [512])), None).rows
    assert not {IO_ERRORS.name, IO_IN_FLIGHT.name, UNEXPLAINED.name, UNTRACED.name} & set(rows)


def test_refused_disk_has_a_reason() -> None:
    samples = MetricSamples()
    add_refused_disk(samples, "zram0", "no requests")
    assert samples.rows == {
        WATCHED.name: [(("zram0",), 0)],
        WATCH_REFUSED.name: [(("zram0", "no requests"), 1)],
    }


def make_counted(
    reads: int, kernel: tuple[int, int], misses: int = 0, lacks: tuple[str, ...] = ()
) -> DiskSample:
    """Return a sample with that many traced reads, and the kernel's count before and after it."""
    before, after = (StatSample(0, 0, {"read": count}, {"read": count * 512}) for count in kernel)
    reading = Reading(make_sample(1, read=Op([5] * reads, [512] * reads)), before, after)
    return DiskSample(WatchedDisk("sda", "sda", "requests", lacks=lacks), reading, misses, ANCHOR)


def test_missed_requests_are_unexplained() -> None:
    counter = LossCounter(make_counted(0, (100, 100)))
    assert counter.update(make_counted(10, (110, 110))) == LostRequests(0, 0)
    assert counter.update(make_counted(20, (123, 123))) == LostRequests(0, 3)


def test_skipped_program_runs_explain_missed_requests() -> None:
    counter = LossCounter(make_counted(0, (0, 0)))
    assert counter.update(make_counted(10, (15, 15), misses=3)) == LostRequests(3, 2)


def test_losses_never_decrease() -> None:
    counter = LossCounter(make_counted(0, (0, 0)))
    assert counter.update(make_counted(10, (14, 14))) == LostRequests(0, 4)
    # The kernel's count is known less well during completions, and skipped runs become known later.
    assert counter.update(make_counted(20, (20, 28))) == LostRequests(0, 4)
    assert counter.update(make_counted(30, (34, 34), misses=2)) == LostRequests(2, 4)
    assert counter.update(make_counted(30, (36, 36), misses=2)) == LostRequests(2, 4)
    assert counter.update(make_counted(30, (37, 37), misses=2)) == LostRequests(2, 5)


def test_losses_are_unknown_without_the_kernels_count() -> None:
    counter = LossCounter(make_counted(0, (0, 0)))
    now = make_counted(1, (1, 1))
    assert counter.update(replace(now, reading=replace(now.reading, after=None))) is None
    assert counter.update(make_counted(1, (1, 1), lacks=("trust: no statistics",))) is None
    assert counter.update(now) == LostRequests(0, 0)
    samples = collect(now, counter.update(now))
    assert samples.rows[UNEXPLAINED.name] == [(("sda",), 0)]


def test_requests_of_missed_completions_are_not_in_flight() -> None:
    sample = make_sample(1, read=Op(scalars={"in_flight": 3}), flush=Op(scalars={"in_flight": 1}))
    idle, busy = (StatSample(0, 0, {"read": 9}, {"read": 9}, in_flight) for in_flight in (0, 2))
    assert count_in_flight(Reading(sample, idle, idle)) == 1
    assert count_in_flight(Reading(sample, busy, idle)) == 4
    assert count_in_flight(Reading(sample, idle, busy)) == 4
    assert count_in_flight(Reading(sample, None, None)) == 4
    # Some drivers do not count requests.
    uncounted = StatSample(0, 0, {}, {})
    assert count_in_flight(Reading(sample, uncounted, uncounted)) == 4
