"""Write saturation: random writes, starting on a purged drive. Pure.

Determines the position of the cliff, later steps, the steady-state rate and how the rate varies, and what
more over-provisioning gains. The author's claims about these are judged apart from our own checks with
models.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from opwatch import units
from opwatch.report.levels import LevelSeries, find_levels
from opwatch.scenarios.claims import (
    ExpectedRange,
    Finding,
    Judgement,
    MeasuredValue,
    PublishedClaim,
    ScenarioEvidence,
    ScenarioVerdict,
    make_self_check,
    select_claims,
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
_BASELINE = "the other levels are compared with it"
# The time of the second step in the review's chart of the Intel 520.
_SECOND_STEP_S = 1500


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
    whereas both WAFs are. `expected_gain` is the range that the models predict. `likeness` is the verdict on
    the author's claim about this level.
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


class SaturationResult(NamedTuple):
    """The levels, and what they say about the author's claims and about our models."""

    levels: tuple[SaturationLevel, ...]
    judgement: Judgement


class SaturationTarget(NamedTuple):
    """What was written to: a "model" or a "drive", and for a model its profile's name and abilities.

    `scale` is the model's size relative to the drive. With `has_cache`, cells are first written in a faster
    mode and moved later, so the flash size does not determine the start of garbage collection. With
    `has_throttle`, the profile itself sets a second step.
    """

    on: str = "model"
    profile: str = ""
    scale: float = 1.0
    has_cache: bool = False
    has_throttle: bool = False


def evaluate_saturation(
    scenario: Scenario, outcomes: Sequence[LevelOutcome], target: SaturationTarget
) -> SaturationResult:
    """Return the levels of the experiment, each compared with the first, and the verdicts."""
    levels = [_evaluate_level(outcomes[0], one, target) for one in outcomes]
    whole = _make_run_evidence(outcomes[0], levels[0], target)
    claims, checks = (
        select_claims(one, target.on, target.profile) for one in (scenario.claims, scenario.checks)
    )
    per_level = [
        _make_level_evidence(outcome, level) for outcome, level in zip(outcomes[1:], levels[1:], strict=True)
    ]
    return SaturationResult(
        (levels[0], *(_add_verdict(*pair, claims) for pair in zip(levels[1:], per_level, strict=True))),
        Judgement(
            tuple(_judge_each(claims, whole, per_level)),
            tuple(map(make_self_check, _judge_each(checks, whole, per_level))),
        ),
    )


def _judge_each(
    claims: Sequence[PublishedClaim], whole: ScenarioEvidence, per_level: Sequence[ScenarioEvidence]
) -> list[Finding]:
    return [
        claim.judge(evidence) for claim in claims for evidence in (per_level if claim.per_level else [whole])
    ]


def _add_verdict(
    level: SaturationLevel, evidence: ScenarioEvidence, claims: Sequence[PublishedClaim]
) -> SaturationLevel:
    """Return the level with the verdict on the first claim about it."""
    for claim in claims:
        if claim.per_level:
            _, verdict, why = claim.judge(evidence)
            return replace(level, likeness=verdict, why=why)
    return replace(level, why="the author claims nothing about it")


def _evaluate_level(first: LevelOutcome, outcome: LevelOutcome, target: SaturationTarget) -> SaturationLevel:
    """Return the figures of a level, as yet without a verdict."""
    place = _find_first_collecting(outcome.rounds)
    gain, error = _compute_gain(first, outcome)
    by_waf = gain is None
    if by_waf:
        gain, error = _compute_gain_by_waf(first, outcome)
    by_waf = by_waf and gain is not None
    return SaturationLevel(
        label=outcome.level.label,
        fresh_iops=_compute_rate(outcome.rounds[:place]),
        cliff=_find_cliff(outcome.rounds, place, target.scale),
        predicted_cliff_bytes=None if target.has_cache else outcome.level.flash_bytes,
        steady_iops=find_steady_iops(outcome),
        iops_cv=outcome.figures.iops_cv,
        gain=gain,
        gain_error=error,
        expected_gain=predict_gain(first, outcome),
        is_by_waf=by_waf,
        likeness=ScenarioVerdict.UNTOLD,
        why=_describe_state(outcome, is_by_waf=by_waf) if gain is not None else _explain_no_gain(outcome),
    )


