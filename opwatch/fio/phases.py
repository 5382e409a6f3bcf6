"""Compute the time span of each fio job, on the clock of its logs. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from opwatch.fio.command import LOG_MS
from opwatch.fio.logs import FioLog, FioLogKind
from opwatch.fio.results import FioReport

_MS = 10**6
_LATENCIES = (FioLogKind.LATENCY, FioLogKind.COMPLETION)


@dataclass(frozen=True, slots=True)
class JobPhase:
    """The span of a job with all its clones, from the first start to the last end."""

    name: str
    begin_ns: int
    end_ns: int


def find_job_phases(report: FioReport, logs: Sequence[FioLog]) -> tuple[list[JobPhase], str | None]:
    """Return (phases, the reason why some are missing or None).

    The logs must have a row per LOG_MS on CLOCK_MONOTONIC. A job started LOG_MS or more before its first
    row. fio may write the last row long after the job's end, so the duration comes from the report.
    """
    spans = _find_spans(logs)
    if not spans:
        return [], "no job ran long enough for a row in its logs"
    if len(spans) > len(report.jobs) or max(spans) > len(report.jobs):
        return [], "its report combines jobs (group_reporting), but its logs are per job"
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


def _find_spans(logs: Sequence[FioLog]) -> Mapping[int, tuple[int, int]]:
    """Return each job's (first, last) row time in ms.

    Only latency logs count because the job itself writes them.
    """
    spans: dict[int, tuple[int, int]] = {}
    for log in logs:
        if log.kind not in _LATENCIES or log.job is None:
            continue
        for row in log.iter_rows():
            first, last = spans.get(log.job, (row.time_ms, row.time_ms))
            spans[log.job] = min(first, row.time_ms), max(last, row.time_ms)
    return spans
