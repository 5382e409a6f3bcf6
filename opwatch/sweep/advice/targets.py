"""Targets of a drive: what a level must do, and whether it does, given the errors of its figures. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from opwatch.errors import UsageError
from opwatch.sweep.outcome import LevelOutcome
from opwatch.sweep.ranges import ValueRange, divide_by
from opwatch.sweep.returns import YEAR_S, find_write_rate

DAY_S = 86400


class TargetKind(StrEnum):
    DAILY = "daily"
    LIFE = "life"
    IOPS = "iops"
    P99 = "p99"


class TargetVerdict(StrEnum):
    """Whether a figure meets its target. It does only if its whole error does."""

    MET = "met"
    MISSED = "missed"
    UNDECIDED = "undecided"  # the target is within the figure's error
    UNKNOWN = "unknown"  # the figure was not measured


@dataclass(frozen=True, slots=True)
class SweepTargets:
    """What the drive must do. A target that is None was not given."""

    daily_bytes: int | None = None
    life_years: float | None = None
    iops: float | None = None
    p99_ns: float | None = None

    @property
    def is_empty(self) -> bool:
        """Return True if there is nothing to meet. A daily amount without a life only sets a rate."""
        return self.iops is None and self.p99_ns is None and self.life_years is None

    def require_sound(self) -> None:
        """Raise UsageError if a target needs another."""
        if self.life_years is not None and self.daily_bytes is None:
            raise UsageError("--life needs --daily: how long a drive lasts depends on how much is written")


@dataclass(frozen=True, slots=True)
class TargetCheck:
    """One target at one level. `value` is None with a reason."""

    kind: TargetKind
    wanted: float
    value: ValueRange | None
    verdict: TargetVerdict
    reason: str | None = None

    @property
    def shortfall(self) -> float:
        """Return the factor by which a missed target is missed; 1 for a target that is met."""
        if self.verdict is not TargetVerdict.MISSED or not self.value or not self.value.value:
            return 1.0
        ratio = self.wanted / self.value.value
        return 1 / ratio if self.kind is TargetKind.P99 else ratio


def judge_value(kind: TargetKind, wanted: float, value: ValueRange | None, reason: str) -> TargetCheck:
    """Return the check of a figure; p99 has to be low, all others high."""
    if value is None:
        return TargetCheck(kind, wanted, None, TargetVerdict.UNKNOWN, reason)
    is_low = kind is TargetKind.P99
    is_met = value.high <= wanted if is_low else value.low >= wanted
    is_missed = value.low > wanted if is_low else value.high < wanted
    verdict = TargetVerdict.UNDECIDED
    if is_met or is_missed:
        verdict = TargetVerdict.MET if is_met else TargetVerdict.MISSED
    return TargetCheck(kind, wanted, value, verdict)


def merge_verdicts(checks: Iterable[TargetCheck]) -> TargetVerdict:
    """Return the verdict on a level: missed if any target is missed, met if all are met."""
    found = {check.verdict for check in checks}
    order = (TargetVerdict.MISSED, TargetVerdict.UNKNOWN, TargetVerdict.UNDECIDED)
    return next((verdict for verdict in order if verdict in found), TargetVerdict.MET)


def estimate_years(targets: SweepTargets, waf: ValueRange | None, endurance: int | None) -> ValueRange | None:
    """Return the years until the NAND endurance is used up at the daily amount, or None if unknown."""
    if endurance is None or not targets.daily_bytes:
        return None
    return divide_by(endurance * DAY_S / (targets.daily_bytes * YEAR_S), waf)


def compute_io_bytes(outcome: LevelOutcome) -> float | None:
    """Return the host bytes written per I/O in steady state, or None without a steady state."""
    window = outcome.find_window()
    if window is None or not window.ios:
        return None
    return window.host_bytes / window.ios


def require_compatible(targets: SweepTargets, outcomes: Iterable[LevelOutcome]) -> None:
    """Raise UsageError if the daily amount needs more I/Os per second than the target of IOPS."""
    sizes = [size for one in outcomes if (size := compute_io_bytes(one))]
    if not sizes or targets.daily_bytes is None or targets.iops is None:
        return
    needed = targets.daily_bytes / DAY_S / max(sizes)
    if needed > targets.iops:
        raise UsageError(
            f"--daily and --iops contradict each other: writing {targets.daily_bytes} bytes per day takes "
            f"{needed:.0f} I/Os per second of this workload around the clock, and --iops asks for only "
            f"{targets.iops:.0f}"
        )


def check_level(
    targets: SweepTargets, outcome: LevelOutcome, endurance: int | None, endurance_reason: str
) -> Iterator[TargetCheck]:
    """Yield the check of each target at a level."""
    rate, iops = find_write_rate(outcome), outcome.find_iops()
    if targets.daily_bytes is not None and rate is not None and iops:
        value = ValueRange(rate * DAY_S, rate * DAY_S * iops.error_ratio)
        yield judge_value(TargetKind.DAILY, targets.daily_bytes, value, "")
    if targets.life_years is not None:
        waf = outcome.find_waf()
        reason = endurance_reason if endurance is None else _explain_missing(outcome, "waf")
        years = estimate_years(targets, waf, endurance)
        yield judge_value(TargetKind.LIFE, targets.life_years, years, reason)
    if targets.iops is not None:
        check = judge_value(TargetKind.IOPS, targets.iops, iops, _explain_missing(outcome, "iops"))
        if check.verdict is not TargetVerdict.MET and outcome.proven_figures.is_host_bound:
            reason = "this host was the limit, so the drive may be capable of more IOPS"
            check = TargetCheck(check.kind, check.wanted, check.value, TargetVerdict.UNKNOWN, reason)
        yield check
    if targets.p99_ns is not None:
        p99 = outcome.proven_figures.find_latency_range("p99")
        yield judge_value(TargetKind.P99, targets.p99_ns, p99, _explain_missing(outcome, "p99"))


def _explain_missing(outcome: LevelOutcome, name: str) -> str:
    missing = outcome.figures.missing
    known = missing.get(name) or missing.get(f"{name} (trace)") or missing.get(f"{name} (fio)")
    return known or outcome.strict.reason or "it was not measured"
