"""What a change would do to the WAF of a recorded system, as a band. Pure.

The drive's flash and its collector are unknown. Each assumed collector gets the plausible flash with which it
comes nearest to the WAF that the drive reported for the time of the history; then the change is made in the
model. The band reaches over all collectors that come near enough, each with the error that a WAF has if it is
measured during one repetition of the history.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

from opwatch.errors import NotEnoughData
from opwatch.sweep.history.model import HistoryModel
from opwatch.sweep.history.replaying import (
    ASSUMED_COLLECTORS,
    LEAST_EXCESS,
    AgedDrive,
    AssumedCollector,
    ReplayedChange,
    age_drive,
    replay_change,
)
from opwatch.sweep.ranges import ValueRange

# Flash that drives have for data, relative to the visible capacity, if the user does not give it.
PLAUSIBLE_SPARE = (0.03, 0.6)
# With a known flash, a collector's own may have this many times more or less spare area.
_SPARE_FACTOR = 2.5
# Widening of a band: differences between drives and all models, a share of the predicted change (as a
# logarithm), and a share of the writes to places that the history has not seen before.
_MARGIN, _CHANGE_MARGIN, _FRESH_MARGIN = 0.04, 0.06, 0.05
# A fit ends within this distance of the WAF above 1 (as a logarithm), or after this many replays. A collector
# that stays further than the last from it, because its WAF jumps or its spare area would not be plausible, is
# left out.
_FIT_ERROR, _FIT_STEPS, _MAX_FIT_ERROR = 0.015, 9, math.log(1.5)
# Below this WAF no change can gain anything worth the name.
NOTHING_TO_GAIN = 1.02


class WafBand(NamedTuple):
    """The range within which a WAF is expected."""

    low: float
    high: float

    @property
    def middle(self) -> float:
        return (self.low + self.high) / 2

    @property
    def width_ratio(self) -> float:
        """Return the width relative to the middle."""
        return (self.high - self.low) / self.middle

    def scale(self, ratio: float) -> WafBand:
        return WafBand(self.low * ratio, self.high * ratio)

    def widen(self, ratio: float, before: float) -> WafBand:
        """Return the band widened to both sides, for a WAF of `before` without the change. A drive that does
        not compress has a WAF of at least 1."""
        low = self.low * (1 - ratio - _CHANGE_MARGIN * abs(math.log(self.low / before)))
        high = self.high * (1 + ratio + _CHANGE_MARGIN * abs(math.log(self.high / before)))
        return WafBand(max(low, 1.0), max(high, 1.0))


class FittedCollector(NamedTuple):
    """A collector, the flash with which it behaves like the drive, and its present state with this flash."""

    collector: AssumedCollector
    flash_units: int
    aged: AgedDrive
    is_within: bool = True  # between the WAFs with the least and the most plausible flash


@dataclass(frozen=True, slots=True)
class PredictedChanges:
    """The bands of the present state and of each change, in order, and the collectors behind them."""

    present: WafBand
    bands: tuple[WafBand, ...]
    fitted: tuple[FittedCollector, ...]


def predict_changes(
    model: HistoryModel, changes: Sequence[ReplayedChange], waf: ValueRange | None, flash_units: int | None
) -> PredictedChanges:
    """Return the bands.

    `waf` is what the drive reported for the history, and `flash_units` its flash; at least one is needed.
    Raise NotEnoughData if the history is too short, or if no collector explains the drive.
    """
    margin = _MARGIN + _FRESH_MARGIN * model.require_enough() + (waf.error_ratio if waf else 0.0)
    with ThreadPoolExecutor() as pool:
        if waf:
            fitted = fit_collectors(model, waf.value, flash_units, pool)
        elif flash_units:
            fitted = tuple(pool.map(lambda one: _run_known(model, one, flash_units), ASSUMED_COLLECTORS))
        else:
            raise NotEnoughData("neither the drive's WAF nor its flash is known: give --waf or --physical")
        jobs = [(one, change) for change in changes for one in fitted]
        changed = list(pool.map(lambda job: replay_change(model, job[0].aged, job[1]), jobs))
    count = len(fitted)
    now = _join_bands([WafBand(one.aged.waf, one.aged.waf) for one in fitted])
    before = waf.value if waf else now.middle
    ranges = [
        _predict_range(after, one.aged, waf) if waf else WafBand(after, after)
        for after, (one, _) in zip(changed, jobs, strict=True)
    ]
    bands = [
        _join_bands(ranges[at : at + count]).widen(margin, before) for at in range(0, len(ranges), count)
    ]
    present = WafBand(waf.low, waf.high) if waf else now.widen(margin, before)
    return PredictedChanges(present, tuple(bands), fitted)


def fit_collectors(
    model: HistoryModel,
    waf: float,
    flash_units: int | None,
    pool: ThreadPoolExecutor,
    collectors: Sequence[AssumedCollector] = ASSUMED_COLLECTORS,
) -> tuple[FittedCollector, ...]:
    """Return the collectors that have this WAF with plausible flash. Raise NotEnoughData if none has."""
    fits = list(pool.map(lambda one: fit_flash(model, one, waf), collectors))
    # Collectors at the edge of their range stand beside others, and explain nothing alone.
    is_explained = any(one.is_within for one in fits if one)
    near = [one for one in fits if one and is_explained]
    fitted = _select_plausible(near, model.units, flash_units)
    if not fitted:
        raise NotEnoughData(
            f"no collector with {100 * PLAUSIBLE_SPARE[0]:.0f} to {100 * PLAUSIBLE_SPARE[1]:.0f} % of "
            "spare area has the given WAF under these writes: check that it was measured during the history"
        )
    return fitted


def _predict_range(after: float, aged: AgedDrive, reported: ValueRange) -> WafBand:
    """Return a model's WAF after a change for a drive that reported another WAF before than the model has."""
    excess = (after - 1) * max(reported.value - 1, LEAST_EXCESS) / max(aged.waf - 1, LEAST_EXCESS)
    return WafBand(1 + excess * max(1 - aged.pass_error, 0.0), 1 + excess * (1 + aged.pass_error))


