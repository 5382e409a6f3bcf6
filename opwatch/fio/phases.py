"""When each job of fio ran, by the clock of its logs. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from opwatch.fio.command import LOG_MS
from opwatch.fio.logs import FioLog, FioLogKind
from opwatch.fio.results import FioReport
from opwatch.frozen import frozen

_MS = 10**6
_LATENCIES = (FioLogKind.LATENCY, FioLogKind.COMPLETION)


@frozen
class JobPhase:
    """All clones of a job, from the begin of the first to the end of the last."""

    name: str
    begin_ns: int
    end_ns: int


def job_phases(report: FioReport, logs: Sequence[FioLog]) -> tuple[list[JobPhase], str | None]:
    """(phases, why not all of them are known), from logs with a row for every LOG_MS of CLOCK_MONOTONIC. A
    job began no later than that before its first row, and the last is written after its end, however long
    that takes: it lasted as long as its report says."""
    spans = _spans(logs)
    if not spans:
        return [], "no job ran long enough for a row in its logs"
    if len(spans) > len(report.jobs) or max(spans) > len(report.jobs):
        return [], "its report has groups of jobs together (group_reporting), and its logs are of single jobs"
    phases: dict[tuple[str, int], JobPhase] = {}
    for number, job in enumerate(report.jobs, 1):
        if number not in spans:
            continue
        first_ms, last_ms = spans[number]
        runtime_ns = round((job.threads_s or job.runtime_s) * 1e9)
        begin_ns = min((first_ms - LOG_MS) * _MS, last_ms * _MS - runtime_ns)
        end_ns = begin_ns + runtime_ns
        before = phases.get((job.name, job.group))
        if before:
            begin_ns, end_ns = min(begin_ns, before.begin_ns), max(end_ns, before.end_ns)
        phases[job.name, job.group] = JobPhase(job.name, begin_ns, end_ns)
    missing = [job.name for job in report.jobs if (job.name, job.group) not in phases]
    why = f"{', '.join(missing)}: too short for a row in its logs" if missing else None
    return sorted(phases.values(), key=lambda phase: phase.begin_ns), why


def _spans(logs: Sequence[FioLog]) -> Mapping[int, tuple[int, int]]:
    """(first, last) row of each job, in ms: of its latencies, which are written by itself."""
    spans: dict[int, tuple[int, int]] = {}
    for log in logs:
        if log.kind not in _LATENCIES or log.job is None:
            continue
        for row in log.rows():
            first, last = spans.get(log.job, (row.time_ms, row.time_ms))
            spans[log.job] = min(first, row.time_ms), max(last, row.time_ms)
    return spans
