"""Recorded writes repeated in a model: WAF against the exact models, and with trims and static data."""

from __future__ import annotations

import random
from array import array
from collections.abc import Iterator

import pytest

from opwatch.ftl import models
from opwatch.ftl.drive import GcFrontier, Policy, Workload, Zone
from opwatch.ftl.profiles import Profile
from opwatch.ftl.recorded import DiskRequests
from opwatch.steady.strict import StrictState
from opwatch.sweep.levels import LevelScale, OpLevel
from opwatch.sweep.model_load import HistoryLoad
from opwatch.sweep.outcome import LevelOutcome
from opwatch.sweep.plan import SweepPace
from opwatch.sweep.replay import prepare_requests
from opwatch.sweep.virtual import ModelDrive, find_used_bytes, make_drive, run_level
from opwatch.trim.history.changes import ChangeKind
from opwatch.trim.history.requests import RecordedRequests
from opwatch.trim.history.saved import HistoryDrive

UNITS = 1 << 15
UNIT, SECTORS = 4096, 8
PAGES = 64
DISK = UNITS * UNIT
WHOLE = OpLevel("0 %", DISK, LevelScale(DISK))


def make_requests(
    requests: Iterator[tuple[int, int]], free: tuple[tuple[int, int], ...] = ()
) -> DiskRequests:
    """Return requests of one unit each, (unit, whether it is a trim)."""
    rows = list(requests)
    sectors = array("Q", [unit * SECTORS for unit, _ in rows])
    return DiskRequests(
        UNITS * UNIT,
        sectors,
        array("I", [SECTORS] * len(rows)),
        bytes(trims for _, trims in rows),
        free,
    )


def draw_uniform(count: int, units: int = UNITS) -> Iterator[tuple[int, int]]:
    draw = random.Random(11)
    return ((draw.randrange(units), 0) for _ in range(count))


def make_model_drive(spare: float, policy: Policy = Policy.GREEDY, units: int = UNITS) -> ModelDrive:
    """Return a model of the disk with this (T-U)/U."""
    settings = {
        "user_bytes": units * UNIT,
        "physical_bytes": round(units * (1 + spare)) * UNIT,
        "superblock_bytes": PAGES * UNIT,
        "policy": policy,
        "gc_frontier": GcFrontier.COMMON,
    }
    return ModelDrive(Profile("test", "", "", settings, {}), units / UNITS, units // PAGES, PAGES, PAGES)


def replay(model: ModelDrive, requests: DiskRequests, rounds: int = 600) -> LevelOutcome:
    pace = SweepPace(most_rounds=rounds)
    return run_level(model, WHOLE, HistoryLoad(requests, "test"), pace, lambda level, count: True)


def measure_live_ratio(model: ModelDrive, requests: DiskRequests) -> float:
    """Return the share of the model that holds data after one repetition."""
    used, drive = find_used_bytes(model, WHOLE), make_drive(model.profile)
    drive.run_load(Workload((Zone(0, used.model),), sequential=True), used.model // UNIT)
    started = HistoryLoad(requests, "test").start(drive, used)
    for begin, length in started.free:
        drive.core.trim(begin, length)
    started.host.run(started.step_bytes)
    return drive.read_counters()["valid_bytes"] / used.model


@pytest.mark.parametrize("spare", [0.12, 0.28])
def test_uniform_writes_give_the_waf_of_the_exact_model(spare: float) -> None:
    # Repeated every twelve drive writes: no unit is left out.
    requests = make_requests(draw_uniform(12 * UNITS))
    model = make_model_drive(spare, Policy.FIFO)
    outcome = replay(model, requests)
    assert outcome.strict.state is StrictState.PASS
    assert measure_live_ratio(model, requests) == pytest.approx(1, abs=0.01)
    figures = outcome.figures
    assert figures.waf == pytest.approx(models.predict_fifo(1 + spare), rel=0.02)
    assert figures.waf and figures.waf_error and 0 < figures.waf_error < 0.05 * figures.waf


def test_fewer_units_give_the_same_waf() -> None:
    requests = make_requests(draw_uniform(UNITS))
    small, large = (
        replay(make_model_drive(0.28, Policy.FIFO, units), requests).figures.waf
        for units in (UNITS // 8, UNITS)
    )
    assert small == pytest.approx(large, rel=0.015)


def test_static_data_leave_the_spare_area_to_what_is_written() -> None:
    requests = make_requests(draw_uniform(2 * UNITS, UNITS // 2))
    outcome = replay(make_model_drive(0.28), requests)
    truth = models.predict_greedy_with_static(1.28, PAGES, 0.5)
    assert outcome.strict.state is StrictState.PASS
    assert outcome.figures.waf == pytest.approx(truth, rel=0.03)


def test_free_space_and_trims_are_spare_area() -> None:
    half = UNITS // 2
    model = make_model_drive(0.1)
    writes = list(draw_uniform(4 * UNITS, half))
    full = replay(model, make_requests(iter(writes))).figures.waf
    freed = make_requests(iter(writes), ((half * UNIT, DISK),))
    trimmed = replay(model, freed).figures.waf
    assert trimmed and full and trimmed < full
    # T / U: 1.1 / 0.5.
    assert measure_live_ratio(model, freed) == pytest.approx(0.5, abs=0.01)
    assert trimmed == pytest.approx(models.predict_greedy(2.2, PAGES), rel=0.02)
    # A recorded trim of the same half does the same.
    by_trim = make_requests(iter([*((unit, 1) for unit in range(half, UNITS)), *writes]))
    assert replay(model, by_trim).figures.waf == pytest.approx(trimmed, rel=0.01)


def test_an_unsettled_replay_says_why() -> None:
    outcome = replay(make_model_drive(0.07), make_requests(draw_uniform(UNITS)), rounds=1)
    assert outcome.strict.state is StrictState.NOT_REACHED and outcome.strict.reason
    assert outcome.figures.waf is None


def test_history_requests_are_prepared_by_kind() -> None:
    kinds = bytes((ChangeKind.WRITE, ChangeKind.DISCARD, ChangeKind.ZEROES, ChangeKind.ERASE))
    drive = HistoryDrive("sda", "S1", None, 1 << 12, 8, 0)
    recorded = RecordedRequests(drive, array("Q", [0, 8, 16, 24]), array("I", [8] * 4), kinds, 1.0, 0)
    prepared = prepare_requests(recorded, [(0, 4096)])
    assert prepared.trims == bytes((0, 1, 0, 1))
    assert (prepared.disk_bytes, prepared.free) == (2 << 20, ((0, 4096),))