def _join_bands(bands: Sequence[WafBand]) -> WafBand:
    return WafBand(min(one.low for one in bands), max(one.high for one in bands))


def _run_known(model: HistoryModel, collector: AssumedCollector, flash_units: int) -> FittedCollector:
    flash = max(flash_units, collector.find_least_flash(model.units))
    return FittedCollector(collector, flash, age_drive(model, collector, flash))


def _select_plausible(
    fits: Sequence[FittedCollector], units: int, flash_units: int | None
) -> tuple[FittedCollector, ...]:
    """Return the collectors whose flash is like the known one, or the nearest if none is."""
    if flash_units is None or not fits:
        return tuple(fits)
    known = math.log(max(flash_units / units - 1, 1e-3))
    distances = [abs(math.log(one.flash_units / units - 1) - known) for one in fits]
    least = max(min(distances), math.log(_SPARE_FACTOR))
    return tuple(one for one, distance in zip(fits, distances, strict=True) if distance <= least)


def fit_flash(model: HistoryModel, collector: AssumedCollector, waf: float) -> FittedCollector | None:
    """Return the plausible flash with which this collector is nearest to the given WAF, or None if even the
    nearest is too far from it."""
    wanted = math.log(max(waf - 1, LEAST_EXCESS))

    def age(log_spare: float) -> _Trial:
        aged = age_drive(model, collector, model.units + round(math.exp(log_spare)))
        return _Trial(log_spare, math.log(max(aged.waf - 1, LEAST_EXCESS)), aged)

    least = collector.find_least_flash(model.units) - model.units
    edges = (max(PLAUSIBLE_SPARE[0] * model.units, least), PLAUSIBLE_SPARE[1] * model.units)
    trials = [low, high] = [age(math.log(edge)) for edge in edges]
    is_within = high.log_excess <= wanted <= low.log_excess
    while is_within and len(trials) < _FIT_STEPS and abs(trials[-1].log_excess - wanted) > _FIT_ERROR:
        # Interpolate, but leave either end by a tenth, because the curve bends.
        share = min(max((low.log_excess - wanted) / (low.log_excess - high.log_excess), 0.1), 0.9)
        trials.append(age(low.log_spare + share * (high.log_spare - low.log_spare)))
        low, high = (trials[-1], high) if trials[-1].log_excess > wanted else (low, trials[-1])
    # The WAF may jump between two sizes of flash, and the last one is then not the nearest.
    best = min(trials, key=lambda one: abs(one.log_excess - wanted))
    if abs(best.log_excess - wanted) > _MAX_FIT_ERROR:
        return None
    return FittedCollector(
        collector, model.units + round(math.exp(best.log_spare)), best.aged, is_within=is_within
    )


class _Trial(NamedTuple):
    """A drive with some spare area, and the logarithm of its WAF above 1."""

    log_spare: float
    log_excess: float
    aged: AgedDrive
