"""A stricter steady-state verdict than SNIA's: the proof needed before a number describes the drive.

SNIA's rule examines five values and knows neither the drive's size nor the written addresses. The strict rule
first checks that garbage collection can have reached its equilibrium: the host wrote the spare area plus the
data in use, all data in use is mapped, and the coldest data that matter have turned over. It then proves that
the mean over a look-back is near the value in steady state: the error of the mean contains chance, visible
slow changes, and the rest of an approach. A busy host makes IOPS so noisy that no look-back of practical
length proves that. If WAF is measured and proven, the error of IOPS may be larger.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from opwatch.ftl.models import predict_fifo
from opwatch.steady.approach import SettledValue
from opwatch.steady.coverage import WriteSpread
from opwatch.steady.expect import LevelKnowledge, SteadyExpectation, expect_settled
from opwatch.steady.rounds import Round
from opwatch.steady.skew import STATIC_AFTER, Turnover, WritePart, find_turnover, is_uniform
from opwatch.steady.window import (
    LineDrift,
    LookbackSize,
    RoundHistory,
    SteadyWindow,
    find_windows,
    size_lookback,
)
from opwatch.units import format_capacity, format_plain

# Checks that depend on timing.
_TIME_CHECKS = ("IOPS", "p99")
# Rounds from which the present WAF is taken.
_RECENT = 10


class StrictState(StrEnum):
    PASS = "pass"
    NOT_REACHED = "not reached"
    # No check fails, but an input of at least one check was not measured.
    UNPROVEN = "unproven"


@dataclass(frozen=True, slots=True)
class StrictRule:
    """The thresholds of the verdict.

    `error` is the largest error of IOPS and WAF, the rest of the approach included. A tail latency is too
    noisy for such a proof; its drift must not provably exceed `tail_drift`. With a proven WAF, the error of
    IOPS may be up to `noise`.
    """

    coverage: float = 0.999
    # Unmapped data acts as spare area; the limit is a share of the spare area.
    false_spare: float = 0.01
    error: float = 0.02
    tail_drift: float = 0.10
    noise: float = 0.05


@dataclass(frozen=True, slots=True)
class StrictCheck:
    """One condition on a window.

    `is_met` is None if not measured; `wanted` and `measured` are display text.
    """

    name: str
    wanted: str
    measured: str
    is_met: bool | None


@dataclass(frozen=True, slots=True)
class StrictReport:
    """A verdict as reported. `window` has the first and last round, counted from 1.

    `expected` is where a level that did not pass will settle. `not_excluded` says what no look-back can
    exclude.
    """

    state: StrictState
    reason: str | None
    window: tuple[int, int] | None
    is_waf_proven: bool = field(default=False, metadata={"added": True})
    iops_error_ratio: float | None = None
    waf_error_ratio: float | None = field(default=None, metadata={"added": True})
    written_drive_writes: float | None = field(default=None, metadata={"added": True})
    turnover_drive_writes: float | None = field(default=None, metadata={"added": True})
    static_ratio: float | None = field(default=None, metadata={"added": True})
    lookback_drive_writes: float | None = field(default=None, metadata={"added": True})
    expected: SteadyExpectation | None = field(default=None, metadata={"added": True})
    not_excluded: str | None = field(default=None, metadata={"added": True})
    checks: tuple[StrictCheck, ...] = ()


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

    @property
    def spare_ratio(self) -> float:
        return self.spare_bytes / self.active_bytes

    @property
    def parts(self) -> tuple[WritePart, ...]:
        """Return the spread of the writes, or an empty tuple if unknown."""
        return self.spread.known_parts if self.spread else ()


@dataclass(frozen=True, slots=True)
class VerdictEvidence:
    """What a verdict is derived from.

    `turnover` is None if unknown. `static_ratio` of the space is written, but too rarely to turn over.
    `windows` are in order of length.
    """

    history: RoundHistory
    ground: VerdictInputs
    rule: StrictRule
    turnover: float | None
    static_ratio: float
    windows: tuple[SteadyWindow, ...]

    @property
    def size(self) -> LookbackSize:
        return size_lookback(self.ground.spare_ratio, self.turnover)


@dataclass(frozen=True, slots=True)
class StrictVerdict:
    state: StrictState
    checks: tuple[StrictCheck, ...]
    window: SteadyWindow | None
    evidence: VerdictEvidence | None = field(default=None, compare=False, repr=False)

    @property
    def reason(self) -> str:
        """Return the failed checks, or else those not measured; an empty text if the verdict is a pass."""
        wrong = [check for check in self.checks if check.is_met is False]
        missing = [check for check in self.checks if check.is_met is None]
        names: dict[tuple[str, str], list[str]] = {}
        for check in wrong or missing:
            names.setdefault((check.measured, check.wanted), []).append(check.name)
        return "; ".join(
            f"{', '.join(same)}: {measured}, required {wanted}" for (measured, wanted), same in names.items()
        )

    @property
    def is_amplification_proven(self) -> bool:
        """Return True if the window's WAF is proven, even if IOPS or tail latency are not in steady state.

        Disturbances of timing, above all a busy host, do not change how much data the drive moves.
        """
        others = [check for check in self.checks if check.name not in _TIME_CHECKS]
        return self.window is not None and all(check.is_met for check in others)

    @property
    def iops_error_ratio(self) -> float | None:
        """Return the error of the window's IOPS as a share, or None without a window."""
        return self.window.iops.error if self.window and self.window.iops else None

    @property
    def window_rounds(self) -> tuple[int, int] | None:
        """Return the first and last round of the window, counted from 1, or None without a window."""
        window = self.window
        return (window.first_round, window.first_round + window.rounds - 1) if window else None

    def expect_settled(self) -> SteadyExpectation | None:
        """Return where the level will settle, or None if it passed. For skewed writes, this may take a
        second.
        """
        known = self.evidence
        if self.state is StrictState.PASS or not known or not known.history.rounds:
            return None
        level = LevelKnowledge(
            parts=known.ground.parts,
            spare_ratio=known.ground.spare_ratio,
            is_spare_known=not known.ground.spare_is_bound,
            waf_limit=known.rule.error,
            iops_limit=known.rule.noise if self.is_amplification_proven else known.rule.error,
        )
        return expect_settled(known.history, known.windows, known.size, level)

    def to_report(self) -> StrictReport:
        window, known = self.window, self.evidence
        lookback = window.whole.host_bytes / known.ground.active_bytes if window and known else None
        return StrictReport(
            state=self.state,
            reason=self.reason or None,
            window=self.window_rounds,
            is_waf_proven=self.is_amplification_proven,
            iops_error_ratio=self.iops_error_ratio,
            waf_error_ratio=window.waf.error if window and window.waf else None,
            written_drive_writes=known.history.drive_writes if known else None,
            turnover_drive_writes=known.turnover if known else None,
            static_ratio=known.static_ratio if known else None,
            lookback_drive_writes=lookback,
            expected=self.expect_settled(),
            not_excluded=None if self.state is StrictState.NOT_REACHED else _describe_limits(known, lookback),
            checks=self.checks,
        )


