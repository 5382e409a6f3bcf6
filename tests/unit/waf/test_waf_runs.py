"""Write amplification on drives with every step size and page age: the true value is within the error, and
the error is no wider than necessary."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from opwatch.waf.measure import Measurement
from tests.unit.support.virtual_drive import (
    ENDURANCE,
    GIB,
    INTEL,
    MODELS,
    OCP,
    PHISON,
    Bench,
    Model,
    VirtualDrive,
    measure_drive,
)
from tests.unit.support.waf_runs import SCENARIOS, Scenario, run_scenario

# `make waf-runs` uses a hundred seeds; these run with every change.
SEEDS = range(1000, 1008)
FEW = range(1000, 1002)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_true_value_is_within_an_error_that_is_no_wider_than_necessary(
    scenario: Scenario, model: Model
) -> None:
    runs = run_scenario(model, scenario, FEW if scenario.seconds > 1000 else SEEDS)
    assert not runs.wrong_seeds
    assert not runs.excess_errors
    assert len(runs.answered_runs) == len(runs.runs) or scenario.steps < 50


@pytest.mark.parametrize("refused", [0.001, 0.005, 0.019])
@pytest.mark.parametrize("refresh_s", [0, 1, 7])
def test_writes_that_fail_are_within_the_error(refresh_s: float, refused: float) -> None:
    """The kernel counts failed writes and the drive does not. If too few to be noticed, they must not narrow
    the error to zero."""
    runs = [
        measure_drive(model, seed, work_bytes=4 * 10**9, seconds=20, refresh_s=refresh_s, refused=refused)
        for model in (OCP, INTEL, ENDURANCE)
        for seed in range(4)
    ]
    assert [outcome for outcome in runs if not outcome.is_within_error()] == []
    assert any(outcome.measured.waf is not None for outcome in runs)


def test_too_few_bytes_for_a_step_are_refused_with_the_missing_amount() -> None:
    model = replace(PHISON, nand_quantum=1)  # so that no more than 4 GB are written
    drive = VirtualDrive(model, 7)
    bench = Bench(drive)
    bench.poll_for(3)
    begin = bench.newest_index
    drive.rate = 50e6
    bench.poll_for(5)
    drive.rate = 0
    bench.poll_drive()
    measured = Measurement(bench.trail, begin, bench.newest_index).make_result()
    assert measured.waf is None and re.search(r"\d.* more bytes", measured.reason or "")
    assert measured.stretch and (measured.stretch.amplification.needed_bytes or 0) > 50 * GIB


def test_internal_writes_of_the_drive_are_separated() -> None:
    """The drive's own writes have a rate, both idle and as part of the split."""
    inside = 0
    for seed in range(5):
        drive = VirtualDrive(OCP, seed, step_s=1)
        bench = Bench(drive, every_s=5)
        drive.rate, drive.own_rate = 20e6, 6e6
        drive.advance_time(600)
        first = drive.read_truth()
        for _ in range(60):
            drive.rate = drive.chance.choice((0.0, 5e6, 20e6, 40e6))
            bench.poll_for(60)
        drive.rate = 0
        bench.poll_for(60)
        last = drive.read_truth()
        measured = Measurement(bench.trail, 0, bench.newest_index).make_result()
        seconds = bench.trail.moments[-1].end_ns / 1e9 - bench.trail.moments[0].begin_ns / 1e9
        host = (last.nand - first.nand - 6e6 * seconds) / (last.host - first.host)
        split, idle = measured.split, measured.background
        assert split.a is not None and split.a_error is not None and split.b_bytes_per_s is not None
        assert split.b_error is not None and split.a_error < 0.2 * split.a
        assert idle.bytes_per_s is not None and idle.error is not None
        assert abs(idle.bytes_per_s - 6e6) <= idle.error < 2e6
        inside += abs(split.a - host) <= split.a_error and abs(split.b_bytes_per_s - 6e6) <= split.b_error
    assert inside >= 4
