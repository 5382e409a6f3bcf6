"""Random reads and writes on a real drive, whole and with a part left unused: results and predicted gains.
Pure."""

from __future__ import annotations

from collections.abc import Sequence

from opwatch.fields import Fields
from opwatch.scenarios.iometer import (
    ALIKE_RATIO,
    IometerResult,
    OpGain,
    OpRate,
    check_read_time,
    check_reads,
    check_writes,
)
from opwatch.scenarios.saturation import compute_steady_error_ratio, find_steady_iops, predict_gain
from opwatch.scenarios.scenario import Finding, ScenarioVerdict
from opwatch.steady.strict import StrictState
from opwatch.sweep.band import make_greedy_model
from opwatch.sweep.outcome import KINDS, WRITE_EMPTY, WRITE_FULL, LevelOutcome, LevelProbe, OpKind


def combine_drive_probes(outcomes: Sequence[LevelOutcome]) -> IometerResult:
    """Combine the probes of all levels with the steady-state rounds."""
    rates = [_make_rate(outcome, probe) for outcome in outcomes for probe in outcome.probes]
    gains = [_compute_gain(kind, rates, outcomes) for kind in KINDS]
    at_rest = all(outcome.strict.state is StrictState.PASS for outcome in outcomes)
    return IometerResult(tuple(rates), tuple(gains), at_rest)


def _make_rate(outcome: LevelOutcome, probe: LevelProbe) -> OpRate:
    if probe.kind == WRITE_FULL and find_steady_iops(outcome) is None:
        why = f"{outcome.strict.state.value}: {outcome.strict.reason}"
        return OpRate(WRITE_FULL, outcome.level, None, None, why=why)
    return OpRate(
        probe.kind,
        outcome.level,
        probe.ios / probe.seconds,
        probe.mean_ns,
        compute_steady_error_ratio(outcome) if probe.kind == WRITE_FULL else _get_probe_error(probe),
        cpu_ratio=probe.cpu_s / probe.seconds,
    )


def _get_probe_error(probe: LevelProbe) -> float:
    # A probe too short for an error estimate may be off by any amount.
    return 1.0 if probe.error_ratio is None else probe.error_ratio


def _compute_gain(kind: OpKind, rates: Sequence[OpRate], outcomes: Sequence[LevelOutcome]) -> OpGain:
    own = [rate for rate in rates if rate.kind == kind]
    foretold = _predict_gain(rates, outcomes) if kind == WRITE_FULL else 1.0
    before, after = (own[0].iops, own[-1].iops) if own else (None, None)
    if not before or after is None:
        return OpGain(kind, None, 0.0, foretold)
    gain = after / before
    return OpGain(kind, gain, gain * (own[0].error_ratio + own[-1].error_ratio), foretold)


def _predict_gain(rates: Sequence[OpRate], outcomes: Sequence[LevelOutcome]) -> float | None:
    """Predict the speed-up of steady-state writes from greedy collection, limited by the speed of a new
    drive."""
    first, last = outcomes[0].level.alpha, outcomes[-1].level.alpha
    if first is None or last is None:
        return None
    greedy = make_greedy_model(None)
    return min(greedy.waf(first) / greedy.waf(last), _compute_max_gain(rates))


def _compute_max_gain(rates: Sequence[OpRate]) -> float:
    """Return the speed-up of the last level if it wrote as fast as a new drive."""
    new = [rate.iops for rate in rates if rate.kind == WRITE_EMPTY]
    rest = [rate.iops for rate in rates if rate.kind == WRITE_FULL]
    if not new or not rest or not new[-1] or not rest[0]:
        return float("inf")
    return max(new[-1] / rest[0], 1.0)


def make_drive_findings(
    result: IometerResult, outcomes: Sequence[LevelOutcome], published: Fields
) -> tuple[Finding, ...]:
    """Compare this drive's gain with models of garbage collection and with the author's results."""
    return (
        _check_models(result, outcomes),
        check_reads(result, published),
        check_writes(result, published),
        check_read_time(result, published, None),
    )


def _check_models(result: IometerResult, outcomes: Sequence[LevelOutcome]) -> Finding:
    what = "steady-state writes gain what the collector models predict"
    gain, expected = result.find_gain(WRITE_FULL), predict_gain(outcomes[0], outcomes[-1])
    if expected is None:
        why = "the drive does not report how much flash it has, so no model applies"
        return Finding(what, ScenarioVerdict.UNTOLD, why)
    if gain.gain is None:
        return Finding(what, ScenarioVerdict.UNTOLD, "not in steady state")
    most = _compute_max_gain(result.rates)
    if gain.gain < expected.low and gain.gain >= (1 - ALIKE_RATIO) * most:
        why = "with a part left free it is as fast as new: its interface limits it, not its flash"
        return Finding(what, ScenarioVerdict.UNTOLD, why)
    is_so = expected.low - gain.error <= gain.gain <= expected.high + gain.error
    verdict = ScenarioVerdict.REPRODUCED if is_so else ScenarioVerdict.NOT_REPRODUCED
    why = f"x {gain.gain:.2f}, predicted x {expected.low:.2f} to x {expected.high:.2f}"
    return Finding(what, verdict, why)
