from __future__ import annotations

import pytest

from opwatch.sinks.lines import trust_lines
from opwatch.trace import tracing
from opwatch.trace.abi import TargetSample
from opwatch.trace.account.losses import list_losses, tally_losses
from opwatch.trace.stat import StatSample
from opwatch.trace.tracing import Counted, settled
from opwatch.trace.trust import Reading, Trust, trust
from tests.unit.support.samples import Op, sample


def counted_as(
    requests: dict[str, int] | None = None, bytes_: dict[str, int] | None = None, in_flight: int = 0
) -> StatSample:
    return StatSample(0, 0, requests or {}, bytes_ or {}, in_flight)


def stat(read: int = 0, write: int = 0) -> StatSample:
    return counted_as(
        {"read": read, "write": write, "flush": 0, "discard": 0},
        {"read": read * 4096, "write": write * 4096, "discard": 0},
    )


def counted(requests: dict[str, int], bytes_: dict[str, int]) -> StatSample:
    """Return a reading with no other requests counted."""
    return counted_as(stat().requests | requests, stat().bytes | bytes_)


def at_rest(traced: TargetSample, stat_: StatSample) -> Reading:
    """Return a reading with no completions in progress."""
    return Reading(traced, stat_, stat_)


def account(end: Reading, misses: int | None = 0) -> Trust:
    return trust(Reading(sample(0), stat(), stat()), end, misses)


def losses_of(verdict: Trust, in_flight_at_start: int = 0) -> list[str]:
    lost = tally_losses(verdict, in_flight_at_start)
    return [loss.words for loss in list_losses(lost, verdict, is_blind=False, is_whole=True)]


def reads(n: int, **scalars: int) -> Op:
    return Op([1000] * n, [4096] * n, scalars=scalars)


def test_equal_counts_leave_no_loss() -> None:
    verdict = account(Reading(sample(1, read=reads(23)), stat(23), stat(23)))
    assert {group: drift.drift for group, drift in verdict.drift.items()} == dict.fromkeys(verdict.drift, 0)
    assert verdict.in_flight == 0
    assert losses_of(verdict) == []


def test_requests_only_the_kernel_counted_are_drift() -> None:
    verdict = account(Reading(sample(1, read=reads(23)), stat(29), stat(29)))
    assert verdict.drift["read"].drift == 6
    assert verdict.byte_drift["read"].drift == 6 * 4096
    assert losses_of(verdict) == ["not traced: 6 reads (24576 bytes), cause unknown"]


def test_requests_only_the_tracer_counted_are_negative_drift() -> None:
    verdict = account(Reading(sample(1, read=reads(23)), stat(20), stat(20)))
    assert verdict.drift["read"].drift == -3


def test_completions_while_reading_are_slack_and_not_drift() -> None:
    verdict = account(Reading(sample(1, read=reads(23)), stat(20), stat(25)))
    assert (verdict.drift["read"].drift, verdict.drift["read"].slack) == (0, 5)
    assert losses_of(verdict) == []
    beyond = account(Reading(sample(1, read=reads(19)), stat(20), stat(25)))
    assert (beyond.drift["read"].drift, beyond.drift["read"].slack) == (1, 5)


def test_an_empty_flush_is_a_write_for_the_kernel_alone() -> None:
    write = Op([1000] * 7, [4096] * 7, scalars={"ends": 12, "never_issued": 5})
    verdict = account(Reading(sample(1, write=write), stat(write=12), stat(write=12)))
    assert verdict.drift["write"].drift == 0
    assert verdict.never_issued == 5


def test_requests_in_flight_at_the_start_explain_unmatched_completions() -> None:
    read = reads(10, ends=13, unmatched=3, unseen_bytes=3 * 4096)
    verdict = account(Reading(sample(1, read=read), stat(13), stat(13)))
    assert losses_of(verdict, in_flight_at_start=3) == []
    [line] = losses_of(verdict, in_flight_at_start=2)
    assert "1 request" in line


