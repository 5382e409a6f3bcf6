"""A stricter steady-state verdict than SNIA's: the proof needed before a number describes the drive.

SNIA's rule examines five values and knows neither the drive's size nor the written addresses. The strict rule
first checks that garbage collection can have reached its equilibrium: the host wrote the spare area plus the
data in use, all data in use is mapped, and the writes were uniform. It then checks that the remaining drift
of IOPS, 99th percentile and write amplification is provably small. A busy host makes IOPS so noisy that no
window of practical length proves that. If WAF is measured and proven, IOPS need no proof: they must show no
drift and have a small enough error.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from opwatch.compare.student import find_critical_value
from opwatch.steady.coverage import WriteSpread
from opwatch.steady.rounds import Round, merge_rounds

_BINS = 10
_MIN_ROUNDS = 5
# Checks that depend on timing.
_TIME_CHECKS = ("IOPS", "p99")


class StrictState(StrEnum):
    PASS = "pass"
    NOT_REACHED = "not reached"
    # No check fails, but an input of at least one check was not measured.
    UNPROVEN = "unproven"


@dataclass(frozen=True, slots=True)
class StrictRule:
    """The thresholds of the verdict.

    `drift` is the largest allowed change of IOPS and WAF over the window, including its uncertainty. A tail
    latency is too noisy for such a proof; its drift must not provably exceed `tail_drift`. IOPS that are too
    noisy for a proof must not provably drift by more than `drift`; WAF must be proven, and the error of their
    mean must not exceed `noise`. `window` is the shortest window's length as a multiple of the data in use.
    Longer windows, up to `longest`, are tried if noise hides the drift in a short one.
    """

    coverage: float = 0.999
    # Unmapped data acts as spare area; the limit is a share of the spare area.
    false_spare: float = 0.01
    drift: float = 0.02
    tail_drift: float = 0.10
    noise: float = 0.05
    window: float = 1.0
    longest: float = 4.0
    chance: float = 0.05


@dataclass(frozen=True, slots=True)
class StrictCheck:
    """One condition on a window.

    `is_met` is None if not measured; `wanted` and `measured` are display text.
    """

    name: str
    wanted: str
    measured: str
    is_met: bool | None


class LineDrift(NamedTuple):
    """The least and greatest plausible change of the fitted line over a window, and the 95 % error of the
    mean.

    All are shares of the mean. Noise proves neither steady state nor drift.
    """

    least: float
    most: float
    error: float


@dataclass(frozen=True, slots=True)
class SteadyWindow:
    """The last rounds, starting with `first_round` (counted from 1), merged into one."""

    first_round: int
    rounds: int
    whole: Round
    # Drift of each variable, or None if not measured.
    iops: LineDrift | None
    tail: LineDrift | None
    waf: LineDrift | None


@dataclass(frozen=True, slots=True)
class StrictReport:
    """A verdict as reported. `window` has the first and last round, counted from 1."""

    state: StrictState
    reason: str | None
    window: tuple[int, int] | None
    is_waf_proven: bool = field(default=False, metadata={"added": True})
    iops_error_ratio: float | None = None
    checks: tuple[StrictCheck, ...] = ()


@dataclass(frozen=True, slots=True)
class StrictVerdict:
    state: StrictState
    checks: tuple[StrictCheck, ...]
    window: SteadyWindow | None

    @property
    def reason(self) -> str:
        """Return the failed checks, or else those not measured; an empty text if the verdict is a pass."""
        wrong = [check for check in self.checks if check.is_met is False]
        missing = [check for check in self.checks if check.is_met is None]
        return "; ".join(
            f"{check.name}: {check.measured}, required {check.wanted}" for check in wrong or missing
        )

    @property
    def is_amplification_proven(self) -> bool:
        """Return True if the window's WAF is proven, even if IOPS or tail latency are not in steady state.

        Disturbances of timing, above all a busy host, do not change how much data the drive moves.
        """
        others = [check for check in self.checks if check.name not in _TIME_CHECKS]
        return self.window is not None and all(check.is_met for check in others)

    def to_report(self) -> StrictReport:
        window = self.window
        return StrictReport(
            state=self.state,
            reason=self.reason or None,
            window=(window.first_round, window.first_round + window.rounds - 1) if window else None,
            is_waf_proven=self.is_amplification_proven,
            iops_error_ratio=window.iops.error if window and window.iops else None,
            checks=self.checks,
        )


@dataclass(frozen=True, slots=True)
class VerdictInputs:
    """The inputs of a verdict other than the rounds.

    `spare_bytes` is T-U, or its upper bound if T is unknown (`spare_is_bound`). `written_bytes` were written
    after the last fill or purge and before the first round.
    """

    active_bytes: int
    spare_bytes: int
    spread: WriteSpread | None
    spare_is_bound: bool = False
    written_bytes: int = 0

    def find_flaw(self) -> str | None:
        return None if self.active_bytes else "0 bytes are in use"


def judge_strict(
    rounds: Sequence[Round], ground: VerdictInputs, rule: StrictRule | None = None
) -> StrictVerdict:
    """Return whether the rounds end in steady state.

    `rounds` are all rounds since the fill, or since the purge if there was no fill, in order.
    """
    rule = rule or StrictRule()
    checks = [_check_host_writes(rounds, ground), *_check_spread(ground, rule)]
    window = _find_window(rounds, ground, rule)
    checks += _check_drifts(window, rule)
    if any(check.is_met is False for check in checks):
        state = StrictState.NOT_REACHED
    elif any(check.is_met is None for check in checks):
        state = StrictState.UNPROVEN
    else:
        state = StrictState.PASS
    return StrictVerdict(state, tuple(checks), window)


def _check_host_writes(rounds: Sequence[Round], ground: VerdictInputs) -> StrictCheck:
    written = ground.written_bytes + sum(one.host_bytes for one in rounds)
    needed = ground.spare_bytes + ground.active_bytes
    bound = " at most" if ground.spare_is_bound else ""
    return StrictCheck(
        "host writes",
        f"{needed} bytes: the spare area (T-U{bound}) plus the bytes in use",
        f"{written} bytes",
        written >= needed,
    )


def _check_spread(ground: VerdictInputs, rule: StrictRule) -> tuple[StrictCheck, StrictCheck]:
    """Return the checks of the writes' coverage and uniformity."""
    false_spare = rule.false_spare * ground.spare_bytes / ground.active_bytes
    least = max(rule.coverage, 1 - false_spare)
    wanted = f"at least {100 * least:.4g} %"
    spread = ground.spread
    if spread is None:
        return (
            StrictCheck("coverage", wanted, "not measured", None),
            StrictCheck("uniformity", "uniform writes", "not measured", None),
        )
    covered = StrictCheck(
        "coverage",
        wanted,
        f"{100 * spread.coverage_ratio:.4g} % ({spread.source})",
        spread.coverage_ratio >= least,
    )
    sigmas = "not measured" if spread.uneven_sigmas is None else f"{spread.uneven_sigmas:.1f} sigma off"
    return covered, StrictCheck("uniformity", "at most 5 sigma off", sigmas, spread.is_uniform)


