"""What fio measured of each job, and what was measured of the disks in the same time."""

from __future__ import annotations

from collections.abc import Iterable

from opwatch.fio.kept import kept_report
from opwatch.fio.results import FioJob, FioReport
from opwatch.frozen import frozen
from opwatch.recording.reading.phases import Phase, entries_within, phases_of
from opwatch.recording.reading.reader import RecordedRun
from opwatch.recording.reading.window import ended
from opwatch.samples.observation import Observation
from opwatch.samples.story import Story

# The percentiles of a watch that fio prints where it was not asked for others.
PERCENTAGES = {"p50": 50.0, "p99": 99.0, "p99_9": 99.9}


@frozen
class MeasuredRow:
    """One operation as fio or we measured it. `percentiles_ns` has None for what is not known; `device` is
    None in fio's own."""

    requests: int
    mean_ns: float | None
    percentiles_ns: dict[str, float | None]
    device: str | None = None


@frozen
class JobBeside:
    """One operation of one job: fio's row, and one of each disk that had any. `phase` is the time that ours
    are of; None for the whole run, where the job is no phase."""

    job: str
    op: str
    phase: Phase | None
    fio: MeasuredRow
    disks: tuple[MeasuredRow, ...]


def beside(run: RecordedRun) -> list[JobBeside]:
    """What fio and we measured of each job. It is empty where no report of fio is in the recording."""
    report = kept_report(run)
    return _rows(report, run) if report else []


def _rows(report: FioReport, run: RecordedRun) -> list[JobBeside]:
    phases = phases_of(run)
    by_name = {phase.name: phase for phase in phases}
    rows: list[JobBeside] = []
    summaries: dict[Phase | None, list[Observation]] = {}
    for job in report.jobs:
        # Of several phases of one name nobody knows which is this job's.
        is_alone = sum(phase.name == job.name for phase in phases) == 1
        phase = by_name[job.name] if is_alone else None
        if phase not in summaries:
            summaries[phase] = _summaries(run, phase)
        rows += _of_job(job, phase, summaries[phase])
    return rows


def _of_job(job: FioJob, phase: Phase | None, summaries: Iterable[Observation]) -> list[JobBeside]:
    rows = []
    for op, operation in job.operations.items():
        latency = operation.latency
        if not operation.requests or latency is None:
            continue
        values: dict[str, float | None] = {
            name: latency.percentiles.get(percentage) for name, percentage in PERCENTAGES.items()
        }
        fio = MeasuredRow(operation.requests, latency.mean_ns, values)
        rows.append(JobBeside(job.name, op, phase, fio, tuple(_of_disks(op, summaries))))
    return rows


def _of_disks(op: str, summaries: Iterable[Observation]) -> Iterable[MeasuredRow]:
    for summary in summaries:
        counted = summary.interval.ops.get(op)
        if counted is None or not counted.count:
            continue
        quantiles = {name: counted.latency.quantiles[name] for name in PERCENTAGES}
        yield MeasuredRow(counted.count, counted.latency.mean, quantiles, summary.device)


def _summaries(run: RecordedRun, phase: Phase | None) -> list[Observation]:
    """The sums of a phase, or of all of the run, disk by disk."""
    chosen = entries_within(run, phase) if phase else ended(run.entries())
    story, finals = Story(), []
    for entry in chosen:
        for news in story.take(entry):
            if isinstance(news, Observation) and news.final:
                finals.append(news)
    return finals