def test_a_flush_in_flight_at_the_start_is_in_no_count_of_the_kernel() -> None:
    flush = Op([1000] * 3, scalars={"ends": 4, "unmatched": 1})
    verdict = account(Reading(sample(1, flush=flush, read=reads(2)), stat(2), stat(2)))
    drift = verdict.drift["flush"]
    assert (verdict.unmatched, verdict.unmatched_flushes, drift.drift) == (1, 1, -4)


@pytest.mark.parametrize(
    ("scalar", "number"),
    [("overwritten", "2 requests"), ("map_full", "2 requests"), ("clock_back", "2 requests")],
)
def test_each_loss_is_named(scalar: str, number: str) -> None:
    verdict = account(Reading(sample(1, read=reads(5, **{scalar: 2})), stat(5), stat(5)))
    [line] = losses_of(verdict)
    assert number in line


def test_no_witness_is_a_reason_and_no_zero() -> None:
    verdict = account(Reading(sample(1), None, None, "statistics are off"))
    assert verdict.drift == {}
    assert verdict.no_drift == "statistics are off"
    assert losses_of(verdict) == ["drift unknown: statistics are off"]


def test_a_requeued_request_is_in_flight_once() -> None:
    read = Op([1000] * 5, [4096] * 5, scalars={"issued": 7, "requeued": 2})
    assert account(Reading(sample(1, read=read), stat(5), stat(5))).in_flight == 2


def test_a_backend_that_knows_no_misses_has_none() -> None:
    verdict = account(Reading(sample(1, read=reads(23)), stat(23), stat(23)), misses=None)
    assert verdict.misses is None
    assert losses_of(verdict) == []
    assert any("skipped by kernel ? " in line for line in trust_lines(verdict, 0))


def test_requests_taken_back_are_counted_by_the_kernel_only() -> None:
    read = reads(10, ends=15, issued=13, taken_back=5, refused=2)
    verdict = account(at_rest(sample(1, read=read), counted({"read": 15}, {"read": 10 * 4096})))
    assert (verdict.taken_back, verdict.refused, verdict.completed, verdict.in_flight) == (5, 2, 10, 0)
    assert (verdict.drift["read"].drift, verdict.byte_drift["read"].drift) == (0, 0)
    assert losses_of(verdict) == []
    assert "  taken back for another path: 5, 2 before their issue" in trust_lines(verdict, 0)


def test_the_data_of_a_sequence_counts_when_the_sequence_ends() -> None:
    """The kernel counts the bytes with the data, and the write with the flush that follows."""
    write = Op([1000] * 7, [4096] * 7, scalars={"ends": 6, "flush_tails": 2})
    verdict = account(at_rest(sample(1, write=write), counted({"write": 6}, {"write": 7 * 4096})))
    assert (verdict.drift["write"].drift, verdict.byte_drift["write"].drift) == (0, 0)
    assert losses_of(verdict) == []


def test_other_operations_use_the_kernels_groups() -> None:
    other = Op([1000] * 9, scalars={"stat_writes": 5, "stat_write_bytes": 512, "stat_reads": 2})
    verdict = account(at_rest(sample(1, other=other), counted({"read": 2, "write": 5}, {"write": 512})))
    assert verdict.completed == 9
    assert losses_of(verdict) == []


def test_groups_without_driver_statistics_are_not_compared() -> None:
    """zram counts reads and writes, with the first ones during the reading; brd counts no requests."""
    first, last = counted_as(), counted_as({"read": 9}, {"read": 9 * 4096})
    discard = Op([1000] * 5, [4096] * 5)
    end = Reading(sample(1, read=reads(9), discard=discard), last, last)
    verdict = trust(Reading(sample(0), first, first), end, 0)
    assert {group: drift.drift for group, drift in verdict.drift.items()} == {"read": 0}
    assert losses_of(verdict) == []
    verdict = trust(Reading(sample(0), first, first), Reading(sample(1, read=reads(9)), first, first), 0)
    assert (verdict.drift, verdict.no_drift, losses_of(verdict)) == ({}, None, [])
    assert "  drift against the kernel: not kept, this driver counts nothing" in trust_lines(verdict, 0)


