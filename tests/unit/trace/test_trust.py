from __future__ import annotations

import pytest

from opwatch.sinks.lines import format_trust
from opwatch.trace import tracing
from opwatch.trace.abi import TargetSample
from opwatch.trace.account.losses import list_losses, tally_losses
from opwatch.trace.stat import StatSample
from opwatch.trace.tracing import SettledReadings, read_until_settled
from opwatch.trace.trust import LossAccount, Reading, account_losses
from tests.unit.support.samples import Op, make_sample


def make_counted_stat(
    requests: dict[str, int] | None = None, bytes_: dict[str, int] | None = None, in_flight: int = 0
) -> StatSample:
    return StatSample(0, 0, requests or {}, bytes_ or {}, in_flight)


def make_stat(read: int = 0, write: int = 0) -> StatSample:
    return make_counted_stat(
        {"read": read, "write": write, "flush": 0, "discard": 0},
        {"read": read * 4096, "write": write * 4096, "discard": 0},
    )


def add_counts(requests: dict[str, int], bytes_: dict[str, int]) -> StatSample:
    """Return a reading with no other requests counted."""
    return make_counted_stat(make_stat().requests | requests, make_stat().bytes | bytes_)


def make_idle_reading(traced: TargetSample, stat_: StatSample) -> Reading:
    """Return a reading with no completions in progress."""
    return Reading(traced, stat_, stat_)


def make_account(end: Reading, misses: int | None = 0) -> LossAccount:
    return account_losses(Reading(make_sample(0), make_stat(), make_stat()), end, misses)


def describe_losses(verdict: LossAccount, in_flight_at_start: int = 0) -> list[str]:
    lost = tally_losses(verdict, in_flight_at_start)
    return [loss.words for loss in list_losses(lost, verdict, is_blind=False, is_whole=True)]


def make_reads(n: int, **scalars: int) -> Op:
    return Op([1000] * n, [4096] * n, scalars=scalars)


def test_equal_counts_leave_no_loss() -> None:
    verdict = make_account(Reading(make_sample(1, read=make_reads(23)), make_stat(23), make_stat(23)))
    assert {group: drift.drift for group, drift in verdict.drift.items()} == dict.fromkeys(verdict.drift, 0)
    assert verdict.in_flight == 0
    assert describe_losses(verdict) == []


def test_requests_only_the_kernel_counted_are_drift() -> None:
    verdict = make_account(Reading(make_sample(1, read=make_reads(23)), make_stat(29), make_stat(29)))
    assert verdict.drift["read"].drift == 6
    assert verdict.byte_drift["read"].drift == 6 * 4096
    [loss] = describe_losses(verdict)
    assert " 6 reads (24576 bytes)" in loss


def test_requests_only_the_tracer_counted_are_negative_drift() -> None:
    verdict = make_account(Reading(make_sample(1, read=make_reads(23)), make_stat(20), make_stat(20)))
    assert verdict.drift["read"].drift == -3


def test_completions_while_reading_are_slack_and_not_drift() -> None:
    verdict = make_account(Reading(make_sample(1, read=make_reads(23)), make_stat(20), make_stat(25)))
    assert (verdict.drift["read"].drift, verdict.drift["read"].slack) == (0, 5)
    assert describe_losses(verdict) == []
    beyond = make_account(Reading(make_sample(1, read=make_reads(19)), make_stat(20), make_stat(25)))
    assert (beyond.drift["read"].drift, beyond.drift["read"].slack) == (1, 5)


def test_only_the_kernel_counts_an_empty_flush_as_a_write() -> None:
    write = Op([1000] * 7, [4096] * 7, scalars={"ends": 12, "never_issued": 5})
    verdict = make_account(Reading(make_sample(1, write=write), make_stat(write=12), make_stat(write=12)))
    assert verdict.drift["write"].drift == 0
    assert verdict.never_issued == 5


def test_requests_in_flight_at_the_start_explain_unmatched_completions() -> None:
    read = make_reads(10, ends=13, unmatched=3, unseen_bytes=3 * 4096)
    verdict = make_account(Reading(make_sample(1, read=read), make_stat(13), make_stat(13)))
    assert describe_losses(verdict, in_flight_at_start=3) == []
    [line] = describe_losses(verdict, in_flight_at_start=2)
    assert "1 request" in line


