"""When a live run ends: by the clock or by a count of intervals, however late its intervals are."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any, cast

import pytest

from opwatch.samples.end import End
from opwatch.samples.entries import RunEntry
from opwatch.tools import live_run
from opwatch.tools.live_run import LiveRun


class FakeMachine:
    """The clock, the disks and the wait of a run. Reading the disks takes `busy_s` each time."""

    def __init__(self, busy_s: float = 0.0) -> None:
        self.now, self.busy_s = 1000.0, busy_s
        self.read_at: list[float] = []
        self.next_look = 1e12
        self.with_rest: bool | None = None

    def monotonic(self) -> float:
        return self.now

    def wait(self, until: float) -> End:
        self.now = max(self.now, until)
        return End.TICK

    def finish(self, *, stop: bool) -> int:
        return 0

    def vanished(self) -> None:
        return None

    def begun(self) -> list[RunEntry]:
        return []

    def interval(self) -> list[RunEntry]:
        self.read_at.append(self.now - 1000.0)
        self.now += self.busy_s
        return []

    def summary(self, *, with_rest: bool) -> list[RunEntry]:
        self.with_rest = with_rest
        return []


def ended(
    machine: FakeMachine, monkeypatch: pytest.MonkeyPatch, for_s: float | None = None, **asked: float
) -> LiveRun:
    """A run on this machine that has come to its end."""
    monkeypatch.setattr(live_run, "time", machine)
    given: dict[str, Any] = {"count": None, "command": None} | asked
    fake = cast(Any, machine)
    run = LiveRun(fake, fake, fake, argparse.Namespace(**given), for_s)
    entries: Iterator[RunEntry] = run.entries()
    assert list(entries) == []
    return run


def test_for_ends_at_its_time_when_each_interval_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = FakeMachine(busy_s=1.34)
    run = ended(machine, monkeypatch, interval=1.0, for_s=60.0)
    assert run.end is End.COUNT
    assert 58.0 < machine.read_at[-1] <= 60.0 + machine.busy_s
    assert machine.now - 1000.0 <= 60.0 + 2 * machine.busy_s


def test_for_ends_at_its_time_when_intervals_do_not_divide_it(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = FakeMachine()
    ended(machine, monkeypatch, interval=1.0, for_s=2.5)
    assert machine.read_at == [1.0, 2.0, 2.5]


def test_for_shorter_than_an_interval_has_one_of_its_length(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = FakeMachine()
    ended(machine, monkeypatch, interval=1.0, for_s=0.25)
    assert machine.read_at == [0.25]


def test_for_has_no_rest_after_its_last_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = FakeMachine()
    ended(machine, monkeypatch, interval=1.0, for_s=3.0)
    assert (machine.read_at, machine.with_rest) == ([1.0, 2.0, 3.0], False)


def test_count_is_of_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = FakeMachine(busy_s=1.34)
    run = ended(machine, monkeypatch, interval=1.0, count=10)
    assert (run.end, len(machine.read_at)) == (End.COUNT, 10)
