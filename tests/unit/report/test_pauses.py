"""A pause with requests in flight is a stall; a pause without is idle time of the load."""

from __future__ import annotations

import pytest

from opwatch.report.bins import OpBin, RateRange, TimeBin
from opwatch.report.changes import RATE, disk_changes
from opwatch.report.gathering import DiskPicture
from opwatch.report.levels import Pause

S = 10**9


def pause_of(flying: int, *, others: bool = False) -> Pause:
    """Return the pause of 10 s in a run of 100 s, with this many requests in flight."""
    disk = DiskPicture("sda", "sda")
    for at in range(100):
        is_pause = 50 <= at < 60
        ops = {} if is_pause else {"write": OpBin(500 + at % 3, 500 * 4096, 0.5)}
        if others:
            ops["read"] = OpBin(70, 70 * 4096, 0.1)
        in_flight = RateRange(flying, flying) if is_pause else RateRange(1, 1)
        disk.add(TimeBin(at * S, (at + 1) * S, 1.0, 1, ops, in_flight=in_flight))
    changes = disk_changes(disk, None, ())
    (pause,) = next(one for one in changes if (one.figure, one.op) == (RATE, "write")).levels.pauses
    return pause


@pytest.fixture(autouse=True)
def reads_and_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Operations come from the summaries, which do not exist here."""
    monkeypatch.setattr(DiskPicture, "ops", ["read", "write"])


@pytest.mark.parametrize("flying", [0, 3])
def test_pause_reports_the_requests_in_flight(flying: int) -> None:
    pause = pause_of(flying)
    assert (pause.begin_ns, pause.end_ns, pause.in_flight) == (50 * S, 60 * S, (flying, flying))


def test_in_flight_is_not_known_while_another_operation_goes_on() -> None:
    assert pause_of(3, others=True).in_flight is None


def long_run(seconds: int, begin: int, end: int) -> DiskPicture:
    """A disk with 500 writes per second, and none from begin to end."""
    disk = DiskPicture("sda", "sda")
    for at in range(seconds):
        ops = {} if begin <= at < end else {"write": OpBin(500 + at * 7 % 11, 500 * 4096, 0.5)}
        disk.add(TimeBin(at * S, (at + 1) * S, 1.0, 1, ops, in_flight=RateRange(1, 1)))
    return disk


@pytest.mark.parametrize(("seconds", "length"), [(600, 5), (1800, 10), (10800, 60), (10800, 20), (86400, 7)])
def test_a_pause_is_found_in_a_long_run(seconds: int, length: int) -> None:
    begin = seconds // 2 + 1
    (rate, *_) = disk_changes(long_run(seconds, begin, begin + length), None, ())
    (pause,) = rate.levels.pauses
    assert (pause.begin_ns, pause.end_ns, pause.intervals) == (begin * S, (begin + length) * S, length)
    assert pause.in_flight == (1, 1)
    assert rate.levels.steps == ()
    assert rate.levels.rest and rate.levels.rest.level.value == pytest.approx(505, abs=1.5)
