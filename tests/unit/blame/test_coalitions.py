"""Replayed coalitions against separate runs, and against another program's study of three tenants."""

from __future__ import annotations

import random
from array import array
from collections.abc import Iterator
from itertools import islice

import pytest

from opwatch.blame.answer import compute_shares, compute_unbroken_shares
from opwatch.blame.coalitions import (
    Absence,
    CoalitionBytes,
    count_written_units,
    list_coalitions,
    replay_coalition,
    select_coalition,
)
from opwatch.blame.shapley import compute_shapley
from opwatch.ftl.drive import Drive, Policy
from opwatch.sweep.history.model import TRIM, UNIT_BYTES, HistoryModel, UnitRange
from opwatch.sweep.history.replaying import AssumedCollector

UNITS, FLASH, PAGES = 1 << 13, round(1.15 * (1 << 13)), 64
GREEDY = AssumedCollector("greedy", {"policy": Policy.GREEDY}, PAGES)
FIFO = AssumedCollector("FIFO", {"policy": Policy.FIFO}, PAGES)


def draw_writes(rates: tuple[int, ...], seed: int) -> Iterator[tuple[int, int]]:
    """Yield (owner, unit) without end. Each owner has a part of the disk of its own: the first writes evenly,
    the second in order, the third mostly to a tenth of its part, and the fourth evenly."""
    rng, position, part = random.Random(seed), 0, UNITS // len(rates)
    draw, turns = rng.random, [owner for owner, rate in enumerate(rates) for _ in range(rate)]
    while True:
        owner = turns[int(draw() * len(turns))]
        if owner == 1:
            unit, position = position, (position + 1) % part
        elif owner == 2 and draw() < 0.9:
            unit = int(draw() * (part // 10))
        else:
            unit = int(draw() * part)
        yield owner + 1, owner * part + unit


def make_history(rates: tuple[int, ...], writes: int, seed: int = 1) -> HistoryModel:
    changes, owners = array("I"), bytearray()
    for owner, unit in islice(draw_writes(rates, seed), writes):
        changes.extend((unit, 1))
        owners.append(owner)
    return HistoryModel(UNITS, changes, owners=bytes(owners))


def replay_all(
    model: HistoryModel, owners: int, collector: AssumedCollector, absence: Absence
) -> list[float]:
    """Return the WAF of each coalition times its share of the writes."""
    whole = model.written_units * UNIT_BYTES
    return [
        replay_coalition(one, collector, FLASH, owners).nand / whole
        for one in list_coalitions(model, owners, absence)
    ]


def run_separately(rates: tuple[int, ...], collector: AssumedCollector, mask: int) -> float:
    """Return the same for writes drawn anew, on a drive that holds everybody's data."""
    drive = Drive(
        {
            "user_bytes": UNITS * UNIT_BYTES,
            "physical_bytes": FLASH * UNIT_BYTES,
            "superblock_bytes": PAGES * UNIT_BYTES,
            **collector.settings,
        }
    )
    drive.fill_drive()
    share = sum(rate for bit, rate in enumerate(rates) if mask >> bit & 1) / sum(rates)
    if not mask:
        return 0.0
    writes = (unit for owner, unit in draw_writes(rates, mask + 100) if mask >> (owner - 1) & 1)
    nand = 0
    for count in (6 * UNITS, 12 * UNITS):
        nand = drive.read_counters()["nand_write_bytes"]
        for unit in islice(writes, count):
            drive.core.write(unit * UNIT_BYTES, UNIT_BYTES)
    return (drive.read_counters()["nand_write_bytes"] - nand) / (12 * UNITS * UNIT_BYTES) * share


@pytest.mark.parametrize("collector", [GREEDY, FIFO], ids=lambda one: one.name)
@pytest.mark.parametrize("rates", [(1, 1, 1), pytest.param((1, 1, 1, 1), marks=pytest.mark.manual)], ids=str)
def test_replays_give_the_shares_of_separate_runs(
    rates: tuple[int, ...], collector: AssumedCollector
) -> None:
    model = make_history(rates, 16 * UNITS)
    replayed = replay_all(model, len(rates), collector, Absence.STAYS)
    separate = [run_separately(rates, collector, mask) for mask in range(1 << len(rates))]
    for one, other in zip(compute_shapley(replayed), compute_shapley(separate), strict=True):
        assert abs(one - other) <= 0.01 * separate[-1]


def test_fifo_has_the_shares_of_separate_runs_before_a_log_is_broken() -> None:
    """Two coalitions have a second steady state with more moves, to which the breaks lead."""
    rates = (2, 3, 1, 1)
    model, owners = make_history(rates, 16 * UNITS), len(rates)
    replayed = [
        replay_coalition(one, FIFO, FLASH, owners) for one in list_coalitions(model, owners, Absence.STAYS)
    ]
    steady = compute_shares(replayed, count_written_units(model, owners))
    values = [run_separately(rates, FIFO, mask) for mask in range(1 << owners)]
    separate = [one / values[-1] for one in compute_shapley(values)]
    assert max(abs(one - other) for one, other in zip(steady.caused, separate, strict=True)) > 0.03
    assert compute_unbroken_shares(replayed, steady).caused == pytest.approx(separate, abs=0.01)


@pytest.mark.parametrize(
    ("collector", "absence", "together", "wafs"),
    [
        (GREEDY, Absence.FREED, 3.82, (3.86, 3.45, 4.14)),
        (GREEDY, Absence.STAYS, 3.81, (4.06, 2.72, 4.65)),
        (FIFO, Absence.FREED, 4.11, (4.15, 3.75, 4.44)),
        (FIFO, Absence.STAYS, 4.12, (3.83, 2.52, 6.01)),
    ],
)
def test_three_tenants_have_the_shares_of_a_separate_program(
    collector: AssumedCollector, absence: Absence, together: float, wafs: tuple[float, ...]
) -> None:
    values = replay_all(make_history((1, 1, 1), 8 * UNITS), 3, collector, absence)
    assert values[-1] == pytest.approx(together, rel=0.05)
    # That study's superblocks are larger, and its hot data is warmer.
    assert [3 * share for share in compute_shapley(values)] == pytest.approx(wafs, rel=0.25)


def test_programmed_bytes_of_all_owners_add_up_to_the_nand_bytes() -> None:
    model = make_history((1, 4, 1), 4 * UNITS)
    done = replay_coalition(list_coalitions(model, 3, Absence.STAYS)[-1], GREEDY, FLASH, 3)
    assert sum(done.programmed) == pytest.approx(done.nand, rel=1e-9)
    written = count_written_units(model, 3)
    assert all(
        nand >= 0.99 * units * UNIT_BYTES for nand, units in zip(done.programmed, written, strict=True)
    )
    # The owner that writes in order moves nothing of its own accord, and the slow ones are moved for.
    assert done.programmed[2] / written[2] < done.programmed[1] / written[1]


def test_absent_owner_leaves_its_data_or_frees_what_no_other_owner_wrote() -> None:
    changes = array("I", (0, 4, 2, 4, 8, 2 | TRIM, 10, 2))
    model = HistoryModel(64, changes, owners=bytes((1, 2, 2, 2)))
    stays = select_coalition(model, (False, True, False), Absence.STAYS)
    freed = select_coalition(model, (False, True, False), Absence.FREED)
    assert list(stays.model.iter_changes()) == [(0, 4, False)]
    assert stays.freed == ()
    assert freed.freed == (UnitRange(4, 6), UnitRange(10, 12))


def test_nobody_programs_nothing() -> None:
    model = make_history((1, 1), 300)
    nobody = list_coalitions(model, 2, Absence.STAYS)[0]
    assert replay_coalition(nobody, GREEDY, FLASH, 2) == CoalitionBytes(0.0, (0.0, 0.0, 0.0), 0.0)
