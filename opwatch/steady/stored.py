"""A verdict that was read from a document, without the rounds that led to it."""

from __future__ import annotations

from dataclasses import dataclass, field

from opwatch.steady.strict import StrictReport, StrictVerdict


@dataclass(frozen=True, slots=True)
class StoredVerdict(StrictVerdict):
    """Answers from its report. It has no window, because only the numbers of its rounds are stored."""

    report: StrictReport = field(kw_only=True)

    @property
    def reason(self) -> str:
        return self.report.reason or ""

    @property
    def is_amplification_proven(self) -> bool:
        return self.report.is_waf_proven

    @property
    def iops_error_ratio(self) -> float | None:
        return self.report.iops_error_ratio

    @property
    def window_rounds(self) -> tuple[int, int] | None:
        return self.report.window

    def to_report(self) -> StrictReport:
        return self.report


def restore_verdict(report: StrictReport) -> StoredVerdict:
    """Return the verdict of a report."""
    return StoredVerdict(state=report.state, checks=report.checks, window=None, report=report)
