"""Waits for the kernel's count, with a clock that only a sleep advances."""

from __future__ import annotations

import pytest

from opwatch.trace import tracing
from opwatch.trace.stat import StatSample
from opwatch.trace.tracing import MAX_TIMEOUTS, MAX_WAIT_S, SettledReadings, read_until_settled
from opwatch.trace.trust import Reading
from tests.unit.support.samples import Op, make_sample


class Clock:
    """Stands for the module `time`."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    fake = Clock()
    monkeypatch.setattr(tracing, "time", fake)
    return fake


def make_stat(reads: int, in_flight: int = 0) -> StatSample:
    return StatSample(0, 0, {"read": reads}, {}, in_flight)


def make_reading(traced: int, kernel: int) -> Reading:
    sample = make_sample(traced, read=Op([1000] * traced))
    return Reading(sample, make_stat(kernel), make_stat(kernel))


def settle_timed(settled: SettledReadings, clock: Clock, traced: int, kernel: int) -> float:
    """Return how long the reading waits."""
    begin = clock.now
    settled.settle_reading(make_reading(traced, kernel))
    return clock.now - begin


def test_waits_end_after_several_timeouts_in_a_row(clock: Clock) -> None:
    settled = SettledReadings(lambda: make_stat(0))
    waits = [settle_timed(settled, clock, traced, 0) for traced in range(MAX_TIMEOUTS + 3)]
    assert waits == [0, *[pytest.approx(MAX_WAIT_S, abs=0.005)] * MAX_TIMEOUTS, 0, 0]


def test_reading_without_a_timeout_restarts_the_count(clock: Clock) -> None:
    settled = SettledReadings(lambda: make_stat(0))
    settle_timed(settled, clock, 0, 0)
    for traced in range(1, MAX_TIMEOUTS):
        assert settle_timed(settled, clock, traced, 0) > 0
    # The kernel has counted as much as before.
    assert settle_timed(settled, clock, MAX_TIMEOUTS - 1, 0) == 0
    waits = [settle_timed(settled, clock, MAX_TIMEOUTS + more, 0) for more in range(MAX_TIMEOUTS + 1)]
    assert [wait > 0 for wait in waits] == [True] * MAX_TIMEOUTS + [False]


def test_reading_without_a_second_witness_does_not_wait(clock: Clock) -> None:
    settled = SettledReadings(lambda: make_stat(0))
    settled.settle_reading(make_reading(0, 0))
    blind = Reading(make_sample(1, read=Op([1000])), make_stat(0), None, "gone")
    assert settled.settle_reading(blind) == blind and clock.now == 0


@pytest.mark.parametrize("missing", ["before", "after", "both"])
def test_readings_without_a_witness_are_settled(clock: Clock, missing: str) -> None:
    before = None if missing != "after" else make_stat(1)
    after = None if missing != "before" else make_stat(2)
    reading = Reading(make_sample(0), before, after, "gone")
    assert read_until_settled(lambda: [reading], 1.0) == [reading]
    assert clock.now == 0


@pytest.mark.parametrize(
    "reading",
    [
        Reading(make_sample(0), make_stat(1), make_stat(2)),
        Reading(make_sample(0), make_stat(1), make_stat(1, in_flight=1)),
    ],
    ids=["counted during the reading", "in flight"],
)
def test_last_reading_is_returned_after_the_patience(clock: Clock, reading: Reading) -> None:
    quiet = Reading(make_sample(0), None, None)
    assert read_until_settled(lambda: [quiet, reading], 0.5) == [quiet, reading]
    assert clock.now == pytest.approx(0.5, abs=0.005)
