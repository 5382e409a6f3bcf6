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
    read_time,
    reads_gain_nothing,
    write_gain,
)
from opwatch.scenarios.saturation import expected_gain, rest_error_ratio, rest_iops
from opwatch.scenarios.scenario import AuthorsWord, ScenarioVerdict
from opwatch.steady.strict import StrictState
from opwatch.sweep.band import greedy_model
from opwatch.sweep.outcome import KINDS, WRITE_EMPTY, WRITE_FULL, LevelOutcome, LevelProbe, OpKind


def iometer_of_drive(outcomes: Sequence[LevelOutcome]) -> IometerResult:
    """Combine the probes of all levels with the steady-state rounds."""
    rates = [_rate(outcome, probe) for outcome in outcomes for probe in outcome.probes]
    gains = [_gain(kind, rates, outcomes) for kind in KINDS]
    at_rest = all(outcome.strict.state is StrictState.PASS for outcome in outcomes)
    return IometerResult(tuple(rates), tuple(gains), at_rest)


def _rate(outcome: LevelOutcome, probe: LevelProbe) -> OpRate:
    if probe.kind == WRITE_FULL and rest_iops(outcome) is None:
        why = f"{outcome.strict.state.value}: {outcome.strict.reason}"
        return OpRate(WRITE_FULL, outcome.level, None, None, why=why)
    return OpRate(
        probe.kind,
        outcome.level,
        probe.ios / probe.seconds,
        probe.mean_ns,
        rest_error_ratio(outcome) if probe.kind == WRITE_FULL else _probe_error(probe),
        cpu_ratio=probe.cpu_s / probe.seconds,
    )


def _probe_error(probe: LevelProbe) -> float:
    # A probe too short for an error estimate may be off by any amount.
    return 1.0 if probe.error_ratio is None else probe.error_ratio


def _gain(kind: OpKind, rates: Sequence[OpRate], outcomes: Sequence[LevelOutcome]) -> OpGain:
    own = [rate for rate in rates if rate.kind == kind]
    foretold = _foretold(rates, outcomes) if kind == WRITE_FULL else 1.0
    before, after = (own[0].iops, own[-1].iops) if own else (None, None)
    if not before or after is None:
        return OpGain(kind, None, 0.0, foretold)
    gain = after / before
    return OpGain(kind, gain, gain * (own[0].error_ratio + own[-1].error_ratio), foretold)


def _foretold(rates: Sequence[OpRate], outcomes: Sequence[LevelOutcome]) -> float | None:
    """Predict the speed-up of steady-state writes from greedy collection, limited by the speed of a new
    drive."""
    first, last = outcomes[0].level.alpha, outcomes[-1].level.alpha
    if first is None or last is None:
        return None
    greedy = greedy_model(None)
    return min(greedy.waf(first) / greedy.waf(last), _most_gain(rates))


def _most_gain(rates: Sequence[OpRate]) -> float:
    """Return the speed-up of the last level if it wrote as fast as a new drive."""
    new = [rate.iops for rate in rates if rate.kind == WRITE_EMPTY]
    rest = [rate.iops for rate in rates if rate.kind == WRITE_FULL]
    if not new or not rest or not new[-1] or not rest[0]:
        return float("inf")
    return max(new[-1] / rest[0], 1.0)


def drive_statements(
    result: IometerResult, outcomes: Sequence[LevelOutcome], published: Fields
) -> tuple[AuthorsWord, ...]:
    """Compare this drive's gain with models of garbage collection and with the author's results."""
    return (
        _modelled(result, outcomes),
        reads_gain_nothing(result, published),
        write_gain(result, published),
        read_time(result, published, None),
    )


def _modelled(result: IometerResult, outcomes: Sequence[LevelOutcome]) -> AuthorsWord:
    what = "writes at rest gain what models of collectors say"
    gain, expected = result.gain(WRITE_FULL), expected_gain(outcomes[0], outcomes[-1])
    if expected is None:
        why = "nobody tells how much flash this drive has, so no model says anything"
        return AuthorsWord(what, ScenarioVerdict.UNTOLD, why)
    if gain.gain is None:
        return AuthorsWord(what, ScenarioVerdict.UNTOLD, "not at rest")
    most = _most_gain(result.rates)
    if gain.gain < expected.low and gain.gain >= (1 - ALIKE_RATIO) * most:
        why = "with a part left free it is as fast as new: its interface limits it, and not its flash"
        return AuthorsWord(what, ScenarioVerdict.UNTOLD, why)
    is_so = expected.low - gain.error <= gain.gain <= expected.high + gain.error
    verdict = ScenarioVerdict.REPRODUCED if is_so else ScenarioVerdict.NOT_REPRODUCED
    why = f"x {gain.gain:.2f}, they say x {expected.low:.2f} to x {expected.high:.2f}"
    return AuthorsWord(what, verdict, why)