def test_a_flush_in_flight_at_the_start_is_in_no_count_of_the_kernel() -> None:
    flush = Op([1000] * 3, scalars={"ends": 4, "unmatched": 1})
    verdict = make_account(
        Reading(make_sample(1, flush=flush, read=make_reads(2)), make_stat(2), make_stat(2))
    )
    drift = verdict.drift["flush"]
    assert (verdict.unmatched, verdict.unmatched_flushes, drift.drift) == (1, 1, -4)


@pytest.mark.parametrize(
    ("scalar", "number"),
    [("overwritten", "2 requests"), ("map_full", "2 requests"), ("clock_back", "2 requests")],
)
def test_each_loss_is_named(scalar: str, number: str) -> None:
    verdict = make_account(
        Reading(make_sample(1, read=make_reads(5, **{scalar: 2})), make_stat(5), make_stat(5))
    )
    [line] = describe_losses(verdict)
    assert number in line


def test_missing_witness_is_a_reason_and_not_zero() -> None:
    why = "statistics are off"
    verdict = make_account(Reading(make_sample(1), None, None, why))
    assert verdict.drift == {}
    assert verdict.no_drift == why
    [loss] = describe_losses(verdict)
    assert loss.endswith(f": {why}")


def test_a_requeued_request_is_in_flight_once() -> None:
    read = Op([1000] * 5, [4096] * 5, scalars={"issued": 7, "requeued": 2})
    assert make_account(Reading(make_sample(1, read=read), make_stat(5), make_stat(5))).in_flight == 2


def test_a_backend_that_knows_no_misses_has_none() -> None:
    verdict = make_account(
        Reading(make_sample(1, read=make_reads(23)), make_stat(23), make_stat(23)), misses=None
    )
    assert verdict.misses is None
    assert describe_losses(verdict) == []
    assert any("skipped by kernel ? " in line for line in format_trust(verdict, 0))


def test_requests_taken_back_are_counted_by_the_kernel_only() -> None:
    read = make_reads(10, ends=15, issued=13, taken_back=5, refused=2)
    verdict = make_account(
        make_idle_reading(make_sample(1, read=read), add_counts({"read": 15}, {"read": 10 * 4096}))
    )
    assert (verdict.taken_back, verdict.refused, verdict.completed, verdict.in_flight) == (5, 2, 10, 0)
    assert (verdict.drift["read"].drift, verdict.byte_drift["read"].drift) == (0, 0)
    assert describe_losses(verdict) == []
    assert any(": 5, 2 " in line for line in format_trust(verdict, 0))


def test_sequence_data_counts_when_the_sequence_ends() -> None:
    """The kernel counts the bytes with the data, and the write with the flush that follows."""
    write = Op([1000] * 7, [4096] * 7, scalars={"ends": 6, "flush_tails": 2})
    verdict = make_account(
        make_idle_reading(make_sample(1, write=write), add_counts({"write": 6}, {"write": 7 * 4096}))
    )
    assert (verdict.drift["write"].drift, verdict.byte_drift["write"].drift) == (0, 0)
    assert describe_losses(verdict) == []


def test_other_operations_use_the_kernels_groups() -> None:
    other = Op([1000] * 9, scalars={"stat_writes": 5, "stat_write_bytes": 512, "stat_reads": 2})
    verdict = make_account(
        make_idle_reading(make_sample(1, other=other), add_counts({"read": 2, "write": 5}, {"write": 512}))
    )
    assert verdict.completed == 9
    assert describe_losses(verdict) == []


def test_groups_without_driver_statistics_are_not_compared() -> None:
    """zram counts reads and writes, with the first ones during the reading; brd counts no requests."""
    first, last = make_counted_stat(), make_counted_stat({"read": 9}, {"read": 9 * 4096})
    discard = Op([1000] * 5, [4096] * 5)
    end = Reading(make_sample(1, read=make_reads(9), discard=discard), last, last)
    verdict = account_losses(Reading(make_sample(0), first, first), end, 0)
    assert {group: drift.drift for group, drift in verdict.drift.items()} == {"read": 0}
    assert describe_losses(verdict) == []
    verdict = account_losses(
        Reading(make_sample(0), first, first), Reading(make_sample(1, read=make_reads(9)), first, first), 0
    )
    assert (verdict.drift, verdict.no_drift, describe_losses(verdict)) == ({}, None, [])
    assert any("drift" in line and ": unknown, " in line for line in format_trust(verdict, 0))