def test_flushes_that_device_mapper_copied_are_reads_for_the_kernel() -> None:
    flush = Op([1000] * 9, scalars={"ends": 9, "stat_reads": 4})
    traced = sample(1, read=reads(23), flush=flush)
    verdict = account(at_rest(traced, counted({"read": 27, "flush": 5}, {"read": 23 * 4096})))
    assert {group: drift.drift for group, drift in verdict.drift.items()} == dict.fromkeys(verdict.drift, 0)


def test_reading_waits_until_the_kernel_counts_traced_requests() -> None:
    later = iter([stat(22), stat(23), stat(24)])
    counted = Counted(lambda: next(later))
    first = counted.reading(Reading(sample(0), stat(), stat()))
    reading = counted.reading(Reading(sample(1, read=reads(23)), stat(22), stat(22)))
    assert trust(first, reading, 0).drift["read"].drift == 0
    assert reading.after == stat(23)


def test_a_first_reading_that_was_ahead_is_no_measure() -> None:
    """A completion fell between the two counts, so later readings are compared with the second reading."""
    counted = Counted(lambda: stat(7))
    counted.reading(Reading(sample(0, read=reads(5)), stat(4), stat(4)))
    counted.reading(Reading(sample(1, read=reads(6)), stat(6), stat(6)))
    reading = counted.reading(Reading(sample(2, read=reads(7)), stat(6), stat(6)))
    assert reading.after == stat(7)


def test_a_first_reading_that_was_cut_in_two_hides_no_later_moment() -> None:
    """A request completed during the first reading, so later readings are compared with a closer reading."""
    later = iter([stat(10), stat(11)])
    counted = Counted(lambda: next(later))
    counted.reading(Reading(sample(0, read=reads(1)), stat(0), stat(1)))
    begin = counted.reading(Reading(sample(1, read=reads(5)), stat(5), stat(5)))
    end = counted.reading(Reading(sample(2, read=reads(11)), stat(10), stat(10)))
    assert end.after == stat(11)
    assert trust(begin, end, 0).drift["read"].drift == 0


def test_torn_reading_does_not_replace_earlier_bounds() -> None:
    counted = Counted(lambda: stat(7))
    counted.reading(Reading(sample(0, read=reads(5)), stat(5), stat(5)))
    counted.reading(Reading(sample(1, read=reads(6)), stat(5), stat(6)))
    reading = counted.reading(Reading(sample(2, read=reads(7)), stat(6), stat(6)))
    assert reading.after == stat(7)


def test_requests_the_kernel_never_counts_are_awaited_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "COUNTED_S", 0.0)
    looks: list[StatSample] = []
    counted = Counted(lambda: looks.append(stat(1)) or stat(1))  # type: ignore[func-returns-value]
    counted.reading(Reading(sample(0), stat(), stat()))
    counted.reading(Reading(sample(1, read=reads(2)), stat(1), stat(1)))
    before = len(looks)
    counted.reading(Reading(sample(2, read=reads(3)), stat(2), stat(2)))
    assert len(looks) == before


def test_a_request_in_flight_is_no_rest() -> None:
    busy = counted_as(stat(3).requests, stat(3).bytes, in_flight=1)
    readings = [Reading(sample(0), statistics, statistics) for statistics in (busy, stat(3))]
    assert settled(lambda: [readings.pop(0)], 1.0)[0].after == stat(3)


def test_failed_wait_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "COUNTED_S", 0.0)
    looks: list[StatSample] = []
    counted = Counted(lambda: looks.append(stat()) or stat())  # type: ignore[func-returns-value]
    counted.reading(Reading(sample(0), stat(), stat()))
    for traced in range(1, 9):
        reading = counted.reading(Reading(sample(traced, read=reads(traced)), stat(), stat()))
    assert trust(Reading(sample(0), stat(), stat()), reading, 0).drift["read"].drift == -8
    before = len(looks)
    counted.reading(Reading(sample(9, read=reads(9)), stat(), stat()))
    assert len(looks) == before
