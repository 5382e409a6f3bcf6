"""Requests that the tracer counts as in flight although they completed, and stalls, from two readings."""

from __future__ import annotations

import pytest

from opwatch.trace.account.losses import list_losses, tally_losses
from opwatch.trace.account.stall import Stall, count_stale, find_stall
from opwatch.trace.stat import StatSample
from opwatch.trace.trust import Reading, account_losses
from tests.unit.support.samples import Op, make_sample

SECOND = 10**9
EMPTY = StatSample(0, 0, {}, {})


def make_reading(
    at_ns: int,
    in_flight: int,
    *,
    kernel: int | None = 0,
    flushes: int = 0,
    in_flight_ns: int = 0,
    done: int = 0,
) -> Reading:
    """Return a reading; the kernel's statistics are missing if `kernel` is None."""
    read = Op([1000] * done, scalars={"in_flight": in_flight, "in_flight_ns": in_flight_ns})
    sample = make_sample(at_ns, read=read, flush=Op(scalars={"in_flight": flushes}))
    stat = None if kernel is None else StatSample(at_ns, at_ns, {"read": done}, {}, kernel)
    return Reading(sample, stat, stat)


def test_requests_that_the_kernel_does_not_have_in_flight_are_stale() -> None:
    assert count_stale(make_reading(0, 3), make_reading(SECOND, 2)) == {"read": 2}
    assert count_stale(make_reading(0, 2), make_reading(SECOND, 3)) == {"read": 2}
    assert count_stale(make_reading(0, 0), make_reading(SECOND, 3)) == {}
    # The kernel does not count flushes in flight.
    assert count_stale(make_reading(0, 1, flushes=1), make_reading(SECOND, 1, flushes=1)) == {"read": 1}


@pytest.mark.parametrize(("then", "now"), [(1, 0), (0, 1), (None, 0), (0, None)])
def test_nothing_is_stale_unless_the_kernel_has_nothing_in_flight_twice(
    then: int | None, now: int | None
) -> None:
    assert count_stale(make_reading(0, 3, kernel=then), make_reading(SECOND, 3, kernel=now)) == {}


def test_nothing_is_stale_if_the_driver_keeps_no_statistics() -> None:
    sample, empty = make_sample(0, read=Op(scalars={"in_flight": 3})), StatSample(0, 0, {}, {})
    reading = Reading(sample, empty, empty)
    assert count_stale(reading, reading) == {}


def test_stall_starts_at_the_first_sample_with_requests_in_flight() -> None:
    then, now = make_reading(SECOND, 2, kernel=2), make_reading(3 * SECOND, 4, kernel=4)
    stall = find_stall(then, now, None, missed=False)
    assert stall == Stall(4, SECOND, 2 * SECOND)
    later = make_reading(4 * SECOND, 4, kernel=4)
    assert find_stall(now, later, stall, missed=False) == Stall(4, SECOND, 3 * SECOND)


def test_oldest_request_of_the_interval_is_at_least_as_old_as_their_mean() -> None:
    then = make_reading(SECOND, 0, in_flight_ns=7)
    now = make_reading(3 * SECOND, 4, kernel=4, in_flight_ns=7 + 6 * SECOND)
    assert find_stall(then, now, None, missed=False) == Stall(4, 3 * SECOND // 2, 3 * SECOND // 2)


def test_completion_ends_a_stall() -> None:
    then, now = make_reading(SECOND, 2, kernel=2), make_reading(2 * SECOND, 2, kernel=2, done=1)
    assert find_stall(then, now, Stall(2, 0, SECOND), missed=False) is None
    idle = make_reading(2 * SECOND, 2, kernel=0)
    assert find_stall(then, idle, Stall(2, 0, SECOND), missed=False) is None


def test_flush_in_flight_is_a_stall_unless_completions_were_missed() -> None:
    then, now = make_reading(SECOND, 0, flushes=1), make_reading(2 * SECOND, 0, flushes=1)
    assert find_stall(then, now, None, missed=False) == Stall(1, SECOND, SECOND)
    assert find_stall(then, now, None, missed=True) is None


def test_tracer_counts_requests_in_flight_if_the_kernel_does_not() -> None:
    then, now = make_reading(SECOND, 2, kernel=None), make_reading(2 * SECOND, 3, kernel=None, flushes=1)
    assert find_stall(then, now, None, missed=False) == Stall(4, SECOND, SECOND)


@pytest.mark.parametrize(("flushes", "queues", "alarms"), [(3, 1, 2), (1, 8, 2), (3, 3, 0), (3, 0, 3)])
def test_at_most_one_flush_per_queue_is_excused(flushes: int, queues: int, alarms: int) -> None:
    counts = {"read": Op(scalars={"unmatched": 3 - flushes}), "flush": Op(scalars={"unmatched": flushes})}
    begin, end = Reading(make_sample(0), None, None), Reading(make_sample(1, **counts), None, None)
    tally = tally_losses(account_losses(begin, end, 0), 0, queues)
    assert tally.total() == alarms


def test_skipped_runs_explain_missed_and_unmatched_requests_together() -> None:
    read = Op([1000] * 10, scalars={"ends": 12, "unmatched": 2})
    nothing, stat = StatSample(0, 0, {"read": 0}, {}), StatSample(0, 0, {"read": 15}, {})
    begin, end = Reading(make_sample(0), nothing, nothing), Reading(make_sample(1, read=read), stat, stat)
    # Three requests were not seen at all, and the issue of two was not.
    account = account_losses(begin, end, 4)
    losses = list_losses(tally_losses(account, 0), account, is_blind=False, is_whole=True)
    assert [loss.is_explained for loss in losses] == [True, False]
    assert "1 request more" in losses[1].words
    account = account_losses(begin, end, 5)
    losses = list_losses(tally_losses(account, 0), account, is_blind=False, is_whole=True)
    assert [loss.is_explained for loss in losses] == [True]


def test_tracer_counts_requests_in_flight_if_the_driver_keeps_no_statistics() -> None:
    samples = [make_sample(at * SECOND, read=Op(scalars={"in_flight": 3})) for at in (1, 2)]
    then, now = (Reading(sample, EMPTY, EMPTY) for sample in samples)
    assert find_stall(then, now, None, missed=False) == Stall(3, SECOND, SECOND)


@pytest.mark.parametrize(
    ("is_blind", "is_whole", "count"), [(True, True, 1), (True, False, 0), (False, True, 0)]
)
def test_blind_kernel_without_statistics_hides_an_unknown_number(
    count: int, *, is_blind: bool, is_whole: bool
) -> None:
    begin, end = (Reading(make_sample(at), EMPTY, EMPTY) for at in (0, 1))
    account = account_losses(begin, end, 0)
    losses = list_losses(tally_losses(account, 0), account, is_blind=is_blind, is_whole=is_whole)
    assert [loss.is_explained for loss in losses] == [True] * count
