"""CPU time of the machine: the kernel's text, and the difference of two readings."""

from __future__ import annotations

import errno
import os
import time
from contextlib import closing
from pathlib import Path

import pytest

from opwatch.cpu import CpuClock, CpuTimes, CpuUse, compute_cpu_use, parse_cpu_times
from opwatch.errors import BadInput

FIXTURES = Path(__file__).parents[2] / "fixtures"
BAD = sorted((FIXTURES / "bad" / "cpu").iterdir())


def test_the_sums_of_all_cpus_are_read() -> None:
    text = (FIXTURES / "good" / "cpu" / "stat").read_text()
    assert parse_cpu_times(text) == CpuTimes(2, 1_086_743 + 93_112, 401_766, 1_204 + 36_731, 5_509)


@pytest.mark.parametrize("path", BAD, ids=lambda path: str(path.name))
def test_invalid_cpu_times_are_refused(path: Path) -> None:
    with pytest.raises(BadInput, match=r"^/proc/stat "):
        parse_cpu_times(path.read_text())


def test_cpu_use_is_the_difference_of_two_readings() -> None:
    then, now = CpuTimes(2, 1000, 500, 20, 3), CpuTimes(4, 1150, 550, 25, 4)
    use = compute_cpu_use(then, now, 2 * 10**9)
    assert use == CpuUse(2.0, 4, 1.5, 0.5, 0.05, 0.01)
    assert use.busy_cores == pytest.approx(1.025)
    assert use.error_s == pytest.approx(0.09)
    both = use.plus(CpuUse(1.0, 4, 0.5, 0.25, 0.0, 0.0))
    assert (both.seconds, both.user_s, both.system_s, both.irq_s) == (3.0, 2.0, 0.75, 0.05)


def test_decreased_or_zero_time_is_unknown() -> None:
    then, back = CpuTimes(2, 1000, 500, 20, 3), CpuTimes(2, 1100, 550, 25, 2)
    assert compute_cpu_use(then, back, 10**9) is None
    assert compute_cpu_use(then, then, 0) is None
    assert compute_cpu_use(None, then, 10**9) is None


def test_cpu_time_of_this_machine_grows_under_load() -> None:
    with closing(CpuClock()) as clock:
        then, begun = clock.read_times(), time.monotonic_ns()
        until = time.process_time() + 0.4
        while time.process_time() < until:
            pass
        now = clock.read_times()
        use = compute_cpu_use(then, now, time.monotonic_ns() - begun)
    assert clock.problem is None
    assert use is not None
    assert use.busy_s >= 0.4 - use.error_s
    assert use.cpus == os.cpu_count()
    assert clock.read_times() is None


def test_missing_cpu_times_have_a_reason(tmp_path: Path) -> None:
    with closing(CpuClock(tmp_path / "stat")) as clock:
        assert clock.read_times() is None
        assert clock.problem == f"{tmp_path}/stat: {os.strerror(errno.ENOENT)}"
    (tmp_path / "stat").write_text("cpu  1 2 3\n")
    with closing(CpuClock(tmp_path / "stat")) as clock:
        assert clock.read_times() is None
        assert str(clock.problem).startswith("/proc/stat ")
