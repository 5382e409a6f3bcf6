"""A complete sweep: its levels, the conclusions from all levels together, and the tested device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from opwatch.errors import NotEnoughData
from opwatch.steady.strict import StrictState
from opwatch.sweep.band import (
    MeasuredLevel,
    ModelBand,
    SpareFit,
    compute_band,
    fit_small_superblocks,
    fit_spare,
)
from opwatch.sweep.outcome import LevelOutcome
from opwatch.sweep.returns import (
    LevelGain,
    compute_level_gains,
    estimate_life_years,
    find_min_write_rate,
)


@dataclass(frozen=True, slots=True)
class ModelScale:
    """The scale of a simulated sweep.

    `error_ratios` are the relative WAF errors due to the scale, one per level.
    """

    profile: str
    ratio: float
    superblock_pages: int
    real_superblock_pages: int | None
    error_ratios: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class SweepResult:
    """The result of a sweep.

    `superblock_pages` is the drive's superblock size in pages, if known. `endurance_bytes` is the total NAND
    endurance, or None with the reason in `endurance_reason`. `is_uniform` is true if the workload is meant to
    write uniformly, which all amplification models here assume.
    """

    target: str
    method: str
    workload: str
    outcomes: tuple[LevelOutcome, ...]
    superblock_pages: int | None = None
    endurance_bytes: int | None = None
    endurance_reason: str = "the drive does not report its rated NAND endurance"
    model: ModelScale | None = None
    is_uniform: bool = True

    def with_endurance(self, endurance_bytes: int | None) -> SweepResult:
        """Return the result for a drive that endures this many NAND bytes, or the same for None."""
        return self if endurance_bytes is None else replace(self, endurance_bytes=endurance_bytes)

    def select_steady(self) -> Sequence[LevelOutcome]:
        """Return the levels in steady state or without a failed check.

        The figures of other levels do not describe the drive.
        """
        return [one for one in self.outcomes if one.strict.state is not StrictState.NOT_REACHED]

    def fit_levels(self) -> SpareFit | None:
        """Return the fit of the levels with a WAF.

        None if no level amplifies or no model covers the workload.
        """
        if not self.is_uniform:
            return None
        try:
            return fit_spare(
                [self._make_measured_level(one) for one in self._select_with_waf()], self.superblock_pages
            )
        except NotEnoughData:
            return None

    def find_least_flash_bytes(self, fit: SpareFit) -> float | None:
        """Return the T of small superblocks, or None if the superblocks are known or greedy does not fit."""
        if self.superblock_pages is not None or not any("greedy" in name for name in fit.alike):
            return None
        return fit_small_superblocks([self._make_measured_level(one) for one in self._select_with_waf()])

    def find_band(self, outcome: LevelOutcome, fit: SpareFit | None) -> ModelBand | None:
        """Return the models' WAF range for the known T, or else the fitted T."""
        if not self.is_uniform:
            return None
        used = outcome.level.active_bytes
        flash = outcome.level.active_flash_bytes or (fit.flash_bytes if fit else None)
        return None if flash is None else compute_band(flash / used, self.superblock_pages)

    def predict_waf(self, outcome: LevelOutcome, fit: SpareFit | None) -> float | None:
        """Return the fit's WAF for this level, measured or not."""
        return fit.model.waf(fit.flash_bytes / outcome.level.active_bytes) if fit else None

    def compute_gains(self) -> tuple[LevelGain, ...]:
        """Return the steps between the levels of which IOPS or WAF describe the drive."""
        usable = [one for one in self.outcomes if one.find_waf() or one.find_iops()]
        return compute_level_gains(usable, self.endurance_bytes)

    def estimate_years(self, outcome: LevelOutcome) -> float | None:
        return estimate_life_years(outcome, self.endurance_bytes, find_min_write_rate(self.outcomes))

    def _select_with_waf(self) -> Sequence[LevelOutcome]:
        return [one for one in self.outcomes if one.find_waf()]

    def _make_measured_level(self, outcome: LevelOutcome) -> MeasuredLevel:
        figures = outcome.figures
        return MeasuredLevel(outcome.level.active_bytes, figures.waf or 0.0, figures.waf_error or 0.0)