def _describe_limits(known: VerdictEvidence | None, lookback: float | None) -> str | None:
    """Return what the look-back of a level cannot exclude."""
    if not known or lookback is None:
        return None
    static = (
        f"; {format_plain(100 * known.static_ratio)} % of the data would turn over after more than "
        f"{STATIC_AFTER:.0f} drive writes and count as static"
        if known.static_ratio
        else ""
    )
    length, written = format_plain(lookback, 3), format_plain(known.history.drive_writes, 3)
    return (
        f"a cycle longer than the look-back of {length} drive writes, and a change after the "
        f"{written} drive writes of this level, such as the end of a larger cache{static}"
    )


def judge_strict(
    rounds: Sequence[Round], ground: VerdictInputs, rule: StrictRule | None = None
) -> StrictVerdict:
    """Return whether the rounds end in steady state.

    `rounds` are all rounds since the fill, or since the purge if there was no fill, in order.
    """
    rule = rule or StrictRule()
    history = RoundHistory(rounds, ground.active_bytes, ground.written_bytes)
    turnover, static_ratio = _find_turnover(rounds, ground) or (None, 0.0)
    windows = find_windows(history, size_lookback(ground.spare_ratio, turnover))
    evidence = VerdictEvidence(history, ground, rule, turnover, static_ratio, tuple(windows))
    window = _choose_window(windows, rule)
    checks = (
        _check_host_writes(evidence),
        *_check_spread(evidence),
        *(_check_settled(window, rule) if window else _report_short(evidence)),
    )
    if any(check.is_met is False for check in checks):
        state = StrictState.NOT_REACHED
    elif any(check.is_met is None for check in checks):
        state = StrictState.UNPROVEN
    else:
        state = StrictState.PASS
    return StrictVerdict(state, checks, window, evidence)


def _find_turnover(rounds: Sequence[Round], ground: VerdictInputs) -> Turnover | None:
    """Return the turnover at the present WAF, or None if the spread is unknown."""
    if not ground.parts:
        return None
    wafs = [one.waf for one in rounds[-_RECENT:] if one.waf is not None]
    waf = sum(wafs) / len(wafs) if wafs else None
    if waf is None and is_uniform(ground.parts):
        waf = predict_fifo(1 + ground.spare_ratio)
    return find_turnover(ground.parts, ground.spare_ratio, waf)


