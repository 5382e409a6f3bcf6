"""Judge series round by round as a sweep does, and count the outcomes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from opwatch.steady.strict import StrictState, StrictVerdict, judge_strict

from .series import MadeSeries

# Results farther off than this, and than their printed error, count as wrong.
_LIMIT, _FAR = 0.02, 0.10


@dataclass(frozen=True)
class SeriesOutcome:
    """The verdict with which a level would end. Deviations are from the long-run mean, or None."""

    series: MadeSeries
    verdict: StrictVerdict
    rounds: int
    waf_off: float | None
    iops_off: float | None

    @property
    def is_steady(self) -> bool:
        return self.verdict.state is not StrictState.NOT_REACHED

    @property
    def drive_writes(self) -> float:
        return (
            sum(one.host_bytes for one in self.series.rounds[: self.rounds]) / self.series.ground.active_bytes
        )

    @property
    def worst_off(self) -> float:
        return max(self.waf_off or 0.0, self.iops_off or 0.0)

    @property
    def is_visible(self) -> bool:
        """Return True unless the window looks like the mean: no rule can see what it does not show."""
        window = self.verdict.window
        return not window or self.series.is_visible(window.first_round - 1, self.rounds)

    def is_off(self, limit: float = _LIMIT) -> bool:
        """Return True if a printed figure is off by more than the limit and more than its printed error."""
        window = self.verdict.window
        if not self.is_steady or not window:
            return False
        pairs = ((self.waf_off, window.waf), (self.iops_off, window.iops))
        return any(off is not None and value and off > max(limit, value.error) for off, value in pairs)

    def describe(self) -> str:
        return (
            f"{self.series.kind}, {self.series.name}, after {self.drive_writes:.1f} drive writes: WAF off by "
            f"{100 * (self.waf_off or 0):.1f} %, IOPS by {100 * (self.iops_off or 0):.1f} %"
        )


def judge_series(series: MadeSeries, step: float = 0.1) -> SeriesOutcome:
    """Return the outcome of a sweep that asks after each round, or after each `step` drive writes."""
    ground = series.ground
    every = max(round(step * ground.active_bytes / series.rounds[0].host_bytes), 1)
    for count in (*range(5, len(series.rounds), every), len(series.rounds)):
        verdict = judge_strict(series.rounds[:count], ground)
        if verdict.state is not StrictState.NOT_REACHED:
            break
    whole = verdict.window.whole if verdict.window else None
    return SeriesOutcome(
        series,
        verdict,
        count,
        abs(whole.waf / series.waf - 1) if whole and whole.waf and series.waf else None,
        abs(whole.iops / series.iops - 1) if whole else None,
    )


@dataclass
class OutcomeTable:
    """Outcomes, counted by kind of series."""

    outcomes: list[SeriesOutcome] = field(default_factory=list)

    def add_series(self, series: MadeSeries) -> None:
        self.outcomes.append(judge_series(series))

    def format_rows(self) -> Iterator[str]:
        yield (
            f"{'kind':<16} {'series':>6} {'steady':>6} {'off 2 %':>7} {'off 10 %':>8} {'unseen':>6} "
            f"{'worst':>7} {'writes':>6}"
        )
        for kind in (*Counter(one.series.kind for one in self.outcomes), "all"):
            of_kind = [one for one in self.outcomes if kind in ("all", one.series.kind)]
            steady = [one for one in of_kind if one.is_steady]
            writes = sorted(one.drive_writes for one in steady)
            worst = max((one.worst_off for one in steady), default=0.0)
            off = [one for one in steady if one.is_off()]
            seen, far = (sum(one.is_visible and one.is_off(limit) for one in off) for limit in (_LIMIT, _FAR))
            yield (
                f"{kind:<16} {len(of_kind):>6} {len(steady):>6} {seen:>7} {far:>8} {len(off) - seen:>6} "
                f"{100 * worst:>5.1f} % " + (f"{writes[len(writes) // 2]:>6.1f}" if writes else f"{'-':>6}")
            )
