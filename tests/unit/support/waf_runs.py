"""Seeded runs on drives with a fake clock compared with the true values: for tests, and for the table in
docs/method-waf.md (`make waf-runs`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tests.unit.support.virtual_drive import MIB, MODELS, MeasuredRun, Model, measure_drive


@dataclass(frozen=True)
class Scenario:
    """Use of the drive and the measurement."""

    name: str
    seconds: float
    refresh_s: float = 0.0
    every_s: float = 1.0
    settle: bool = True
    steps: int = 50

    def run(self, model: Model, seed: int) -> MeasuredRun:
        work = max(4 * 10**9, self.steps * model.nand_quantum)
        return measure_drive(
            model,
            seed,
            work_bytes=work,
            seconds=self.seconds,
            refresh_s=self.refresh_s,
            every_s=self.every_s,
            settle=self.settle,
        )

    def compute_min_error(self, model: Model, outcome: MeasuredRun) -> float:
        """Return the smallest possible relative error in the worst case: a step of either counter, the age of
        a page at the start, and two polls at either end. The kernel's count is no better than the drive's,
        because only the drive shows that no write failed."""
        # With too few changes to learn a page's age, only counts on the same page are from the same moment.
        short = self.seconds < 3 * self.every_s and model.nand_quantum > 1
        host_step = model.nand_quantum if short else model.host_quantum
        steps = (1 + model.nand_quantum / outcome.nand) / max(1 - host_step / outcome.host, 0.5) - 1
        aged = 0.0
        if self.refresh_s:
            # The middle may be wrong by half of the age; rates vary by a half.
            aged = (self.refresh_s + 2 * self.every_s) / 2
            if not self.settle:
                # With two pages the same holds at the end; a single page is from one moment at either end.
                aged = 2 * self.every_s if model.has_shared_page else 2 * aged
            aged *= 1.5 / self.seconds
        return steps + aged


SCENARIOS = (
    Scenario("pages are live", 60),
    Scenario("live, 2 s only", 2, steps=4),
    Scenario("pages are 7 s old", 60, refresh_s=7),
    Scenario("7 s old, no wait", 60, refresh_s=7, settle=False),
    Scenario("10 minutes old", 5400, refresh_s=600, every_s=10, steps=1000),
    Scenario("10 minutes old, no wait", 5400, refresh_s=600, every_s=10, settle=False, steps=1000),
)


@dataclass(frozen=True)
class ScenarioRuns:
    """All runs of one drive in one scenario."""

    model: Model
    scenario: Scenario
    runs: list[MeasuredRun]
    seeds: range

    @property
    def wrong_seeds(self) -> list[int]:
        """Return the seeds with the true value outside the error."""
        return [
            seed for seed, outcome in zip(self.seeds, self.runs, strict=True) if not outcome.is_within_error()
        ]

    @property
    def answered_runs(self) -> list[MeasuredRun]:
        return [outcome for outcome in self.runs if outcome.measured.waf is not None]

    @property
    def relative_errors(self) -> list[float]:
        """Return the relative errors as printed, sorted."""
        return sorted(
            outcome.measured.error / outcome.measured.waf
            for outcome in self.answered_runs
            if outcome.measured.waf and outcome.measured.error is not None
        )

    @property
    def excess_errors(self) -> list[float]:
        """Return errors divided by the smallest possible error, if above one and a half."""
        ratios = [
            outcome.measured.error
            / outcome.measured.waf
            / self.scenario.compute_min_error(self.model, outcome)
            for outcome in self.answered_runs
            if outcome.measured.waf and outcome.measured.error is not None
        ]
        return [ratio for ratio in ratios if ratio > 1.5]


def run_scenario(model: Model, scenario: Scenario, seeds: range) -> ScenarioRuns:
    return ScenarioRuns(model, scenario, [scenario.run(model, seed) for seed in seeds], seeds)


def run_scenarios(seeds: range) -> Iterator[ScenarioRuns]:
    for scenario in SCENARIOS:
        for model in MODELS:
            yield run_scenario(model, scenario, seeds)


__all__ = ["MIB", "MODELS", "SCENARIOS", "ScenarioRuns", "Scenario", "run_scenario", "run_scenarios"]
