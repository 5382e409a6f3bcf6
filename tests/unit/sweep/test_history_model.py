"""The model of a recorded history against exact models, and the flash that it is fitted with."""

from __future__ import annotations

import random
from array import array

import pytest

from opwatch.errors import NotEnoughData
from opwatch.ftl.drive import Drive, compute_amplification
from opwatch.ftl.models import predict_fifo, predict_fifo_mixture, predict_greedy
from opwatch.sweep.history.model import TRIM, UNIT_BYTES, HistoryModel, UnitRange, join_units, take_units
from opwatch.sweep.history.prediction import WafBand, fit_flash, predict_changes
from opwatch.sweep.history.replaying import ASSUMED_COLLECTORS, ReplayedChange, age_drive, replay_change
from opwatch.sweep.ranges import ValueRange

UNITS = 1 << 14
GREEDY, FIFO = (
    next(one for one in ASSUMED_COLLECTORS if one.name.startswith(name)) for name in ("greedy", "FIFO")
)


def make_model(active: int = UNITS, turns: float = 12.0, free: tuple[UnitRange, ...] = ()) -> HistoryModel:
    draw, changes = random.Random(3), array("I")
    for _ in range(int(turns * active)):
        changes.extend((draw.randrange(active), 1))
    return HistoryModel(UNITS, changes, free)


@pytest.mark.parametrize("spare", [0.15, 0.3])
def test_uniform_history_has_the_waf_of_the_exact_models(spare: float) -> None:
    model, flash = make_model(), round(UNITS * (1 + spare))
    assert age_drive(model, FIFO, flash).waf == pytest.approx(predict_fifo(1 + spare), rel=0.03)
    assert age_drive(model, GREEDY, flash).waf == pytest.approx(predict_greedy(1 + spare, 64), rel=0.03)