def _describe_state(outcome: LevelOutcome, *, is_by_waf: bool) -> str:
    how = "its WAF is in steady state, its IOPS are not" if is_by_waf else "in steady state"
    return f"{how}; {_BASELINE}"


def _explain_no_gain(outcome: LevelOutcome) -> str:
    state = outcome.strict.state
    if state is StrictState.PASS:
        return "the first level, its baseline, did not reach steady state"
    return f"{state.value}: {outcome.strict.reason}"


def _make_level_evidence(outcome: LevelOutcome, level: SaturationLevel) -> ScenarioEvidence:
    """Return what a level gains, and what limits that."""
    expected, iops = level.expected_gain, outcome.figures.iops or 0.0
    is_less = expected is not None and level.gain is not None and level.gain < expected.low
    fresh = None if level.is_by_waf else level.fresh_iops
    return ScenarioEvidence(
        amounts={"gain": [MeasuredValue(level.gain, level.gain_error or 0.0)]},
        expected={"modelled gain": [expected]},
        texts={
            # Levels of the review are named after their over-provisioning, others are a share.
            "level": level.label if level.label.endswith("OP") else f"{level.label} left unused",
            "by WAF": _BY_WAF if level.is_by_waf else "",
            "less or more": "less" if is_less else "more",
            "why no gain": _explain_no_gain(outcome),
        },
        flags={
            "no model": expected is None,
            "no gain": level.gain is None,
            "as fast as new": is_less and bool(fresh) and iops >= _LIMIT_RATIO * (fresh or 0.0),
        },
    )


def _make_run_evidence(
    outcome: LevelOutcome, level: SaturationLevel, target: SaturationTarget
) -> ScenarioEvidence:
    """Return the course of the first level: the cliff, later steps, and the dispersion in steady state."""
    cliff, flash = level.cliff, outcome.level.flash_bytes
    steps = list_later_steps(outcome.rounds, target.scale)
    dispersion = None if level.steady_iops is None or level.iops_cv is None else 100 * level.iops_cv
    at_flash = (
        MeasuredValue(cliff.host_bytes / flash, cliff.within_bytes / flash)
        if cliff and flash
        else MeasuredValue(None)
    )
    capacity = outcome.level.scale.capacity_bytes
    return ScenarioEvidence(
        amounts={
            "cliff / capacity": [MeasuredValue(cliff.host_bytes / capacity if cliff else None)],
            "cliff / flash": [at_flash],
            "second step / 1500 s": [MeasuredValue(step / _SECOND_STEP_S) for step in steps[:1]],
            "second steps": [MeasuredValue(len(steps))],
            "dispersion": [MeasuredValue(dispersion)],
        },
        texts={
            "cliff": units.format_capacity(round(cliff.host_bytes)) if cliff else "",
            "second step": f"at {steps[0]:.0f} s" if steps else "none was found",
            "dispersion": "an unknown amount" if dispersion is None else f"{dispersion:.2g} %",
        },
        flags={
            "cache": target.has_cache,
            "no cliff": cliff is None,
            "throttle in the profile": target.has_throttle,
            "on a model": target.on == "model",
        },
    )


def list_later_steps(rounds: Sequence[Round], scale: float) -> list[float]:
    """Return the times at which the drive became lastingly slower after the cliff, in seconds of the drive.

    Garbage collection slows down the host, but not the flash, so the rate of NAND writes is examined if it
    was counted, and IOPS otherwise.
    """
    place = _find_first_collecting(rounds)
    if place is None:
        return []
    later = rounds[place:]
    begins = [sum(one.seconds for one in rounds[:place])]
    for one in later:
        begins.append(begins[-1] + one.seconds)
    nand = [one.nand_bytes for one in later if one.nand_bytes is not None]
    found = find_levels(
        LevelSeries(
            over=nand if len(nand) == len(later) else [one.ios for one in later],
            under=[one.seconds for one in later],
            begins_ns=list(range(len(later))),
            ends_ns=list(range(1, len(later) + 1)),
        )
    )
    return [
        begins[min(step.at_ns, len(later))] / scale
        for step in found.steps
        if step.after.value < step.before.value
    ]


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
