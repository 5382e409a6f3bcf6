"""Write saturation: random writes, starting on a purged drive. Pure.

Determines the position of the cliff, the steady-state rate, and whether more over-provisioning brings the
gain that models predict.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from opwatch.scenarios.scenario import ScenarioVerdict
from opwatch.steady.rounds import Round, merge_rounds
from opwatch.steady.strict import StrictState
from opwatch.sweep.band import compute_band
from opwatch.sweep.outcome import LevelOutcome

# A fresh drive relocates no data; a round with a higher WAF ends the fresh phase.
_FRESH_WAF = 1.02
# At or above this share of the fresh rate, garbage collection is not the bottleneck.
_LIMIT_RATIO = 0.98
# The models assume very many superblocks with none open or reserved; no drive can match them more closely.
_MODEL_RATIO = 0.01


class Cliff(NamedTuple):
    """The start of garbage collection: host bytes and time, accurate to one round (`within_bytes`)."""

    host_bytes: float
    seconds: float
    within_bytes: float


class GainBand(NamedTuple):
    """The range of speed-ups over the first level that the models predict."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class SaturationLevel:
    """The results of one level, in bytes and seconds of the drive that the model represents.

    `gain` is steady-state IOPS relative to the first level, with its error; None without steady state.
    """

    outcome: LevelOutcome
    fresh_iops: float | None
    cliff: Cliff | None
    predicted_bytes: int | None
    gain: float | None
    gain_error: float | None
    expected: GainBand | None
    likeness: ScenarioVerdict
    why: str
    # The gain is based on WAF, because the IOPS of this or the first level are not steady, whereas both WAFs
    # are.
    is_by_waf: bool = False


def evaluate_saturation(
    outcomes: Sequence[LevelOutcome], scale: float, *, has_cache: bool = False
) -> list[SaturationLevel]:
    """Return the levels of the experiment, each compared with the first.

    `scale` is the model's size relative to the drive. With `has_cache`, cells are first written in a faster
    mode and moved later, so the flash size does not determine the start of garbage collection.
    """
    return [_evaluate_level(outcomes[0], outcome, scale, has_cache=has_cache) for outcome in outcomes]


def _evaluate_level(
    first: LevelOutcome, outcome: LevelOutcome, scale: float, *, has_cache: bool
) -> SaturationLevel:
    place = _find_first_collecting(outcome.rounds)
    fresh = _compute_rate(outcome.rounds[:place])
    gain, error = _compute_gain(first, outcome)
    by_waf = gain is None
    if by_waf:
        gain, error = _compute_gain_by_waf(first, outcome)
    expected = predict_gain(first, outcome)
    likeness, why = _judge_gain(outcome, None if by_waf else fresh, gain, error, expected)
    if by_waf and outcome is first and gain is not None:
        why = "its WAF is in steady state, its IOPS are not; the other levels are compared with it"
    elif by_waf and gain is not None:
        why += ", by WAF only: its IOPS, or the first level's, are not in steady state"
    return SaturationLevel(
        outcome=outcome,
        fresh_iops=fresh,
        cliff=_find_cliff(outcome.rounds, place, scale),
        predicted_bytes=None if has_cache else outcome.level.flash_bytes,
        gain=gain,
        gain_error=error,
        expected=expected,
        likeness=likeness,
        why=why,
        is_by_waf=by_waf and gain is not None,
    )


def _find_first_collecting(rounds: Sequence[Round]) -> int | None:
    """Return the index of the first round that relocated data, or None."""
    places = (at for at, one in enumerate(rounds) if one.waf is not None and one.waf > _FRESH_WAF)
    return next(places, None)


def _compute_rate(rounds: Sequence[Round]) -> float | None:
    return merge_rounds(rounds).iops if rounds else None


def _find_cliff(rounds: Sequence[Round], place: int | None, scale: float) -> Cliff | None:
    if place is None:
        return None
    before = merge_rounds(rounds[:place]) if place else Round(0, 0.0, 0)
    return Cliff(before.host_bytes / scale, before.seconds / scale, rounds[place].host_bytes / scale)


