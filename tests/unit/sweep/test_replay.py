"""Recorded writes repeated in a model: WAF against the exact models, and with trims and static data."""

from __future__ import annotations

import random
from array import array
from collections.abc import Iterator

import pytest

from opwatch.errors import NotEnoughData
from opwatch.ftl import models
from opwatch.ftl.drive import Policy
from opwatch.ftl.recorded import DiskRequests
from opwatch.sweep.replay import ReplayDrive, prepare_requests, replay_requests
from opwatch.trim.history.changes import ChangeKind
from opwatch.trim.history.requests import RecordedRequests
from opwatch.trim.history.saved import HistoryDrive

UNITS = 1 << 15
UNIT, SECTORS = 4096, 8


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


@pytest.mark.parametrize("spare", [0.12, 0.28])
def test_uniform_writes_give_the_waf_of_the_exact_model(spare: float) -> None:
    # Repeated every twelve drive writes: no unit is left out.
    requests = make_requests(draw_uniform(12 * UNITS))
    outcome = replay_requests(requests, ReplayDrive(spare, Policy.FIFO), most_drive_writes=80)
    assert outcome.is_settled and outcome.live_ratio == pytest.approx(1, abs=0.01)
    assert outcome.waf == pytest.approx(models.predict_fifo(1 + spare), rel=0.02)
    assert 0 < outcome.error_ratio < 0.05


def test_fewer_units_give_the_same_waf() -> None:
    requests = make_requests(draw_uniform(UNITS))
    small, large = (
        replay_requests(requests, ReplayDrive(0.28, Policy.FIFO, units=units))
        for units in (UNITS // 8, UNITS)
    )
    assert small.waf == pytest.approx(large.waf, rel=0.015)


def test_static_data_leave_the_spare_area_to_what_is_written() -> None:
    requests = make_requests(draw_uniform(2 * UNITS, UNITS // 2))
    outcome = replay_requests(requests, ReplayDrive(0.28))
    truth = models.predict_greedy_with_static(1.28, 64, 0.5)
    assert outcome.is_settled and outcome.waf == pytest.approx(truth, rel=0.03)


def test_free_space_and_trims_are_spare_area() -> None:
    half = UNITS // 2
    free = ((half * UNIT, UNITS * UNIT),)
    rows = make_requests(draw_uniform(4 * UNITS, half))
    full = replay_requests(rows, ReplayDrive(0.1))
    trimmed = replay_requests(
        DiskRequests(rows.disk_bytes, rows.sectors, rows.lengths, rows.trims, free), ReplayDrive(0.1)
    )
    # T / U: 1.1 / 0.5.
    assert trimmed.live_ratio == pytest.approx(0.5, abs=0.01)
    assert trimmed.waf == pytest.approx(models.predict_greedy(2.2, 64), rel=0.02)
    assert trimmed.waf < full.waf
    # A recorded trim of the same half does the same.
    by_trim = make_requests(
        iter([*((unit, 1) for unit in range(half, UNITS)), *draw_uniform(4 * UNITS, half)])
    )
    assert replay_requests(by_trim, ReplayDrive(0.1)).waf == pytest.approx(trimmed.waf, rel=0.01)
    assert replay_requests(by_trim.without_trims(), ReplayDrive(0.1)).waf == pytest.approx(full.waf, rel=0.01)


def test_an_unsettled_replay_says_why() -> None:
    outcome = replay_requests(make_requests(draw_uniform(UNITS)), ReplayDrive(0.07), most_drive_writes=1)
    assert not outcome.is_settled and outcome.reason


def test_requests_without_a_write_are_refused() -> None:
    with pytest.raises(NotEnoughData, match="writes nothing"):
        replay_requests(make_requests(iter([(5, 1)])), ReplayDrive(0.07))


def test_history_requests_are_prepared_by_kind() -> None:
    kinds = bytes((ChangeKind.WRITE, ChangeKind.DISCARD, ChangeKind.ZEROES, ChangeKind.ERASE))
    drive = HistoryDrive("sda", "S1", None, 1 << 12, 8, 0)
    recorded = RecordedRequests(drive, array("Q", [0, 8, 16, 24]), array("I", [8] * 4), kinds, 1.0, 0)
    prepared = prepare_requests(recorded, [(0, 4096)])
    assert prepared.trims == bytes((0, 1, 0, 1))
    assert (prepared.disk_bytes, prepared.free) == (2 << 20, ((0, 4096),))
