"""Write saturation: random writes, starting on a purged drive. Pure.

Determines the position of the cliff, the steady-state rate, and whether more over-provisioning brings the
gain that models predict.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from opwatch.scenarios.claims import (
    ExpectedRange,
    MeasuredValue,
    PublishedClaim,
    ScenarioEvidence,
    ScenarioVerdict,
)
from opwatch.scenarios.scenario import Scenario
from opwatch.steady.rounds import Round, merge_rounds
from opwatch.steady.strict import StrictState
from opwatch.sweep.band import compute_band
from opwatch.sweep.outcome import LevelOutcome

# A fresh drive relocates no data; a round with a higher WAF ends the fresh phase.
_FRESH_WAF = 1.02
# At or above this share of the fresh rate, garbage collection is not the bottleneck.
_LIMIT_RATIO = 0.98
_BY_WAF = ", by WAF only: its IOPS, or the first level's, are not in steady state"


@dataclass(frozen=True, slots=True)
class Cliff:
    """The start of garbage collection: host bytes and time, accurate to one round (`within_bytes`)."""

    host_bytes: float
    seconds: float
    within_bytes: float


@dataclass(frozen=True, slots=True)
class SaturationLevel:
    """The results of one level, in bytes and seconds of the drive that the model represents.

    `gain` is steady-state IOPS relative to the first level, with its error; None without steady state.
    `is_by_waf` is True if it is based on WAF, because the IOPS of this or the first level are not steady,
    whereas both WAFs are. `expected_gain` is the range that the models predict.
    """

    label: str
    fresh_iops: float | None
    cliff: Cliff | None
    predicted_cliff_bytes: int | None
    steady_iops: float | None
    iops_cv: float | None
    gain: float | None
    gain_error: float | None
    expected_gain: ExpectedRange | None
    is_by_waf: bool
    likeness: ScenarioVerdict
    why: str


def evaluate_saturation(
    scenario: Scenario, outcomes: Sequence[LevelOutcome], scale: float, *, has_cache: bool = False
) -> list[SaturationLevel]:
    """Return the levels of the experiment, each compared with the first.

    `scale` is the model's size relative to the drive. With `has_cache`, cells are first written in a faster
    mode and moved later, so the flash size does not determine the start of garbage collection.
    """
    [claim] = scenario.claims
    return [_evaluate_level(claim, outcomes[0], one, scale, has_cache=has_cache) for one in outcomes]


def _evaluate_level(
    claim: PublishedClaim, first: LevelOutcome, outcome: LevelOutcome, scale: float, *, has_cache: bool
) -> SaturationLevel:
    place = _find_first_collecting(outcome.rounds)
    fresh = _compute_rate(outcome.rounds[:place])
    gain, error = _compute_gain(first, outcome)
    by_waf = gain is None
    if by_waf:
        gain, error = _compute_gain_by_waf(first, outcome)
    by_waf = by_waf and gain is not None
    expected = predict_gain(first, outcome)
    if gain == 1.0 and error == 0.0:
        likeness, why = ScenarioVerdict.REPRODUCED, _describe_baseline(is_by_waf=by_waf and outcome is first)
    else:
        measured = MeasuredValue(gain, error or 0.0)
        words = _BY_WAF if by_waf else ""
        evidence = _make_evidence(outcome, None if by_waf else fresh, measured, expected, words)
        _, likeness, why = claim.judge(evidence)
    return SaturationLevel(
        label=outcome.level.label,
        fresh_iops=fresh,
        cliff=_find_cliff(outcome.rounds, place, scale),
        predicted_cliff_bytes=None if has_cache else outcome.level.flash_bytes,
        steady_iops=find_steady_iops(outcome),
        iops_cv=outcome.figures.iops_cv,
        gain=gain,
        gain_error=error,
        expected_gain=expected,
        is_by_waf=by_waf,
        likeness=likeness,
        why=why,
    )


def _describe_baseline(*, is_by_waf: bool) -> str:
    how = "its WAF is in steady state, its IOPS are not" if is_by_waf else "in steady state"
    return f"{how}; the other levels are compared with it"


def _make_evidence(
    outcome: LevelOutcome,
    fresh: float | None,
    gain: MeasuredValue,
    expected: ExpectedRange | None,
    by_waf: str,
) -> ScenarioEvidence:
    state, iops = outcome.strict.state, outcome.figures.iops or 0.0
    is_less = expected is not None and gain.value is not None and gain.value < expected.low
    texts = {
        "level": outcome.level.label,
        "by WAF": by_waf,
        "less or more": "less" if is_less else "more",
        "why no gain": "the first level, its baseline, did not reach steady state"
        if state is StrictState.PASS
        else f"{state.value}: {outcome.strict.reason}",
    }
    flags = {
        "no model": expected is None,
        "no gain": gain.value is None,
        "as fast as new": is_less and bool(fresh) and iops >= _LIMIT_RATIO * (fresh or 0.0),
    }
    return ScenarioEvidence(
        amounts={"gain": [gain]},
        expected={"modelled gain": [expected]},
        texts=texts,
        flags=flags,
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


def predict_gain(first: LevelOutcome, outcome: LevelOutcome) -> ExpectedRange | None:
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
    return ExpectedRange(min(gains), max(gains))