def test_kernel_counts_cloned_flushes_as_reads() -> None:
    flush = Op([1000] * 9, scalars={"ends": 9, "stat_reads": 4})
    traced = make_sample(1, read=make_reads(23), flush=flush)
    verdict = make_account(
        make_idle_reading(traced, add_counts({"read": 27, "flush": 5}, {"read": 23 * 4096}))
    )
    assert {group: drift.drift for group, drift in verdict.drift.items()} == dict.fromkeys(verdict.drift, 0)


def test_reading_waits_until_the_kernel_counts_traced_requests() -> None:
    later = iter([make_stat(22), make_stat(23), make_stat(24)])
    counted = SettledReadings(lambda: next(later))
    first = counted.settle_reading(Reading(make_sample(0), make_stat(), make_stat()))
    reading = counted.settle_reading(
        Reading(make_sample(1, read=make_reads(23)), make_stat(22), make_stat(22))
    )
    assert account_losses(first, reading, 0).drift["read"].drift == 0
    assert reading.after == make_stat(23)


def test_first_reading_ahead_of_the_kernel_is_ignored() -> None:
    """A completion fell between the two counts, so later readings are compared with the second reading."""
    counted = SettledReadings(lambda: make_stat(7))
    counted.settle_reading(Reading(make_sample(0, read=make_reads(5)), make_stat(4), make_stat(4)))
    counted.settle_reading(Reading(make_sample(1, read=make_reads(6)), make_stat(6), make_stat(6)))
    reading = counted.settle_reading(Reading(make_sample(2, read=make_reads(7)), make_stat(6), make_stat(6)))
    assert reading.after == make_stat(7)


def test_a_first_reading_that_was_cut_in_two_hides_no_later_moment() -> None:
    """A request completed during the first reading, so later readings are compared with a closer reading."""
    later = iter([make_stat(10), make_stat(11)])
    counted = SettledReadings(lambda: next(later))
    counted.settle_reading(Reading(make_sample(0, read=make_reads(1)), make_stat(0), make_stat(1)))
    begin = counted.settle_reading(Reading(make_sample(1, read=make_reads(5)), make_stat(5), make_stat(5)))
    end = counted.settle_reading(Reading(make_sample(2, read=make_reads(11)), make_stat(10), make_stat(10)))
    assert end.after == make_stat(11)
    assert account_losses(begin, end, 0).drift["read"].drift == 0


def test_torn_reading_does_not_replace_earlier_bounds() -> None:
    counted = SettledReadings(lambda: make_stat(7))
    counted.settle_reading(Reading(make_sample(0, read=make_reads(5)), make_stat(5), make_stat(5)))
    counted.settle_reading(Reading(make_sample(1, read=make_reads(6)), make_stat(5), make_stat(6)))
    reading = counted.settle_reading(Reading(make_sample(2, read=make_reads(7)), make_stat(6), make_stat(6)))
    assert reading.after == make_stat(7)


def test_requests_the_kernel_never_counts_are_awaited_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "MAX_WAIT_S", 0.0)
    looks: list[StatSample] = []
    counted = SettledReadings(lambda: looks.append(make_stat(1)) or make_stat(1))  # type: ignore[func-returns-value]
    counted.settle_reading(Reading(make_sample(0), make_stat(), make_stat()))
    counted.settle_reading(Reading(make_sample(1, read=make_reads(2)), make_stat(1), make_stat(1)))
    before = len(looks)
    counted.settle_reading(Reading(make_sample(2, read=make_reads(3)), make_stat(2), make_stat(2)))
    assert len(looks) == before


def test_request_in_flight_is_not_a_remainder() -> None:
    busy = make_counted_stat(make_stat(3).requests, make_stat(3).bytes, in_flight=1)
    readings = [Reading(make_sample(0), statistics, statistics) for statistics in (busy, make_stat(3))]
    assert read_until_settled(lambda: [readings.pop(0)], 1.0)[0].after == make_stat(3)


def test_failed_wait_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "MAX_WAIT_S", 0.0)
    looks: list[StatSample] = []
    counted = SettledReadings(lambda: looks.append(make_stat()) or make_stat())  # type: ignore[func-returns-value]
    counted.settle_reading(Reading(make_sample(0), make_stat(), make_stat()))
    for traced in range(1, 9):
        reading = counted.settle_reading(
            Reading(make_sample(traced, read=make_reads(traced)), make_stat(), make_stat())
        )
    assert (
        account_losses(Reading(make_sample(0), make_stat(), make_stat()), reading, 0).drift["read"].drift
        == -8
    )
    before = len(looks)
    counted.settle_reading(Reading(make_sample(9, read=make_reads(9)), make_stat(), make_stat()))
    assert len(looks) == before
