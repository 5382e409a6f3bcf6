"""Between two steps a signal ends a sweep, and so does a vanished drive."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from opwatch.errors import RefusedError
from opwatch.samples.end import End
from opwatch.tools.acting.sweep.bench import SweepBench, SweepClock, SweepStopped, require_alone


class FakeClock:
    """A fake time: every wait takes its full length and ends as configured."""

    def __init__(self, ends: End) -> None:
        self.time, self.ends, self.waits = 100.0, ends, 0

    def now(self) -> float:
        return self.time

    def wait_until(self, until: float) -> End:
        self.waits += 1
        self.time = max(self.time, until)
        return self.ends

    def reap(self) -> None:
        raise AssertionError("nothing was started")

    def watch_process(self, process: subprocess.Popen[bytes]) -> None:
        raise AssertionError("nothing was started")


def make_bench(clock: SweepClock, holds: Callable[[], bool] = lambda: True) -> SweepBench:
    """A bench with a time and a presence check only."""
    rest = SimpleNamespace(name="sda", resume_command="opwatch sweep resume 20260101-000000-abcd")
    rest.disk = rest
    fields = dict.fromkeys(SweepBench.__dataclass_fields__, rest) | {
        "time": clock,
        "presence": SimpleNamespace(is_same_device=holds),
    }
    return SweepBench(**fields)  # type: ignore[arg-type]  # what is not asked is nothing


@pytest.mark.parametrize("seconds", [0, 0.5, 60])
def test_a_signal_ends_any_pause(seconds: float) -> None:
    with pytest.raises(SweepStopped, match="resume 20260101-000000-abcd"):
        make_bench(FakeClock(End.SIGNAL)).wait_unless_stopped(seconds)


@pytest.mark.parametrize("seconds", [0, 0.5, 60])
def test_vanished_drive_ends_any_pause(seconds: float) -> None:
    with pytest.raises(RefusedError, match="disappeared"):
        make_bench(FakeClock(End.TICK), lambda: False).wait_unless_stopped(seconds)


def test_pause_takes_its_full_length() -> None:
    clock = FakeClock(End.TICK)
    make_bench(clock).wait_unless_stopped(60)
    assert clock.now() == 160
    make_bench(clock).wait_unless_stopped(0)
    assert clock.now() == 160


@pytest.mark.parametrize("counted", [None, 10**9, 10**9 + 4096, 10**9 - 512])
def test_writes_of_the_sweep_itself_are_allowed(counted: int | None) -> None:
    require_alone(counted, 10**9, "sda")


def test_writes_by_another_process_end_the_sweep() -> None:
    with pytest.raises(RefusedError, match=r"sda: .*\b20000000 bytes"):
        require_alone(10**9 + 20_000_000, 10**9, "sda")
