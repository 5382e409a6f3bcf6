"""What a step between two levels of over-provisioning gains, and the capacity that it costs. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from opwatch.sweep.outcome import LevelOutcome
from opwatch.sweep.ranges import ValueRange, compute_quotient

YEAR_S = 365.25 * 86400
# Smaller gains in IOPS or WAF do not count: a steady-state verdict tolerates the same drift.
MIN_GAIN = 0.02


class StepWorth(StrEnum):
    """What a step is worth.

    A step pays if it gains a larger share of IOPS, or of the bytes that the drive can take in its life, than
    the share by which a byte in use becomes more expensive.
    """

    PAYS = "pays"
    COSTS_MORE = "costs more"  # it gains less than it costs
    NOTHING = "nothing"  # it gains less than 2 %
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class LevelGain:
    """The gain of a step between neighbouring levels.

    `percents` is the step's size in percent of (C-U)/U. `iops` is the ratio of IOPS and `writes` that of the
    host bytes per NAND byte, which is also the ratio of lives; both are above 1 for a gain, and None if not
    measured. `years` is the life gained at a write rate sustained by every level.
    """

    begin: LevelOutcome
    end: LevelOutcome
    percents: float
    iops: ValueRange | None
    writes: ValueRange | None
    years: float | None

    @property
    def iops_ratio(self) -> float | None:
        return self.iops.value if self.iops else None

    @property
    def waf_ratio(self) -> float | None:
        return 1 / self.writes.value if self.writes else None

    @property
    def iops_per_percent(self) -> float | None:
        """Return the relative growth of IOPS per percent."""
        return self.iops.value ** (1 / self.percents) - 1 if self.iops else None

    @property
    def waf_per_percent(self) -> float | None:
        """Return the relative decrease of WAF per percent."""
        return 1 - self.writes.value ** (-1 / self.percents) if self.writes else None

    @property
    def lost_bytes(self) -> int:
        """Return the capacity that the step gives up."""
        return self.begin.level.usable_bytes - self.end.level.usable_bytes

    @property
    def cost_ratio(self) -> float:
        """Return the share by which a byte in use becomes more expensive."""
        return self.lost_bytes / self.end.level.usable_bytes

    @property
    def worth(self) -> StepWorth:
        """Return what the step is worth.

        More spare area raises IOPS by lowering WAF. A proven absence of a gain in WAF is therefore enough,
        even if IOPS are unknown. The converse does not hold, because an interface may limit IOPS.
        """
        least = max(MIN_GAIN, self.cost_ratio)
        gains = [one for one in (self._find_drive_iops(), self.writes) if one]
        if any(one.low - 1 > least for one in gains):
            return StepWorth.PAYS
        if self.writes is None or self.writes.high - 1 > least:
            return StepWorth.UNKNOWN
        gains = [one for one in gains if one.value - 1 > MIN_GAIN]
        return StepWorth.COSTS_MORE if gains or self.writes.high - 1 > MIN_GAIN else StepWorth.NOTHING

    @property
    def is_gain(self) -> bool | None:
        """Return whether the step gains 2 % in IOPS or WAF, or None if that is unknown."""
        gains = [one for one in (self._find_drive_iops(), self.writes) if one]
        if any(one.low - 1 > MIN_GAIN for one in gains):
            return True
        return False if self.writes and self.writes.high - 1 <= MIN_GAIN else None

    @property
    def has_iops_loss(self) -> bool:
        """Return True if IOPS are lower than at the previous level by more than the error."""
        if self.end.figures.is_host_bound or self.iops is None:
            return False
        return self.iops.high - 1 < -MIN_GAIN

    def _find_drive_iops(self) -> ValueRange | None:
        """Return the ratio of IOPS, or None where this host was the limit at the beginning."""
        return None if self.begin.figures.is_host_bound else self.iops


def sort_levels(outcomes: Sequence[LevelOutcome]) -> list[LevelOutcome]:
    """Return the levels sorted by increasing over-provisioning."""
    return sorted(outcomes, key=lambda outcome: -outcome.level.usable_bytes)


def estimate_life_years(
    outcome: LevelOutcome, endurance_bytes: int | None, rate: float | None
) -> float | None:
    """Return the years until the NAND endurance is used up if the host writes `rate` bytes per second."""
    if endurance_bytes is None or not rate or not outcome.proven_figures.waf:
        return None
    return endurance_bytes / (rate * outcome.proven_figures.waf) / YEAR_S


def find_write_rate(outcome: LevelOutcome) -> float | None:
    """Return the host's write rate in steady state in bytes per second, or None without a steady state."""
    window = outcome.find_window()
    if window is None or outcome.proven_figures.iops is None:
        return None
    return window.host_bytes / window.seconds


def find_min_write_rate(outcomes: Sequence[LevelOutcome]) -> float | None:
    """Return the lowest host write rate of all levels in bytes per second, which every level sustains."""
    rates = [rate for outcome in outcomes if (rate := find_write_rate(outcome)) is not None]
    return min(rates, default=None)


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
                iops=compute_quotient(end.find_iops(), begin.find_iops()),
                writes=compute_quotient(begin.find_waf(), end.find_waf()),
                years=years,
            )
        )
    return tuple(steps)