def _compute_gain(first: LevelOutcome, outcome: LevelOutcome) -> tuple[float | None, float | None]:
    """Return (speed-up over the first level, its error), or (None, None) if either level is not in steady
    state."""
    then, now = find_steady_iops(first), find_steady_iops(outcome)
    if then is None or now is None or not then:
        return None, None
    if outcome is first:
        return 1.0, 0.0
    return now / then, (compute_steady_error_ratio(first) + compute_steady_error_ratio(outcome)) * now / then


def _compute_gain_by_waf(first: LevelOutcome, outcome: LevelOutcome) -> tuple[float | None, float | None]:
    """Return (speed-up, its error) computed from WAF, which a busy host does not disturb. The models predict
    WAF."""
    if not (_is_waf_steady(first) and _is_waf_steady(outcome)):
        return None, None
    then, now = first.figures, outcome.figures
    if then.waf is None or not now.waf:
        return None, None
    if outcome is first:
        return 1.0, 0.0
    errors = ((one.waf_error or 0.0) / one.waf for one in (then, now) if one.waf)
    return then.waf / now.waf, sum(errors) * then.waf / now.waf


def _is_waf_steady(outcome: LevelOutcome) -> bool:
    return outcome.strict.state is StrictState.PASS or outcome.strict.is_amplification_proven


def find_steady_iops(outcome: LevelOutcome) -> float | None:
    """Return IOPS in steady state. A drive without steady state has IOPS too, but those are not returned."""
    return None if outcome.strict.state is StrictState.NOT_REACHED else outcome.figures.iops


def compute_steady_error_ratio(outcome: LevelOutcome) -> float:
    """Return the relative error of a level's IOPS, from chance and from the WAF error caused by the model's
    size."""
    window, figures = outcome.strict.window, outcome.figures
    by_chance = window.iops.error if window and window.iops else None
    by_size = figures.waf_error / figures.waf if figures.waf and figures.waf_error else None
    return max(by_chance or 0.0, by_size or 0.0)


def predict_gain(first: LevelOutcome, outcome: LevelOutcome) -> GainBand | None:
    """Return the gain predicted by the collection models, or None if the drive's flash size is unknown."""
    if first.level.alpha is None or outcome.level.alpha is None:
        return None
    then, now = compute_band(first.level.alpha), compute_band(outcome.level.alpha)
    gains = [
        then.small_greedy / now.small_greedy,
        then.greedy / now.greedy,
        then.fifo / now.fifo,
        then.two_choices / now.two_choices,
    ]
    return GainBand(min(gains), max(gains))


def _judge_gain(
    outcome: LevelOutcome,
    fresh: float | None,
    gain: float | None,
    error: float | None,
    expected: GainBand | None,
) -> tuple[ScenarioVerdict, str]:
    """Return whether a level gained what the models predict, with the reason."""
    if gain == 1.0 and error == 0.0:
        return ScenarioVerdict.REPRODUCED, "in steady state; the other levels are compared with it"
    if gain is None or error is None or expected is None:
        state = outcome.strict.state
        if expected is None:
            return (
                ScenarioVerdict.UNTOLD,
                "the drive does not report how much flash it has, so no model applies",
            )
        if state is StrictState.PASS:
            return ScenarioVerdict.UNTOLD, "the first level, its baseline, did not reach steady state"
        return ScenarioVerdict.UNTOLD, f"{state.value}: {outcome.strict.reason}"
    iops = outcome.figures.iops or 0.0
    if fresh and iops >= _LIMIT_RATIO * fresh and gain < expected.low:
        return (
            ScenarioVerdict.UNTOLD,
            "as fast as when it was new: its interface limits it, not its flash",
        )
    low, high = (1 - _MODEL_RATIO) * expected.low, (1 + _MODEL_RATIO) * expected.high
    if low - error <= gain <= high + error:
        return ScenarioVerdict.REPRODUCED, "within the models' predictions"
    side = "less" if gain < expected.low else "more"
    return ScenarioVerdict.NOT_REPRODUCED, f"{side} than any model predicts"
