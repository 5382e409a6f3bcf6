"""The gain per percent of over-provisioning: IOPS, write amplification, and years of life. Pure."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from opwatch.sweep.outcome import LevelOutcome

_YEAR_S = 365.25 * 86400
# Smaller gains in IOPS or WAF do not count: a steady-state verdict tolerates the same drift.
_MIN_GAIN = 0.02
_NO_AMPLIFICATION = 1.02


@dataclass(frozen=True, slots=True)
class LevelGain:
    """The gain of a step between neighbouring levels.

    Ratios are given for the whole step and per percent; `percents` is the step's size in percent of (C-U)/U.
    `years` is the life gained at a write rate sustained by every level. `iops_error` is the relative error of
    the IOPS ratio.
    """

    begin: LevelOutcome
    end: LevelOutcome
    percents: float
    iops_ratio: float | None
    waf_ratio: float | None
    years: float | None
    iops_error: float = 0.0

    @property
    def iops_per_percent(self) -> float | None:
        """Return the relative growth of IOPS per percent."""
        return None if self.iops_ratio is None else self.iops_ratio ** (1 / self.percents) - 1

    @property
    def waf_per_percent(self) -> float | None:
        """Return the relative decrease of WAF per percent."""
        return None if self.waf_ratio is None else 1 - self.waf_ratio ** (1 / self.percents)

    @property
    def is_gain(self) -> bool | None:
        """Return whether the step gains IOPS or WAF.

        None if neither shows a gain, and IOPS or WAF were not measured or are too uncertain.
        """
        gains = [self._has_iops_gain, None if self.waf_ratio is None else 1 - self.waf_ratio > _MIN_GAIN]
        if True in gains:
            return True
        return None if None in gains else False

    @property
    def has_iops_loss(self) -> bool:
        """Return True if IOPS are lower than at the previous level by more than the error."""
        if self.end.figures.is_host_bound or self._iops_gain_range is None:
            return False
        return self._iops_gain_range[1] < -_MIN_GAIN

    @property
    def _iops_gain_range(self) -> tuple[float, float] | None:
        """Return the smallest and largest plausible relative gain."""
        if self.iops_ratio is None:
            return None
        return (
            self.iops_ratio * (1 - self.iops_error) - 1,
            self.iops_ratio * (1 + self.iops_error) - 1,
        )

    @property
    def _has_iops_gain(self) -> bool | None:
        if self._iops_gain_range is None:
            return None
        least, most = self._iops_gain_range
        if self.begin.figures.is_host_bound:
            return None
        if least > _MIN_GAIN:
            return True
        if self.end.figures.is_host_bound:
            return None
        return None if most > _MIN_GAIN else False


def sort_levels(outcomes: Sequence[LevelOutcome]) -> list[LevelOutcome]:
    """Return the levels sorted by increasing over-provisioning."""
    return sorted(outcomes, key=lambda outcome: -outcome.level.usable_bytes)


def estimate_life_years(
    outcome: LevelOutcome, endurance_bytes: int | None, rate: float | None
) -> float | None:
    """Return the years until the NAND endurance is used up if the host writes `rate` bytes per second."""
    if endurance_bytes is None or not rate or not outcome.figures.waf:
        return None
    return endurance_bytes / (rate * outcome.figures.waf) / _YEAR_S


def find_min_write_rate(outcomes: Sequence[LevelOutcome]) -> float | None:
    """Return the lowest host write rate of all levels in bytes per second, which every level sustains."""
    windows = [outcome.strict.window for outcome in outcomes]
    rates = [window.whole.host_bytes / window.whole.seconds for window in windows if window]
    return min(rates) if rates else None


def compute_level_gains(
    outcomes: Sequence[LevelOutcome], endurance_bytes: int | None = None
) -> tuple[LevelGain, ...]:
    """Return an entry for each step between neighbouring levels."""
    ordered = sort_levels(outcomes)
    rate = find_min_write_rate(ordered)
    steps = []
    for begin, end in itertools.pairwise(ordered):
        lives = [estimate_life_years(outcome, endurance_bytes, rate) for outcome in (begin, end)]
        years = None if lives[0] is None or lives[1] is None else lives[1] - lives[0]
        steps.append(
            LevelGain(
                begin=begin,
                end=end,
                percents=100 * (end.level.of_used_ratio - begin.level.of_used_ratio),
                iops_ratio=_compute_ratio(begin.figures.iops, end.figures.iops),
                waf_ratio=_compute_ratio(begin.figures.waf, end.figures.waf),
                years=years,
                iops_error=math.hypot(*(_find_iops_error(outcome) for outcome in (begin, end))),
            )
        )
    return tuple(steps)


def _find_iops_error(outcome: LevelOutcome) -> float:
    window = outcome.strict.window
    return window.iops.error if window and window.iops else 0.0


def _compute_ratio(begin: float | None, end: float | None) -> float | None:
    return None if not begin or end is None else end / begin


def format_advice(outcomes: Sequence[LevelOutcome], restless: Sequence[LevelOutcome] = ()) -> str:
    """Return one sentence on whether more over-provisioning would help.

    The sentence is about the measured levels only; `restless` are the levels without steady state.
    """
    if not outcomes:
        return _advise_without_steady(restless)
    ordered = sort_levels(outcomes)
    if worst := _find_max_waf(ordered):
        return (
            f"this drive does not amplify what this workload writes (WAF {worst:.2f}): more OP will not help"
        )
    steps = compute_level_gains(ordered)
    if not steps:
        return "one level cannot show what more OP gives"
    helping = [at for at, step in enumerate(steps) if step.is_gain]
    behind = steps[helping[-1] + 1 :] if helping else steps
    if any(step.is_gain is None for step in behind):
        return _advise_without_gain(behind, f"beyond {behind[0].begin.level.label} " if helping else "")
    if not helping:
        return "no level gains 2 % over the one before: more OP will not help"
    last = steps[helping[-1]].end
    if behind:
        return f"beyond {last.level.label} no level gains 2 %: more OP will not help"
    paid = (
        f"every step up to {last.level.label} has a gain"
        if len(helping) == len(steps)
        else f"{last.level.label} still gains over the level before"
    )
    return f"{paid}{_format_losses(steps)}; more OP was not measured"


def _format_losses(steps: Sequence[LevelGain]) -> str:
    """Return a note on steps with a better WAF but fewer IOPS, or an empty text."""
    losing = [step.end.level.label for step in steps if step.is_gain and step.has_iops_loss]
    return f" ({', '.join(losing)} only in WAF, with fewer IOPS)" if losing else ""


def _advise_without_steady(outcomes: Sequence[LevelOutcome]) -> str:
    """Return the advice if no level is steady.

    The only possible conclusion is WAF near 1, provided WAF is proven for all levels.
    """
    proven = [outcome for outcome in outcomes if outcome.strict.is_amplification_proven]
    worst = _find_max_waf(proven)
    if not worst or len(proven) < len(outcomes):
        return "no level reached steady state: the effect of more OP is unknown"
    return (
        f"this drive does not amplify what this workload writes (WAF {worst:.2f}): more OP cannot lower "
        "that; IOPS and latency are not in steady state, so its effect on them is unknown"
    )


def _find_max_waf(outcomes: Sequence[LevelOutcome]) -> float | None:
    """Return the largest WAF if no level amplifies, errors included; otherwise None."""
    most = 0.0
    for outcome in outcomes:
        waf = outcome.figures.waf
        if waf is None or waf + (outcome.figures.waf_error or 0.0) > _NO_AMPLIFICATION:
            return None
        most = max(most, waf)
    return most


def _advise_without_gain(steps: Sequence[LevelGain], where: str) -> str:
    """Return the advice for steps without a proven gain, where IOPS or WAF are missing or too uncertain."""
    if all(step.iops_ratio is not None and step.waf_ratio is not None for step in steps):
        if any(step.begin.figures.is_host_bound or step.end.figures.is_host_bound for step in steps):
            return (
                f"{where}no level lowers WAF by 2 %, and IOPS are limited by this host, not by the "
                "drive: whether more OP gives more IOPS is unknown"
            )
        worst = max(step.iops_error for step in steps)
        return (
            f"{where}no level lowers WAF by 2 %, and IOPS have an error of {100 * worst:.2g} %: whether "
            "more OP helps is unknown"
        )
    if all(step.iops_ratio is not None for step in steps):
        measured, missing = "2 % more IOPS", "WAF was"
    elif all(step.waf_ratio is not None for step in steps):
        measured, missing = "2 % less WAF", "IOPS were"
    else:
        return "neither IOPS nor WAF was measured at all of the last levels: the effect of more OP is unknown"
    return f"{where}no level gives {measured}, and {missing} not measured: whether more OP helps is unknown"
