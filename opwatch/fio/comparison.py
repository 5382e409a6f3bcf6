"""Compare fio's figures for each job with opwatch's figures for the disks in the same time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from opwatch.fio.recorded import read_fio_report
from opwatch.fio.results import FioJob, FioReport
from opwatch.recording.reading.phases import Phase, list_phases, select_phase
from opwatch.recording.reading.reader import RecordedRun
from opwatch.recording.reading.window import close_run
from opwatch.samples.observation import Observation
from opwatch.samples.presenter import RunPresenter

# The percentiles of a watch also printed by fio by default.
PERCENTAGES = {"p50": 50.0, "p99": 99.0, "p99_9": 99.9}
# fio prints the midpoint of a bin; an octave has 64 bins.
PERCENTILE_ERROR = 1 / 128


@dataclass(frozen=True, slots=True)
class MeasuredRow:
    """The figures of one operation, from fio or from opwatch.

    `percentiles_ns` has None for unknown values. `device` is None for fio's figures, whose
    `own_percentiles_ns` has all percentiles by percentage, rounded down to `quantum_ns`.
    """

    requests: int
    mean_ns: float | None
    percentiles_ns: dict[str, float | None]
    device: str | None = None
    own_percentiles_ns: Mapping[float, int] = field(default_factory=dict)
    quantum_ns: int = 1


@dataclass(frozen=True, slots=True)
class JobComparison:
    """One operation of one job: fio's row, and one row per disk with such requests.

    The disks' rows cover `phase`, or the whole run if None because the job has no phase. With `is_imported`,
    no disk was watched: the recording was imported from fio's report.
    """

    job: str
    op: str
    phase: Phase | None
    fio: MeasuredRow
    disks: tuple[MeasuredRow, ...]
    is_imported: bool = False


def compare_with_fio(run: RecordedRun) -> list[JobComparison]:
    """Return the figures of fio and opwatch for each job; empty if the recording has no fio report."""
    report = read_fio_report(run)
    if report and "imported" in run.header:
        return [
            row
            for name, job in zip(report.job_names, report.jobs, strict=True)
            for row in _make_job_rows(replace(job, name=name), None, None)
        ]
    return _make_rows(report, run) if report else []


def _make_rows(report: FioReport, run: RecordedRun) -> list[JobComparison]:
    phases = list_phases(run)
    by_name = {phase.name: phase for phase in phases}
    rows: list[JobComparison] = []
    summaries: dict[Phase | None, list[Observation]] = {}
    for job in report.jobs:
        # Phases of the same name cannot be assigned to jobs.
        is_alone = sum(phase.name == job.name for phase in phases) == 1
        phase = by_name[job.name] if is_alone else None
        if phase not in summaries:
            summaries[phase] = _collect_summaries(run, phase)
        rows += _make_job_rows(job, phase, summaries[phase])
    return rows


def _make_job_rows(
    job: FioJob, phase: Phase | None, summaries: Iterable[Observation] | None
) -> list[JobComparison]:
    """Return the rows of a job. Without summaries, the job is imported."""
    rows = []
    for op, operation in job.operations.items():
        latency = operation.reported_latency
        if not operation.requests or latency is None:
            continue
        values: dict[str, float | None] = {
            name: latency.percentiles.get(percentage) for name, percentage in PERCENTAGES.items()
        }
        own = MeasuredRow(
            operation.requests,
            latency.mean_ns,
            values,
            own_percentiles_ns=latency.percentiles,
            quantum_ns=latency.quantum_ns,
        )
        disks = tuple(_make_disk_rows(op, summaries or ()))
        rows.append(JobComparison(job.name, op, phase, own, disks, is_imported=summaries is None))
    return rows


def _make_disk_rows(op: str, summaries: Iterable[Observation]) -> Iterable[MeasuredRow]:
    for summary in summaries:
        counted = summary.interval.ops.get(op)
        if counted is None or not counted.count:
            continue
        quantiles = {name: counted.latency.quantiles[name] for name in PERCENTAGES}
        yield MeasuredRow(counted.count, counted.latency.mean, quantiles, summary.device)


def _collect_summaries(run: RecordedRun, phase: Phase | None) -> list[Observation]:
    """Return the totals per disk of a phase or of the whole run."""
    chosen = select_phase(run, phase) if phase else close_run(run.iter_entries())
    story, finals = RunPresenter(), []
    for entry in chosen:
        for news in story.process_entry(entry):
            if isinstance(news, Observation) and news.final:
                finals.append(news)
    return finals