def test_units_given_up_and_trimmed_are_spare_area() -> None:
    half, flash = UNITS // 2, round(1.2 * UNITS)
    model = make_model(half, free=(UnitRange(3 * UNITS // 4, UNITS),))
    static = predict_fifo_mixture(1.2, ((0.5, 1.0), (0.5, 0.0)))
    aged = age_drive(model, FIFO, flash)
    assert aged.waf == pytest.approx(static, rel=0.04)
    trimmed = predict_fifo_mixture(1.2 / 0.75, ((2 / 3, 1.0), (1 / 3, 0.0)))
    for change in (ReplayedChange(trims_free=True), ReplayedChange(model.free)):
        assert replay_change(model, aged, change) == pytest.approx(trimmed, rel=0.04)


def write_log_and_random(turns: float, seed: int) -> array[int]:
    """Return writes of a log in order in a circle, and random ones beside it, on 80 % of the disk."""
    draw, changes = random.Random(seed), array("I")
    edge, last = 5 * UNITS // 8, 4 * UNITS // 5
    for place in range(0, int(turns * edge), 8):
        changes.extend((place % edge, 8))
        for _ in range(5):
            changes.extend((draw.randrange(edge, last), 1))
    return changes


def write_units(drive: Drive, changes: array[int]) -> float:
    begin = drive.read_counters()
    for first, count in zip(changes[::2], changes[1::2], strict=True):
        drive.core.write(first * UNIT_BYTES, count * UNIT_BYTES)
    return compute_amplification(begin, drive.read_counters()) or 1.0


def test_change_starts_from_the_present_state_when_the_collector_has_two() -> None:
    """FIFO moves a log that lives longer than a turnover, and its moves shorten the turnover."""
    free, flash = UnitRange(4 * UNITS // 5, UNITS), round(1.3 * UNITS)
    drive = Drive(
        {
            "user_bytes": UNITS * UNIT_BYTES,
            "physical_bytes": flash * UNIT_BYTES,
            "superblock_bytes": FIFO.superblock_pages * UNIT_BYTES,
        }
        | dict(FIFO.settings)
    )
    drive.fill_drive()
    before = write_units(drive, write_log_and_random(10.0, 1))
    drive.core.trim(free.first * UNIT_BYTES, free.size * UNIT_BYTES)
    write_units(drive, write_log_and_random(10.0, 2))
    after = write_units(drive, write_log_and_random(10.0, 3))

    changes = write_log_and_random(1.0, 4)
    model = HistoryModel(UNITS, changes, (free,))
    aged = age_drive(model, FIFO, flash)
    assert abs(aged.waf - before) <= aged.pass_error * (aged.waf - 1)
    assert replay_change(model, aged, ReplayedChange(model.free)) == pytest.approx(after, rel=0.03)
    never_held = HistoryModel(UNITS, changes, (free,), (free,))
    assert age_drive(never_held, FIFO, flash).waf < 0.8 * after


def write_pairs(active: int, turns: float, seed: int) -> array[int]:
    """Return random writes of two units, which write this part of the disk that many times."""
    draw, changes = random.Random(seed), array("I")
    for _ in range(int(turns * active / 2)):
        changes.extend((2 * draw.randrange(active // 2), 2))
    return changes


def test_band_of_a_history_of_two_turnovers_has_the_waf_of_many() -> None:
    """FIFO moves the static data at once, so that the WAF of a short time depends on where it starts."""
    active, free = round(0.43 * UNITS), UnitRange(3 * UNITS // 4, UNITS)
    drive = Drive(
        {
            "user_bytes": UNITS * UNIT_BYTES,
            "physical_bytes": round(1.25 * UNITS) * UNIT_BYTES,
            "superblock_bytes": FIFO.superblock_pages * UNIT_BYTES,
        }
        | dict(FIFO.settings)
    )
    drive.fill_drive()
    write_units(drive, write_pairs(active, 20.0, 1))
    changed = Drive.load_saved(drive.save())
    changed.core.trim(free.first * UNIT_BYTES, free.size * UNIT_BYTES)
    write_units(changed, write_pairs(active, 15.0, 2))
    after = write_units(changed, write_pairs(active, 30.0, 3))
    wafs = list[float]()
    for seed in range(5):
        changes = write_pairs(active, 1.5, 10 + seed)
        wafs.append(write_units(drive, changes))
        model = HistoryModel(UNITS, changes, (free,))
        predicted = predict_changes(model, [ReplayedChange((free,))], ValueRange(wafs[-1], 0.0), None)
        assert predicted.bands[0].low <= after <= predicted.bands[0].high
    assert max(wafs) > 1.1 * min(wafs)


def test_long_history_of_even_writes_has_no_error_by_its_cut() -> None:
    assert age_drive(make_model(turns=6.0), GREEDY, round(1.2 * UNITS)).pass_error < 0.01


def test_fit_finds_the_flash_that_explains_the_waf() -> None:
    model = make_model()
    fitted = fit_flash(model, FIFO, predict_fifo(1.25))
    assert fitted and fitted.flash_units / UNITS == pytest.approx(1.25, rel=0.01)
    assert fitted.aged.waf == pytest.approx(predict_fifo(1.25), rel=0.02)
    assert fit_flash(model, FIFO, 1.01) is None and fit_flash(model, FIFO, 60.0) is None


def test_band_contains_every_collector_and_no_waf_below_1() -> None:
    model = make_model(UNITS // 2, 6.0, (UnitRange(UNITS // 2, UNITS),))
    waf = ValueRange(2.5, 0.0)
    predicted = predict_changes(model, [ReplayedChange(trims_free=True)], waf, None)
    [band] = predicted.bands
    for one in predicted.fitted:
        after = replay_change(model, one.aged, ReplayedChange(trims_free=True))
        assert band.low <= after <= band.high
    assert 1 <= band.low < band.high < 2.5 and predicted.present == WafBand(2.5, 2.5)
    wider = predict_changes(model, [ReplayedChange(trims_free=True)], ValueRange(2.5, 0.25), None).bands[0]
    assert wider.low <= band.low < band.high < wider.high


def test_collector_at_the_edge_of_its_range_is_kept_beside_others() -> None:
    free = (UnitRange(UNITS // 2, UNITS),)
    model, change = make_model(UNITS // 2, 6.0, free), ReplayedChange(tuple(take_units(free, UNITS // 8)))
    edge = age_drive(model, FIFO, round(1.6 * UNITS))
    excess = (edge.waf - 1) / 1.2
    predicted = predict_changes(model, [change], ValueRange(1 + excess, 0.0), None)
    [fifo] = [one for one in predicted.fitted if one.collector is FIFO]
    assert not fifo.is_within and fifo.flash_units == round(1.6 * UNITS) and fifo.aged.waf == edge.waf
    # Its WAF above 1 falls by the same factor for the drive, whose own is lower.
    after = replay_change(model, edge, change)
    assert predicted.bands[0].high > 1 + (after - 1) / 1.2
    assert predicted.bands[0].high == pytest.approx(1 + (after - 1) / 1.2, rel=0.08)
    assert fit_flash(model, FIFO, 1 + (edge.waf - 1) / 1.6) is None


def test_waf_is_refused_when_it_is_in_the_range_of_no_collector() -> None:
    model = make_model(UNITS, 6.0)
    highest = age_drive(model, FIFO, round(1.03 * UNITS)).waf
    assert fit_flash(model, FIFO, 1.2 * highest)
    with pytest.raises(NotEnoughData, match="no collector"):
        predict_changes(model, [], ValueRange(1.2 * highest, 0.0), None)


def test_fresh_ratio_is_the_share_of_late_writes_to_new_places() -> None:
    fresh = HistoryModel(UNITS, array("I", [word for unit in range(4000) for word in (unit, 1)]))
    assert fresh.compute_fresh_ratio() == 1.0
    with pytest.raises(NotEnoughData, match="100 % of the writes"):
        fresh.require_enough()
    # A place is new with a probability of e^-3 at three quarters, and of e^-4 at the end.
    assert make_model(turns=4).compute_fresh_ratio() == pytest.approx(0.031, abs=0.005)
    with pytest.raises(NotEnoughData, match="too short"):
        HistoryModel(UNITS, array("I", (0, 1))).require_enough()


def test_spare_space_is_free_and_never_written() -> None:
    changes = array("I", (10, 5, 20, 4 | TRIM))
    model = HistoryModel(64, changes, (UnitRange(8, 12), UnitRange(18, 30)))
    assert model.list_spare() == [UnitRange(8, 10), UnitRange(18, 30)]
    trimmed = sum(one.size for one in model.iter_changes() if one.is_trim)
    assert (model.written_units, trimmed) == (5, 4)
    assert take_units(model.list_spare(), 5) == [UnitRange(8, 10), UnitRange(18, 21)]
    assert join_units([1, 2, 5]) == [UnitRange(1, 3), UnitRange(5, 6)]
