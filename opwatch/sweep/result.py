"""A whole sweep: its levels, what follows from all of them together, and what they were measured on."""

from __future__ import annotations

from collections.abc import Sequence

from opwatch.errors import NotEnoughData
from opwatch.frozen import frozen
from opwatch.steady.strict import StrictState
from opwatch.sweep.band import MeasuredLevel, ModelBand, SpareFit, band_at, fit_spare
from opwatch.sweep.outcome import LevelOutcome
from opwatch.sweep.returns import LevelReturn, advice, level_returns, life_years, write_rate


@frozen
class ModelScale:
    """Says that a sweep was simulated, and at which size: `error_ratios` tell how far the size may lead WAF
    astray, one for each level."""

    profile: str
    ratio: float
    superblock_pages: int
    real_superblock_pages: int | None
    error_ratios: tuple[float, ...]


@frozen
class SweepResult:
    """What a sweep came to. `superblock_pages` are those of the drive where they are known;
    `endurance_bytes` is what its flash takes in all, None with the reason in `endurance_reason`.
    `is_uniform`: the workload is to write everywhere alike, which all models of amplification here are of."""

    target: str
    method: str
    workload: str
    outcomes: tuple[LevelOutcome, ...]
    superblock_pages: int | None = None
    endurance_bytes: int | None = None
    endurance_reason: str = "nobody says how many NAND bytes this drive takes"
    model: ModelScale | None = None
    is_uniform: bool = True

    def steady(self) -> Sequence[LevelOutcome]:
        """The levels that have reached a steady state, or of which at least nothing says that they have not:
        of the others no number is one of the drive."""
        return [one for one in self.outcomes if one.strict.state is not StrictState.NOT_REACHED]

    def fit(self) -> SpareFit | None:
        """The fit of the levels that have a WAF; None where none amplifies, or the workload has no model."""
        if not self.is_uniform:
            return None
        try:
            return fit_spare([self._measured(one) for one in self._with_waf()], self.superblock_pages)
        except NotEnoughData:
            return None

    def band(self, outcome: LevelOutcome, fit: SpareFit | None) -> ModelBand | None:
        """What models say of the T that is known, else of the fitted one."""
        if not self.is_uniform:
            return None
        used = outcome.level.active_bytes
        flash = outcome.level.active_flash_bytes or (fit.flash_bytes if fit else None)
        return None if flash is None else band_at(flash / used, self.superblock_pages)

    def predicted(self, outcome: LevelOutcome, fit: SpareFit | None) -> float | None:
        """The WAF that the fit has for this level, whether it was measured or not."""
        return fit.model.waf(fit.flash_bytes / outcome.level.active_bytes) if fit else None

    def returns(self) -> tuple[LevelReturn, ...]:
        return level_returns(self.steady(), self.endurance_bytes)

    def years(self, outcome: LevelOutcome) -> float | None:
        if outcome.strict.state is StrictState.NOT_REACHED:
            return None
        return life_years(outcome, self.endurance_bytes, write_rate(self.steady()))

    def advice(self) -> str:
        restless = [one for one in self.outcomes if one.strict.state is StrictState.NOT_REACHED]
        return advice(self.steady(), restless)

    def _with_waf(self) -> Sequence[LevelOutcome]:
        return [
            one
            for one in self.outcomes
            if one.figures.waf is not None
            and (one.strict.state is not StrictState.NOT_REACHED or one.strict.is_amplification_proven)
        ]

    def _measured(self, outcome: LevelOutcome) -> MeasuredLevel:
        figures = outcome.figures
        return MeasuredLevel(outcome.level.active_bytes, figures.waf or 0.0, figures.waf_error or 0.0)
