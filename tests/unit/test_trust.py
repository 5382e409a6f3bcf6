from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from opwatch.sinks.lines import trust_lines
from opwatch.trust import Reading, Trust, trust

from .samples import Op, sample


@dataclass(frozen=True)
class Stat:
    requests: dict[str, int] = field(default_factory=dict)
    bytes: dict[str, int] = field(default_factory=dict)


def stat(read: int = 0, write: int = 0) -> Stat:
    return Stat(
        {"read": read, "write": write, "flush": 0, "discard": 0},
        {"read": read * 4096, "write": write * 4096, "discard": 0},
    )


def account(end: Reading, misses: int | None = 0) -> Trust:
    return trust(Reading(sample(0), stat(), stat()), end, misses)


def reads(n: int, **scalars: int) -> Op:
    return Op([1000] * n, [4096] * n, scalars=scalars)


def test_what_agrees_leaves_nothing_unexplained() -> None:
    seen = account(Reading(sample(1, read=reads(23)), stat(23), stat(23)))
    assert {group: drift.drift for group, drift in seen.drift.items()} == dict.fromkeys(seen.drift, 0)
    assert seen.in_flight == 0
    assert seen.unexplained(0) == []


def test_what_the_kernel_counted_more_is_drift() -> None:
    seen = account(Reading(sample(1, read=reads(23)), stat(29), stat(29)))
    assert seen.drift["read"].drift == 6
    assert seen.byte_drift["read"].drift == 6 * 4096
    assert len(seen.unexplained(0)) == 2


def test_what_we_counted_more_is_negative_drift() -> None:
    seen = account(Reading(sample(1, read=reads(23)), stat(20), stat(20)))
    assert seen.drift["read"].drift == -3


def test_completions_while_reading_are_slack_and_not_drift() -> None:
    seen = account(Reading(sample(1, read=reads(23)), stat(20), stat(25)))
    assert (seen.drift["read"].drift, seen.drift["read"].slack) == (0, 5)
    assert seen.unexplained(0) == []
    beyond = account(Reading(sample(1, read=reads(19)), stat(20), stat(25)))
    assert (beyond.drift["read"].drift, beyond.drift["read"].slack) == (1, 5)


def test_an_empty_flush_is_a_write_for_the_kernel_alone() -> None:
    write = Op([1000] * 7, [4096] * 7, scalars={"never_issued": 5})
    seen = account(Reading(sample(1, write=write), stat(write=12), stat(write=12)))
    assert seen.drift["write"].drift == 0
    assert seen.never_issued == 5


def test_unmatched_is_explained_by_what_was_in_flight_at_the_start() -> None:
    read = reads(10, unmatched=3, unseen_bytes=3 * 4096)
    seen = account(Reading(sample(1, read=read), stat(13), stat(13)))
    assert seen.unexplained(in_flight_at_start=3) == []
    assert seen.unexplained(in_flight_at_start=2) == ["3 completions without an issue"]


@pytest.mark.parametrize(
    ("scalar", "words"),
    [("overwritten", "missed"), ("map_full", "remembered"), ("clock_back", "stamped")],
)
def test_each_loss_is_named(scalar: str, words: str) -> None:
    seen = account(Reading(sample(1, read=reads(5, **{scalar: 2})), stat(5), stat(5)))
    [line] = seen.unexplained(0)
    assert line.startswith("2 ")
    assert words in line


def test_recursion_misses_are_unexplained() -> None:
    seen = account(Reading(sample(1), stat(), stat()), misses=4)
    assert seen.unexplained(0) == ["4 program runs skipped by the kernel"]


def test_no_witness_is_a_reason_and_no_zero() -> None:
    seen = account(Reading(sample(1), None, None, "statistics are off"))
    assert seen.drift == {}
    assert seen.no_drift == "statistics are off"
    assert seen.unexplained(0) == ["drift unknown: statistics are off"]


def test_a_requeued_request_is_not_in_flight_twice() -> None:
    read = Op([1000] * 5, [4096] * 5, scalars={"issued": 9, "requeued": 2})
    assert account(Reading(sample(1, read=read), stat(5), stat(5))).in_flight == 2


def test_a_backend_that_knows_no_misses_has_none() -> None:
    seen = account(Reading(sample(1, read=reads(23)), stat(23), stat(23)), misses=None)
    assert seen.misses is None
    assert seen.unexplained(0) == []
    assert any("skipped by kernel ? " in line for line in trust_lines(seen, 0))
