from __future__ import annotations

import dataclasses
from pathlib import Path

from opwatch.fio.logs import FioLog, parse_log
from opwatch.fio.phases import JobPhase, find_job_phases
from opwatch.fio.report import parse_report

GOOD = Path(__file__).parents[2] / "fixtures" / "good" / "fio"
REPORT = parse_report((GOOD / "two.txt").read_text())
MS = 10**6


def make_log(number: int, *times_ms: int) -> FioLog:
    rows = "".join(f"{time}, 9, 0, 0, 0\n" for time in times_ms)
    parsed = parse_log(rows.encode(), f"fio_clat.{number}.log")
    assert isinstance(parsed, FioLog)
    return parsed


def test_job_starts_before_its_first_row_and_lasts_its_reported_time() -> None:
    first, second = REPORT.jobs
    phases, why = find_job_phases(REPORT, [make_log(1, 5500, 6050), make_log(2, 6600, 7150)])
    assert why is None
    assert phases == [
        JobPhase("warm up", 5000 * MS, 5000 * MS + round((first.threads_s or 0) * 1e9)),
        JobPhase("steady", 6100 * MS, 6100 * MS + round((second.threads_s or 0) * 1e9)),
    ]


def test_last_row_of_a_job_is_written_after_its_end() -> None:
    runtime_ns = round((REPORT.jobs[0].threads_s or 0) * 1e9)
    late, _ = find_job_phases(REPORT, [make_log(1, 5500, 9000)])
    assert (late[0].begin_ns, late[0].end_ns) == (5000 * MS, 5000 * MS + runtime_ns)
    sparse, _ = find_job_phases(REPORT, [make_log(1, 5900)])
    assert (sparse[0].begin_ns, sparse[0].end_ns) == (5900 * MS - runtime_ns, 5900 * MS)


def test_clones_are_a_single_phase() -> None:
    clones = dataclasses.replace(REPORT, jobs=(REPORT.jobs[0], REPORT.jobs[0]))
    phases, why = find_job_phases(clones, [make_log(1, 5500, 6100), make_log(2, 5700, 6300)])
    assert why is None
    assert [(phase.begin_ns, phase.end_ns) for phase in phases] == [
        (5000 * MS, 5200 * MS + round((clones.jobs[0].threads_s or 0) * 1e9))
    ]


def test_indistinguishable_jobs_have_no_phases() -> None:
    phases, why = find_job_phases(REPORT, [make_log(number, 5500) for number in (1, 2, 3)])
    assert phases == [] and why is not None and "group_reporting" in why


def test_a_job_without_rows_is_named() -> None:
    phases, why = find_job_phases(REPORT, [make_log(2, 5500, 6100)])
    assert [phase.name for phase in phases] == ["steady"]
    short, long = (job.name for job in REPORT.jobs)
    assert why is not None and short in why and long not in why
    phases, why = find_job_phases(REPORT, [])
    assert phases == [] and why is not None and short not in why