def _find_window(rounds: Sequence[Round], ground: VerdictInputs, rule: StrictRule) -> SteadyWindow | None:
    """Return the shortest window that fails no drift check, or else the shortest window available."""
    shortest = None
    length = rule.window
    while length <= rule.longest:
        window = _select_last_rounds(rounds, length * ground.active_bytes, ground, rule)
        if window is None:
            break
        if all(check.is_met is not False for check in _check_drifts(window, rule)):
            return window
        shortest = shortest or window
        length *= 2
    return shortest


def _select_last_rounds(
    rounds: Sequence[Round], n_bytes: float, ground: VerdictInputs, rule: StrictRule
) -> SteadyWindow | None:
    """Return the last rounds that sum to `n_bytes`; None if they overlap the spare area's first use."""
    count = written = 0
    while count < len(rounds) and (written < n_bytes or count < _MIN_ROUNDS):
        count += 1
        written += rounds[-count].host_bytes
    before = ground.written_bytes + sum(one.host_bytes for one in rounds[: len(rounds) - count])
    if written < n_bytes or count < _MIN_ROUNDS or before < ground.spare_bytes:
        return None
    window = rounds[-count:]
    bins = min(_BINS, count)
    parts = [merge_rounds(window[part * count // bins : (part + 1) * count // bins]) for part in range(bins)]
    tails = [part.p99_ns for part in parts]
    wafs = [part.waf for part in parts]
    return SteadyWindow(
        first_round=len(rounds) - count + 1,
        rounds=count,
        whole=merge_rounds(window),
        iops=_fit_drift([part.iops for part in parts], rule.chance),
        tail=_fit_drift(tails, rule.chance),
        waf=_fit_drift(wafs, rule.chance),
    )


def _fit_drift(values: Sequence[float | None], chance: float) -> LineDrift | None:
    known = [value for value in values if value is not None]
    count = len(known)
    if count < len(values) or not any(known):
        return None
    mean = sum(known) / count
    middle = (count - 1) / 2
    spread = sum((x - middle) ** 2 for x in range(count))
    slope = sum((x - middle) * y for x, y in enumerate(known)) / spread
    rest = sum((y - mean - slope * (x - middle)) ** 2 for x, y in enumerate(known))
    error = find_critical_value(chance, count - 2) * math.sqrt(rest / (count - 2) / spread)
    scale = (count - 1) / mean
    variance = sum((y - mean) ** 2 for y in known) / (count - 1)
    of_mean = find_critical_value(chance, count - 1) * math.sqrt(variance / count) / mean
    return LineDrift(max(abs(slope) - error, 0.0) * scale, (abs(slope) + error) * scale, of_mean)


def _check_drifts(window: SteadyWindow | None, rule: StrictRule) -> list[StrictCheck]:
    proven = f"a drift of at most {100 * rule.drift:g} % over the window"
    shown = f"no visible drift beyond {100 * rule.tail_drift:g} % over the window"
    wanted = {"IOPS": proven, "p99": shown, "WAF": proven}
    if window is None:
        missing = "the window is too short so far"
        return [StrictCheck(name, text, missing, False) for name, text in wanted.items()]
    tail, waf = window.tail, window.waf
    return [
        _check_iops(window, proven, rule),
        StrictCheck("p99", shown, *_evaluate_drift(tail and tail.least, "least", rule.tail_drift)),
        StrictCheck("WAF", proven, *_evaluate_drift(waf and waf.most, "most", rule.drift)),
    ]


def _evaluate_drift(share: float | None, bound: str, limit: float) -> tuple[str, bool | None]:
    """Return the measured value as text, and True if it is within the limit (None if not measured)."""
    if share is None:
        return "not measured", None
    return f"at {bound} {100 * share:.2g} %", share <= limit


def _check_iops(window: SteadyWindow, proven: str, rule: StrictRule) -> StrictCheck:
    """Return the check of IOPS.

    Host noise affects IOPS but not WAF. If WAF proves that the flash is in steady state, IOPS only need to
    show no drift and have a small error.
    """
    iops, waf = window.iops, window.waf
    if iops is None or iops.most <= rule.drift or waf is None:
        return StrictCheck("IOPS", proven, *_evaluate_drift(iops and iops.most, "most", rule.drift))
    wanted = (
        f"{proven}, or, with such a WAF, no visible drift beyond it and an error of at most "
        f"{100 * rule.noise:g} %"
    )
    measured = (
        f"at most {100 * iops.most:.2g} %, at least {100 * iops.least:.2g} %, ± {100 * iops.error:.2g} %"
    )
    rests = waf.most <= rule.drift and iops.least <= rule.drift and iops.error <= rule.noise
    return StrictCheck("IOPS", wanted, measured, rests)