def _choose_window(windows: Sequence[SteadyWindow], rule: StrictRule) -> SteadyWindow | None:
    """Return the shortest window that fails no check, or else the shortest window."""
    for window in windows:
        if all(check.is_met is not False for check in _check_settled(window, rule)):
            return window
    return windows[0] if windows else None


def _check_host_writes(known: VerdictEvidence) -> StrictCheck:
    ground = known.ground
    written = ground.written_bytes + sum(one.host_bytes for one in known.history.rounds)
    needed = ground.spare_bytes + ground.active_bytes
    bound = " at most" if ground.spare_is_bound else ""
    return StrictCheck(
        "host writes",
        f"{format_capacity(needed)}: the spare area (T-U{bound}) plus the bytes in use",
        f"{format_capacity(written)}",
        written >= needed,
    )


def _check_spread(known: VerdictEvidence) -> Iterator[StrictCheck]:
    """Yield the checks of the writes' coverage, and of their uniformity or turnover."""
    spread, turnover = known.ground.spread, known.turnover
    least = max(known.rule.coverage, 1 - known.rule.false_spare * known.ground.spare_ratio)
    covered = spread.coverage_ratio if spread else None
    yield StrictCheck(
        "coverage",
        f"at least {format_plain(100 * least, 4)} %",
        f"{format_plain(100 * covered, 4)} % ({spread.source})"
        if spread and covered is not None
        else "not measured",
        None if covered is None else covered >= least,
    )
    if spread and is_uniform(known.ground.parts):
        sigmas = "not measured" if spread.uneven_sigmas is None else f"{spread.uneven_sigmas:.1f} sigma off"
        yield StrictCheck("uniformity", "at most 5 sigma off", sigmas, spread.is_uniform)
    elif turnover is None:
        yield StrictCheck("turnover", "a known spread of the writes", "the spread is unknown", False)
    else:
        yield StrictCheck(
            "turnover",
            f"{format_plain(turnover, 3)} drive writes, in which the coldest data that matter turn over",
            f"{format_plain(known.history.drive_writes, 3)} drive writes",
            known.history.drive_writes >= turnover,
        )


def _report_short(known: VerdictEvidence) -> Iterator[StrictCheck]:
    """Yield failed checks, because the rounds are too few for a look-back."""
    size = known.size
    length, begin = format_plain(size.least, 3), format_plain(size.skipped, 3)
    wanted = f"a look-back of {length} drive writes after the first {begin}"
    for name in ("IOPS", "p99", "WAF"):
        yield StrictCheck(name, wanted, f"{format_plain(known.history.drive_writes, 3)} drive writes", False)


def _check_settled(window: SteadyWindow, rule: StrictRule) -> list[StrictCheck]:
    proven = f"an error of at most {100 * rule.error:g} %, the rest of the approach included"
    shown = f"no visible drift beyond {100 * rule.tail_drift:g} % over the window"
    return [
        _check_iops(window, proven, rule),
        StrictCheck("p99", shown, *_evaluate_tail(window.tail, rule.tail_drift)),
        StrictCheck("WAF", proven, *_evaluate_error(window.waf, rule.error)),
    ]


def _evaluate_tail(drift: LineDrift | None, limit: float) -> tuple[str, bool | None]:
    """Return the measured value as text, and True if it is within the limit (None if not measured)."""
    if drift is None:
        return "not measured", None
    return f"at least {format_plain(100 * drift.least)} %", drift.least <= limit


def _evaluate_error(value: SettledValue | None, limit: float) -> tuple[str, bool | None]:
    if value is None:
        return "not measured", None
    return f"± {format_plain(100 * value.error)} %", value.error <= limit


def _check_iops(window: SteadyWindow, proven: str, rule: StrictRule) -> StrictCheck:
    """Return the check of IOPS.

    Host noise affects IOPS but not WAF. If WAF proves that the flash is in steady state, the error of IOPS
    may be larger, but not because of a visible change.
    """
    iops, waf = window.iops, window.waf
    if iops is None or iops.error <= rule.error or waf is None:
        return StrictCheck("IOPS", proven, *_evaluate_error(iops, rule.error))
    wanted = f"{proven}, or, with such a WAF and without a visible change, of at most {100 * rule.noise:g} %"
    rests = waf.error <= rule.error and iops.error <= rule.noise and iops.visible_change <= rule.error
    return StrictCheck("IOPS", wanted, f"± {format_plain(100 * iops.error)} %", rests)
