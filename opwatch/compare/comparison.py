"""Compare all metrics of runs side by side, and decide which differ. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from opwatch.compare.amplification import estimate_waf
from opwatch.compare.cpu import COMMAND_IO, CPU_METRICS, estimate_command_cpu, estimate_cpu
from opwatch.compare.differences import FAMILY_ERROR_RATE, Difference, compare_estimates, is_comparable
from opwatch.compare.estimates import METRICS, Estimate, OpEstimator
from opwatch.compare.pairing import DiskPairs
from opwatch.compare.sampling import DiskTimeline, SampledRun
from opwatch.counters.catalogue.families import Catalogue
from opwatch.trace.ops import OPS

WAF = "waf"
_NO_DATA = Estimate(None, reason="one of the runs has no such requests")
_NO_REQUESTS = Estimate(0.0, reason="one of the runs has no such requests")


@dataclass(frozen=True, slots=True)
class ComparedRow:
    """One metric of all runs, and the difference of each further run from the first. `op` is None for metrics
    of the whole disk."""

    op: str | None
    metric: str
    estimates: tuple[Estimate, ...]
    differences: tuple[Difference, ...]


@dataclass(frozen=True, slots=True)
class ComparedDisk:
    """The compared disk of each run, with all metrics."""

    courses: tuple[DiskTimeline, ...]
    rows: tuple[ComparedRow, ...]


@dataclass(frozen=True, slots=True)
class RunComparison:
    """The result of comparing recordings. `claims` is the number of metrics that could have differed, per
    further run."""

    files: tuple[str, ...]
    disks: tuple[ComparedDisk, ...]
    claims: tuple[int, ...]
    notes: tuple[str, ...]


_Figures = dict[tuple[str | None, str], tuple[Estimate, ...]]


def compare_runs(
    runs: Sequence[SampledRun],
    files: Sequence[str],
    pairs: DiskPairs,
    ops: Sequence[str],
    catalogue: Callable[[], Catalogue],
) -> RunComparison:
    """Compare runs for the operations `ops`, or for all operations if `ops` is empty."""
    figures = [_collect_estimates(runs, courses, ops, catalogue) for courses in pairs.rows]
    # All metrics of two runs share one error probability, across disks.
    claims = tuple(
        sum(is_comparable(estimates[0], estimates[other]) for one in figures for estimates in one.values())
        for other in range(1, len(runs))
    )
    disks = [
        ComparedDisk(courses, tuple(_make_row(key, estimates, claims) for key, estimates in one.items()))
        for courses, one in zip(pairs.rows, figures, strict=True)
    ]
    return RunComparison(tuple(files), tuple(disks), claims, pairs.notes)


def _make_row(
    key: tuple[str | None, str], estimates: tuple[Estimate, ...], claims: Sequence[int]
) -> ComparedRow:
    differences = tuple(
        compare_estimates(estimates[0], other, FAMILY_ERROR_RATE / max(count, 1))
        for other, count in zip(estimates[1:], claims, strict=True)
    )
    return ComparedRow(*key, estimates, differences)


def _collect_estimates(
    runs: Sequence[SampledRun],
    courses: tuple[DiskTimeline, ...],
    ops: Sequence[str],
    catalogue: Callable[[], Catalogue],
) -> _Figures:
    figures: _Figures = {}
    for op in OPS:
        if (ops and op not in ops) or not any(op in course.ops for course in courses):
            continue
        of_runs = [
            OpEstimator(course, op).estimate_all() if op in course.ops else _make_empty_estimates()
            for course in courses
        ]
        for metric in METRICS:
            figures[op, metric] = tuple(of_run[metric] for of_run in of_runs)
    if not ops or "write" in ops:
        wafs = [
            estimate_waf(run.looks.get(course.drive or "", ()), catalogue)
            for run, course in zip(runs, courses, strict=True)
        ]
        figures[None, WAF] = tuple(wafs)
    of_machines = [estimate_cpu(course) for course in courses]
    for metric in CPU_METRICS:
        figures[None, metric] = tuple(of_run[metric] for of_run in of_machines)
    if any(run.command_s is not None for run in runs):
        figures[None, COMMAND_IO] = tuple(map(estimate_command_cpu, runs, courses))
    return figures


def _make_empty_estimates() -> dict[str, Estimate]:
    rates = dict.fromkeys(("iops", "mbps"), _NO_REQUESTS)
    return dict.fromkeys(METRICS, _NO_DATA) | rates
