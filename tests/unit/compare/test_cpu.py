"""CPU time of two runs: equal runs show no difference, and real differences are found."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from opwatch.compare.cpu import (
    BELOW_RESOLUTION,
    CPU,
    CPU_INCOMPLETE,
    CPU_IO,
    CPU_NOT_RECORDED,
    NO_COMMAND,
    WHOLE_RUN,
    estimate_command_cpu,
    estimate_cpu,
)
from opwatch.compare.differences import FAMILY_ERROR_RATE, Difference, Statement, compare_estimates
from opwatch.compare.estimates import Estimate
from opwatch.compare.sampling import CountedInterval, DiskTimeline, SampledRun
from opwatch.cpu import CpuUse

SECONDS = 60
PAIRS = 200
# Expected among 200 equal pairs.
MAX_FALSE = PAIRS * FAMILY_ERROR_RATE


def make_timeline(
    seed: int, *, times: float = 1.0, lasting: float = 0.0, seconds: int = SECONDS
) -> DiskTimeline:
    """A machine with four CPUs, about 2,000 requests per second that cost 150 us each, and other work.
    `times` scales the CPU time; `lasting` is the share of the deviation that carries over to the next second.
    """
    chance, course, level = random.Random(seed), DiskTimeline("sda"), 0.0
    for _ in range(seconds):
        level = lasting * level + chance.gauss(0, 0.05 * (1 - lasting**2) ** 0.5)
        requests = round(chance.gauss(2000, 60))
        busy = times * (requests * 150e-6 + 0.1 * (1 + level)) + chance.gauss(0, 0.015)
        user, irq = round(70 * busy) / 100, round(5 * busy) / 100
        cpu = CpuUse(1.0 + chance.gauss(0, 1e-4), 4, user, round(max(busy - user - irq, 0), 2), irq, 0.0)
        course.add_stretch(CountedInterval(cpu.seconds, {}, requests, cpu))
    return course


def compare_cpu(first: DiskTimeline, other: DiskTimeline) -> dict[str, Difference]:
    one, two = estimate_cpu(first), estimate_cpu(other)
    return {name: compare_estimates(one[name], two[name], FAMILY_ERROR_RATE / len(one)) for name in one}


@pytest.mark.parametrize("lasting", [0.0, 0.5])
def test_equal_runs_rarely_differ(lasting: float) -> None:
    said = 0
    for seed in range(PAIRS):
        both = compare_cpu(
            make_timeline(2 * seed, lasting=lasting), make_timeline(2 * seed + 1, lasting=lasting)
        )
        said += any(one.is_detected for one in both.values())
    assert said <= MAX_FALSE


def test_increase_by_a_tenth_is_found() -> None:
    higher = {CPU: 0, CPU_IO: 0}
    for seed in range(50):
        both = compare_cpu(make_timeline(2 * seed), make_timeline(2 * seed + 1, times=1.1))
        for name, one in both.items():
            higher[name] += one.statement is Statement.HIGHER
    assert min(higher.values()) >= 48


def test_figures_have_the_error_of_the_kernel_s_counts() -> None:
    of_run = make_timeline(1)
    uses = [stretch.cpu for stretch in of_run.stretches if stretch.cpu]
    busy_s, seconds = sum(use.busy_s for use in uses), sum(use.seconds for use in uses)
    cpu, cpu_io = (estimate_cpu(of_run)[name] for name in (CPU, CPU_IO))
    assert cpu.value == pytest.approx(busy_s / seconds)
    assert cpu.high - cpu.low == pytest.approx(2 * 0.09 / seconds)
    assert cpu_io.value == pytest.approx(1e9 * busy_s / sum(one.requests for one in of_run.stretches))


def test_unknown_cpu_time_has_a_reason() -> None:
    def collect_reasons(of_run: DiskTimeline) -> set[str | None]:
        every = estimate_cpu(of_run).values()
        assert not any(estimate.has_scatter for estimate in every)
        return {estimate.reason for estimate in every}

    known = make_timeline(1)
    part = make_timeline(1)
    part.stretches[7] = replace(part.stretches[7], cpu=None)
    assert collect_reasons(part) == {CPU_INCOMPLETE}
    none = DiskTimeline("sda", stretches=[replace(one, cpu=None) for one in known.stretches])
    assert collect_reasons(none) == {CPU_NOT_RECORDED}
    none.no_cpu = "fio"
    assert collect_reasons(none) == {"fio"}
    assert collect_reasons(make_timeline(1, times=0.0001, seconds=20)) == {BELOW_RESOLUTION}
    assert collect_reasons(make_timeline(1, seconds=11)) == {"only 11 intervals (12 needed)"}


def test_idle_run_has_no_cpu_time_per_request() -> None:
    idle = make_timeline(1)
    for stretch in idle.stretches:
        stretch.requests = 0
    both = estimate_cpu(idle)
    assert both[CPU].has_scatter
    assert both[CPU_IO] == Estimate(None, reason="only 0 requests (20 needed)")


def test_neighbours_that_are_added_up_stay_the_same() -> None:
    long = make_timeline(3, seconds=1100)
    assert len(long.stretches) < 512
    cpu = estimate_cpu(long)[CPU]
    assert cpu.value is not None
    assert cpu.value == pytest.approx(0.4, rel=0.02)
    assert cpu.has_scatter


def test_cpu_time_of_a_command_is_exact_and_not_compared() -> None:
    of_run = make_timeline(1)
    requests = sum(stretch.requests for stretch in of_run.stretches)
    value = 1.5e9 / requests
    said = estimate_command_cpu(SampledRun(command_s=1.5), of_run)
    assert said == Estimate(value, value, value, reason=WHOLE_RUN)
    assert estimate_command_cpu(SampledRun(), of_run) == Estimate(None, reason=NO_COMMAND)
