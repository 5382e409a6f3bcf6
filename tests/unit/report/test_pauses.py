"""A pause with requests in flight is a stall; a pause without is idle time of the load."""

from __future__ import annotations

import random

import pytest

from opwatch.report.bins import OpBin, RateRange, TimeBin
from opwatch.report.changes import RATE, find_disk_changes
from opwatch.report.levels import Levels, Pause
from opwatch.report.run_picture import DiskPicture

S = 10**9


def find_only_pause(flying: int, *, others: bool = False) -> Pause:
    """Return the pause of 10 s in a run of 100 s, with this many requests in flight."""
    disk = DiskPicture("sda", "sda")
    for at in range(100):
        is_pause = 50 <= at < 60
        ops = {} if is_pause else {"write": OpBin(500 + at % 3, 500 * 4096, 0.5)}
        if others:
            ops["read"] = OpBin(70, 70 * 4096, 0.1)
        in_flight = RateRange(flying, flying) if is_pause else RateRange(1, 1)
        disk.add_interval(TimeBin(at * S, (at + 1) * S, 1.0, 1, ops, in_flight=in_flight))
    changes = find_disk_changes(disk, None, ())
    (pause,) = next(one for one in changes if (one.figure, one.op) == (RATE, "write")).levels.pauses
    return pause


@pytest.fixture(autouse=True)
def reads_and_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Operations come from the summaries, which do not exist here."""
    monkeypatch.setattr(DiskPicture, "ops", ["read", "write"])


@pytest.mark.parametrize("flying", [0, 3])
def test_pause_reports_the_requests_in_flight(flying: int) -> None:
    pause = find_only_pause(flying)
    assert (pause.begin_ns, pause.end_ns, pause.in_flight) == (50 * S, 60 * S, (flying, flying))


def test_in_flight_is_unknown_during_other_operations() -> None:
    assert find_only_pause(3, others=True).in_flight is None


def rate_levels(counts: list[int]) -> Levels:
    """Return the levels of a disk with this many writes in each second."""
    disk = DiskPicture("sda", "sda")
    for at, count in enumerate(counts):
        ops = {"write": OpBin(count, count * 4096, 0.5)} if count else {}
        disk.add_interval(TimeBin(at * S, (at + 1) * S, 1.0, 1, ops, in_flight=RateRange(1, 1)))
    return next(one for one in find_disk_changes(disk, None, ()) if one.figure == RATE).levels


def noisy(levels: list[tuple[int, int]], spread: float, seed: int = 1) -> list[int]:
    """Return counts for the given seconds at each level."""
    chance = random.Random(seed)
    return [
        max(round(level * (1 + spread * chance.gauss(0, 1))), 1) if level else 0
        for seconds, level in levels
        for _ in range(seconds)
    ]


@pytest.mark.parametrize(("pause", "after"), [(2, 300), (5, 300), (10, 300), (10, 600), (15, 300)])
def test_step_after_a_pause_is_at_the_new_level(pause: int, after: int) -> None:
    """40 seeds each, with a standard deviation of 30 %. The tolerance covers that noise."""
    right = pauses = 0
    for seed in range(40):
        levels = rate_levels(noisy([(60, 1000), (pause, 0), (60, after)], 0.3, seed))
        right += any(abs(step.at_ns - (60 + pause) * S) <= 2 * S for step in levels.steps)
        pauses += [(one.begin_ns // S, one.end_ns // S) for one in levels.pauses] == [(60, 60 + pause)]
    assert right >= (36 if after == 300 else 28)
    assert pauses >= 36 or pause == 2


def test_stall_is_a_pause_instead_of_a_steady_level() -> None:
    levels = rate_levels(noisy([(600, 500), (200, 0)], 0.02))
    (pause,) = levels.pauses
    assert (pause.begin_ns, pause.end_ns, pause.is_last) == (600 * S, 800 * S, True)
    assert levels.rest and levels.rest.level.end_ns == 600 * S
    (pause,) = rate_levels(noisy([(60, 500), (8, 0), (60, 500)], 0.02)).pauses
    assert (pause.begin_ns, pause.end_ns, pause.is_last) == (60 * S, 68 * S, False)


def make_long_picture(seconds: int, begin: int, end: int) -> DiskPicture:
    """A disk with 500 writes per second, and none from begin to end."""
    disk = DiskPicture("sda", "sda")
    for at in range(seconds):
        ops = {} if begin <= at < end else {"write": OpBin(500 + at * 7 % 11, 500 * 4096, 0.5)}
        disk.add_interval(TimeBin(at * S, (at + 1) * S, 1.0, 1, ops, in_flight=RateRange(1, 1)))
    return disk


@pytest.mark.parametrize(("seconds", "length"), [(600, 5), (1800, 10), (10800, 60), (10800, 20), (86400, 7)])
def test_a_pause_is_found_in_a_long_run(seconds: int, length: int) -> None:
    begin = seconds // 2 + 1
    (rate, *_) = find_disk_changes(make_long_picture(seconds, begin, begin + length), None, ())
    (pause,) = rate.levels.pauses
    assert (pause.begin_ns, pause.end_ns, pause.intervals) == (begin * S, (begin + length) * S, length)
    assert pause.in_flight == (1, 1)
    assert rate.levels.steps == ()
    assert rate.levels.rest and rate.levels.rest.level.value == pytest.approx(505, abs=1.5)


@pytest.mark.parametrize("value", [1 << 63, 1 << 90])
def test_impossible_values_are_limited(value: int) -> None:
    """Only a changed recording has them."""
    disk = DiskPicture("sda", "sda")
    for at in range(40):
        ops = {"write": OpBin(value if at != 20 else 0, 4096, 0.5), "read": OpBin(value, 4096, 0.5)}
        begin_ns = at * S if at < 35 else value + at
        disk.add_interval(
            TimeBin(begin_ns, begin_ns + S, 1.0, 1, ops, in_flight=RateRange(value, float(value)))
        )
    assert {one.op for one in find_disk_changes(disk, None, ())} == {"read", "write"}
