"""Figures of an interval when every counter already had a value at its begin."""

from __future__ import annotations

import pytest

from opwatch.trace import abi
from opwatch.trace.derive import derive_interval, make_idle_op
from opwatch.trace.stat import StatSample
from opwatch.trace.trust import Reading, account_losses
from tests.unit.support.samples import Op, make_sample

SECOND = 10**9
NAMES = [name for name in abi.SCALARS if name != "next_sector"]


def make_op(step: int) -> Op:
    """Return an operation in which counter N is N times `step`, so that no two grow by the same amount."""
    return Op(scalars={name: step * number for number, name in enumerate(NAMES, 1)})


def number_of(name: str) -> int:
    return NAMES.index(name) + 1


def test_interval_has_the_growth_of_every_counter() -> None:
    before, after = make_sample(SECOND, read=make_op(3)), make_sample(3 * SECOND, read=make_op(10))
    interval = derive_interval(before, after)
    read = interval.ops["read"]
    assert (interval.begin_ns, interval.end_ns, interval.seconds) == (SECOND, 3 * SECOND, 2.0)
    for name, value in (
        ("completed", read.count),
        ("bytes", read.bytes),
        ("errors", read.errors),
        ("error_bytes", read.error_bytes),
        ("issued", read.issued),
    ):
        assert value == 7 * number_of(name), name
    assert read.sequential_ratio == number_of("sequential") / number_of("issued")
    assert read.in_flight == 10 * number_of("in_flight")
    assert read.queue_depth == 7 * number_of("in_flight_ns") / (2 * SECOND)
    # No slot of the histograms is in use, so the mean and a new maximum are all that is known.
    assert read.latency.mean == number_of("sum_ns") / number_of("completed")
    assert (read.latency.max, read.latency.max_slack_ns) == (10 * number_of("max_ns"), 0)
    assert read.queue and read.queue.mean == number_of("queue_sum_ns") / number_of("queued")
    assert read.queue.max == 10 * number_of("queue_max_ns")


def test_stale_requests_are_neither_in_flight_nor_in_the_depth() -> None:
    before = make_sample(SECOND, read=Op(scalars={"issued": 5, "in_flight": 5, "in_flight_ns": 7}))
    after = make_sample(
        3 * SECOND, read=Op(scalars={"issued": 6, "in_flight": 6, "in_flight_ns": 7 + 11 * SECOND})
    )
    read = derive_interval(before, after, {"read": 4}).ops["read"]
    assert (read.in_flight, read.queue_depth) == (2, 1.5)
    assert derive_interval(before, after, {"read": 9}).ops["read"].queue_depth == 0


def test_operation_in_flight_all_the_time_is_part_of_the_interval() -> None:
    flying = make_sample(SECOND, read=Op(scalars={"issued": 2, "in_flight": 2}))
    later = make_sample(2 * SECOND, read=Op(scalars={"issued": 2, "in_flight": 2}))
    assert set(derive_interval(flying, later).ops) == {"read"}
    assert set(derive_interval(flying, later, {"read": 1}).ops) == {"read"}
    assert derive_interval(flying, later, {"read": 2}).ops == {}


@pytest.mark.parametrize("name", ["completed", "issued", "errors", "in_flight_ns"])
def test_operation_with_any_activity_is_not_idle(name: str) -> None:
    assert make_idle_op().is_idle
    begin = make_sample(0, read=Op(scalars={"in_flight": 1}))
    end = make_sample(SECOND, read=Op(scalars={"in_flight": 1, name: 1}))
    assert not derive_interval(begin, end).ops["read"].is_idle


def test_empty_interval_has_no_depth() -> None:
    after = make_sample(0, read=Op(scalars={"issued": 1, "in_flight_ns": 5}))
    assert derive_interval(make_sample(0), after).ops["read"].queue_depth == 0


def test_account_has_the_growth_of_every_counter() -> None:
    stat = StatSample(0, 0, {}, {})
    begin = make_sample(1, read=make_op(3), flush=make_op(1))
    end = make_sample(2, read=make_op(10), flush=make_op(5))
    account = account_losses(Reading(begin, stat, stat), Reading(end, stat, stat), 2)
    for name in (
        *("issued", "completed", "unmatched", "partial", "requeued", "errors", "never_issued"),
        *("flush_tails", "taken_back", "refused", "map_full", "clock_back"),
    ):
        assert getattr(account, name) == 11 * number_of(name), name
    assert account.unmatched_flushes == 4 * number_of("unmatched")
    assert account.overwritten == 11 * (number_of("overwritten") + number_of("missed"))
    assert account.misses == 2


def test_requests_in_flight_are_those_issued_and_not_ended_since_attach() -> None:
    ended = {"completed": 20, "taken_back": 7, "refused": 3, "abandoned": 5, "overwritten": 2, "missed": 4}
    sample = make_sample(1, read=Op(scalars={"issued": 100, **ended}))
    stat = StatSample(0, 0, {}, {})
    account = account_losses(Reading(sample, stat, stat), Reading(sample, stat, stat), 0)
    assert account.in_flight == 100 - 20 - (7 - 3 + 5) - (2 + 4)
    assert account.issued == 0
