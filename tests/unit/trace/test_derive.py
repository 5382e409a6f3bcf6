from __future__ import annotations

import pytest

from opwatch.trace import abi
from opwatch.trace.derive import Wait, derive_interval
from tests.unit.support.samples import Op, make_sample

SECOND = 1_000_000_000


def test_interval_contains_only_new_requests() -> None:
    before = Op([1000] * 10, [4096] * 10)
    after = Op([1000] * 10 + [5000] * 20, [4096] * 10 + [8192] * 20)
    interval = derive_interval(make_sample(0, read=before), make_sample(2 * SECOND, read=after))
    read = interval.ops["read"]
    assert interval.seconds == 2
    assert read.count == 20
    assert read.bytes == 20 * 8192
    assert read.latency.mean == 5000
    assert read.latency.quantiles["p50"] == pytest.approx(5000, rel=1 / 64)
    assert read.median_size() == 8192
    assert read.queue_depth == pytest.approx(20 * 5000 / (2 * SECOND))


def test_idle_operations_are_left_out() -> None:
    busy = Op([1000], [4096])
    interval = derive_interval(make_sample(0, write=busy), make_sample(SECOND, write=busy, read=busy))
    assert set(interval.ops) == {"read"}


def test_a_new_maximum_is_exact() -> None:
    interval = derive_interval(make_sample(0, read=Op([1000])), make_sample(SECOND, read=Op([1000, 7777])))
    latency = interval.ops["read"].latency
    assert (latency.max, latency.max_slack_ns) == (7777, 0)


def test_the_last_slot_has_no_upper_edge() -> None:
    """A request of 1,000 s is in the last slot, as is an earlier one of 100 s."""
    begin, now = 1_000_000_000_000, 100_000_000_000
    interval = derive_interval(make_sample(0, read=Op([begin])), make_sample(SECOND, read=Op([begin, now])))
    latency = interval.ops["read"].latency
    assert latency.max is not None
    assert latency.max - latency.max_slack_ns <= now <= latency.max


def test_no_quantile_is_above_the_maximum() -> None:
    """The maximum was read before a slower request reached its slot."""
    torn = Op([5000, 9_000_000], scalars={"max_ns": 5000})
    latency = (
        derive_interval(make_sample(0, read=Op([5000])), make_sample(SECOND, read=torn)).ops["read"].latency
    )
    assert latency.max is not None
    assert latency.quantiles["p99_9"] is not None
    assert latency.quantiles["p99_9"] <= latency.max
    assert latency.max - latency.max_slack_ns <= 9_000_000 <= latency.max


def test_an_old_maximum_leaves_the_highest_slot_as_bound() -> None:
    interval = derive_interval(make_sample(0, read=Op([10**9])), make_sample(SECOND, read=Op([10**9, 7777])))
    latency = interval.ops["read"].latency
    slot = abi.LATENCY.find_slot(7777)
    assert latency.max == abi.LATENCY.high_edge(slot)
    assert latency.max - latency.max_slack_ns <= 7777 <= latency.max


def test_errors_are_named_by_status() -> None:
    after = Op([1000] * 5, statuses={10: 2, 7: 1, 31: 1})
    read = derive_interval(make_sample(0), make_sample(SECOND, read=after)).ops["read"]
    assert read.errors == 4
    assert read.statuses == {"I/O": 2, "medium": 1, "status 31": 1}


def test_zone_statuses_and_later_statuses_have_names() -> None:
    """tests/native/test_statuses.c checks the same numbers for the programs."""
    after = Op([1000] * 5, statuses={14: 1, 15: 2, 16: 3, 17: 4, 19: 5})
    write = derive_interval(make_sample(0), make_sample(10**9, write=after)).ops["write"]
    assert write.statuses == {"zone resource": 3, "offline": 3, "duration limit": 4, "invalid": 5}


def test_queue_time_is_none_if_unmeasured() -> None:
    read = derive_interval(make_sample(0), make_sample(SECOND, read=Op([1000]))).ops["read"]
    assert read.queue is None
    queued = (
        derive_interval(make_sample(0), make_sample(SECOND, read=Op([1000], queue_ns=[300])))
        .ops["read"]
        .queue
    )
    assert queued is not None
    assert queued.mean == 300


def test_issued_but_not_completed_has_no_latency() -> None:
    after = Op(scalars={"issued": 3})
    read = derive_interval(make_sample(0), make_sample(SECOND, read=after)).ops["read"]
    assert read.count == 0
    assert read.latency.mean is None
    assert read.latency.max is None
    assert set(read.latency.quantiles.values()) == {None}


@pytest.mark.parametrize("size", [0, 8, abi.SAMPLE_BYTES - 8, abi.SAMPLE_BYTES + 8])
def test_a_sample_of_another_size_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match=str(abi.SAMPLE_BYTES)):
        abi.decode_sample(bytes(size))


WAITS = {
    "throttle_known": 10,
    "throttled": 2,
    "throttle_sum_ns": 40_000_000,
    "throttle_max_ns": 30_000_000,
    "admission_known": 10,
    "admission_sum_ns": 5000,
    "admission_max_ns": 900,
}


def make_waits(**changed: int) -> Op:
    return Op([1000] * 10, [4096] * 10, [500] * 10, scalars=WAITS | changed)


def test_waits_of_an_interval_are_the_growth_of_the_sums() -> None:
    begin, end = make_sample(0), make_sample(SECOND, write=make_waits())
    write = derive_interval(begin, end).ops["write"]
    assert write.throttle == Wait(10, 2, 40_000_000, 30_000_000, 30_000_000)
    assert write.admission == Wait(10, None, 5000, 900, 900)
    assert (write.throttle.mean, write.admission.mean) == (4_000_000, 500)


def test_maximum_of_a_wait_is_a_limit_unless_it_grew() -> None:
    more = {"throttle_known": 15, "throttled": 3, "throttle_sum_ns": 41_000_000, "admission_known": 15}
    after = Op([1000] * 15, [4096] * 15, scalars=WAITS | more)
    write = derive_interval(make_sample(0, write=make_waits()), make_sample(SECOND, write=after)).ops["write"]
    assert write.throttle == Wait(5, 1, 1_000_000, None, 30_000_000)
    assert write.admission == Wait(5, None, 0, None, 900)


def test_interval_without_a_throttled_request_has_a_maximum_of_zero() -> None:
    after = Op([1000] * 15, [4096] * 15, scalars=WAITS | {"throttle_known": 15})
    write = derive_interval(make_sample(0, write=make_waits()), make_sample(SECOND, write=after)).ops["write"]
    assert write.throttle == Wait(5, 0, 0, 0, 0)


def test_waits_are_none_unless_measured() -> None:
    read = derive_interval(make_sample(0), make_sample(SECOND, read=Op([1000], [512]))).ops["read"]
    assert read.throttle is None
    assert read.admission is None
