"""Waits for I/O that no request of a disk had: found from the kernel's pressure totals, or unknown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest

from opwatch.counters.catalogue.families import load_standard_catalogue
from opwatch.samples.entries import PressureRead
from opwatch.samples.pressure import PressureTotals
from opwatch.why.answer import answer_why
from opwatch.why.before_block import WaitBefore, explain_no_pressure, find_waits_before
from opwatch.why.witnessed import WitnessedRun
from tests.unit.why.witnessed_runs import MS, S, make_disk, make_seconds

SECONDS, EVERY = 60, 5


@dataclass
class Pressure:
    """What is added in the time between two readings, and what the second one finds."""

    waited_s: float = 0.1
    requests_s: float = 0.1
    memory_s: float = 0.0
    in_flight: int = 0
    dirty: int = 10


def make_run(parts: Sequence[Pressure], throttle_ns: float = 0.0) -> WitnessedRun:
    """Return a run of a disk that is hardly used, with these readings."""
    seconds = make_seconds(SECONDS, 1)
    for one in seconds:
        one.reads, one.writes, one.depth, one.throttle_ns = 10, 10, 0.01, throttle_ns
    disk = make_disk(seconds)
    io_us = memory_us = ms = 0.0
    totals = PressureTotals(0, 0, 0, 0, 0, 0, 10, 100, 200)
    run = WitnessedRun(disks={disk.label: disk}, pressure=[PressureRead(0, totals)])
    for number, part in enumerate(parts, 1):
        io_us, memory_us = io_us + part.waited_s * 1e6, memory_us + part.memory_s * 1e6
        ms += part.requests_s * 1e3
        now = replace(
            totals,
            io_some_us=round(io_us),
            memory_some_us=round(memory_us),
            requests_ms=round(ms),
            requests_in_flight=part.in_flight,
            dirty_pages=part.dirty,
        )
        run.pressure.append(PressureRead(number * EVERY * S, now))
    return run


def fill(*parts: Pressure) -> list[Pressure]:
    """Return these parts, and usual ones up to the end."""
    return [*parts, *(Pressure() for _ in range(SECONDS // EVERY - len(parts)))]


def find_only(run: WitnessedRun) -> WaitBefore:
    [found] = find_waits_before(run)
    return found


def test_waits_of_tasks_without_requests_are_before_the_block_layer() -> None:
    found = find_only(make_run(fill(Pressure(4.5, 0.5), Pressure(4.0, 0.0), Pressure())))
    assert found.name == "before the block layer"
    assert (found.begin_ns, found.end_ns) == (0, 10 * S)
    assert found.seconds == pytest.approx(8.0, abs=0.2)
    assert found.waited_s == pytest.approx(8.5)


@pytest.mark.parametrize(
    "part",
    [
        Pressure(4.5, 4.4),
        Pressure(4.5, 40.0),
        Pressure(4.5, 0.0, in_flight=1),
        Pressure(0.9, 0.0),
    ],
    ids=["in requests", "in many requests", "in a request that has not ended", "little"],
)
def test_waits_that_requests_may_explain_are_not(part: Pressure) -> None:
    assert find_waits_before(make_run(fill(part))) == ()


def test_time_in_io_max_explains_waits() -> None:
    assert find_waits_before(make_run(fill(Pressure(4.5, 0.0)), throttle_ns=50 * MS)) == ()


def test_writers_are_paused_above_half_of_the_dirty_limits() -> None:
    paused = [Pressure(4.0, 30.0, in_flight=9, dirty=151) for _ in range(3)]
    found = find_only(make_run(fill(Pressure(dirty=150), *paused)))
    assert found.name == "dirty throttling of the page cache"
    assert found.seconds == pytest.approx(12.0)
    assert find_waits_before(make_run(fill(*(replace(one, dirty=149) for one in paused)))) == ()


def test_readings_far_apart_are_not_compared() -> None:
    run = make_run(fill(Pressure(4.5, 0.0)))
    run.pressure = [run.pressure[0], replace(run.pressure[1], at_ns=100 * S)]
    assert find_waits_before(run) == ()


def test_disks_without_statistics_prove_nothing() -> None:
    run = make_run(fill(Pressure(4.5, 0.0), Pressure(4.5, 0.0)))
    run.pressure = [
        replace(one, totals=replace(one.totals, requests_ms=None, requests_in_flight=None))
        for one in run.pressure
    ]
    assert find_waits_before(run) == ()


def test_answer_has_the_waits_without_slow_requests() -> None:
    answer = answer_why(make_run(fill(Pressure(4.5, 0.0))), load_standard_catalogue)
    assert not answer.slow
    assert len(answer.before) == 1
    assert not answer.notes


def test_answer_without_pressure_says_so() -> None:
    run = make_run([])
    run.pressure = []
    answer = answer_why(run, load_standard_catalogue)
    assert answer.before == ()
    assert answer.notes == (explain_no_pressure(run),)
