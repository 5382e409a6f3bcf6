"""Import fio logs (write_bw_log and similar), alone or with the report of the same run. Pure.

Each job is divided into intervals of log_avg_msec, or of one second if a log has a row per request.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

from opwatch.errors import BadInput
from opwatch.fio.logs import FioHistogramLog, FioLog, FioLogKind, FioLogRow, parse_log
from opwatch.fio.recorded import REPORT_NAME
from opwatch.fio.report import extract_json, parse_report
from opwatch.fio.results import FioReport
from opwatch.foreign import decode_text
from opwatch.imports.disk import ImportedDisk, ImportedRun, OpCounts
from opwatch.imports.fio_threads import LoggedTotal, LogThreads
from opwatch.imports.source import ImportedFile
from opwatch.samples.entries import RunEntry
from opwatch.trace.unavailable import CPU, DEPTH, ERRORS, ISSUED, MAXIMUM, PERCENTILES, TRUST

_NS_PER_S = 10**9
_NS_PER_MS = 10**6
# Interval length for logs with a row per request.
_STEP_MS = 1000
# A row may be some milliseconds late, which shortens the gap to the next row.
_MIN_GAP, _MAX_GAP = 0.75, 1.5
_MAX_STEPS = 1 << 16
# Values above this are milliseconds since 1970, at dates after 2001; no clock that starts at boot reaches
# them.
_MIN_WALL_MS, _MAX_MS = 10**12, 9 * 10**12
_MISSING = (
    f"{ERRORS}: fio's logs do not contain them",
    f"{ISSUED}: fio's logs contain completed requests only",
    f"{TRUST}: fio does not report losses",
    f"{CPU}: fio's logs do not contain it",
)
_MEANS = "fio's logs contain only means of intervals (log_avg_msec)"
_ROUNDED = (
    "fio: logs with log_avg_msec have whole requests and KiB per second, from which counts are computed"
)
_NO_CLOCK = "fio: logs without log_alternate_epoch start at 0 with each job, so the jobs overlap"
_NO_TIME = "fio: the logs do not contain the date and time"
# Latency since submission, as in a report; otherwise since fio started on the request.
_LATENCIES = (FioLogKind.COMPLETION, FioLogKind.LATENCY)


@dataclass(slots=True)
class _IntervalTotals:
    """Totals of one operation in one interval. `sum_ns` is computed from the log's means, if the log has
    means."""

    requests: float = 0.0
    bytes: float = 0.0
    sum_ns: float = 0.0
    latencies: defaultdict[int, int] = field(default_factory=lambda: defaultdict(int))


@dataclass(frozen=True, slots=True)
class _Intervals:
    """The intervals common to all logs, numbered from 1."""

    begin_ms: int
    end_ms: int
    step_ms: int
    # Whether a row describes the time before it; such rows are some milliseconds early or late.
    has_means: bool

    @property
    def step_count(self) -> int:
        end_ms = self.end_ms - (self.step_ms / 2 if self.has_means else 0)
        return max(math.ceil((end_ms - self.begin_ms) / self.step_ms), 1)

    def find_step(self, time_ms: float) -> int:
        """Return the number of the interval that contains or ends at this time."""
        return min(max(math.ceil((time_ms - self.begin_ms) / self.step_ms), 1), self.step_count)


class _Job:
    """The logs of one job, at most one of each kind. `average_ms` is log_avg_msec, None if unknown."""

    def __init__(self, number: int | None, logs: Mapping[FioLogKind, FioLog], average_ms: int | None) -> None:
        self.number, self.logs = number, logs
        self.name = "all jobs" if number is None else f"job {number}"
        latency = next((kind for kind in _LATENCIES if kind in logs), None)
        self.latency = logs[latency] if latency else None
        # A row for a single request includes its size, so any such log lists all requests.
        singles = [log for log in (self.latency, *logs.values()) if log and _has_row_per_request(log)]
        self.requests = singles[0] if singles else None
        missing = [kind for kind in (FioLogKind.RATE, FioLogKind.BANDWIDTH) if kind not in logs]
        if missing and not self.requests:
            raise BadInput(
                f"the logs of {self.name} have no {missing[0]} log: requests and bytes need both "
                "write_iops_log and write_bw_log, or any log without log_avg_msec"
            )
        self.step_ms = _STEP_MS if self.requests else self._typical_step_ms(average_ms)

    def _typical_step_ms(self, average_ms: int | None) -> int:
        """Return the typical number of milliseconds between consecutive rows.

        A log does not contain log_avg_msec, and fio omits intervals without requests, so the gaps alone do
        not determine the value.
        """
        if not average_ms:
            raise BadInput(
                f"the logs of {self.name} contain means over an unknown number of milliseconds: add the JSON "
                "report of the same run, or --log-avg-msec MS with the log_avg_msec of the run"
            )
        steps: list[int] = []
        for kind in (FioLogKind.RATE, FioLogKind.BANDWIDTH):
            gaps = _list_gaps(self.logs[kind])
            # Each row is some milliseconds late.
            steps += [gap for gap in gaps if _MIN_GAP <= gap / average_ms < _MAX_GAP]
            if gaps and median(gaps) < average_ms * _MIN_GAP:
                raise BadInput(
                    f"the {kind} log of {self.name} has a row every {median(gaps):g} ms: log_avg_msec was "
                    f"not {average_ms}, or several jobs share the log (per_job_logs=0)"
                )
        return round(median(steps)) if steps else average_ms

    @property
    def has_latencies(self) -> bool:
        """Return whether the latency of every single request is known."""
        return self.requests is not None and self.requests is self.latency

    def list_missing(self) -> tuple[str, ...]:
        if self.has_latencies:
            return _MISSING
        why = _MEANS if self.latency and not self.requests else "there is no latency log (write_lat_log)"
        lacks = (*_MISSING, f"{PERCENTILES}: {why}", f"{MAXIMUM}: {why}")
        return lacks if self.latency and not self.requests else (*lacks, f"{DEPTH}: {why}")

    def find_time_range(self) -> tuple[int, int]:
        """Return the time range of the rows, in milliseconds."""
        rows = [row.time_ms for log in self._select_logs() for row in log.iter_rows()]
        return max(min(rows) - (1 if self.requests else self.step_ms), 0), max(rows)

    def sum_operations(self, sums: Mapping[tuple[int, str], _IntervalTotals]) -> dict[str, LoggedTotal]:
        """Return the totals over all intervals, by operation."""
        totals: dict[str, LoggedTotal] = {}
        for operation in {operation for _, operation in sums}:
            intervals = [one for (_, name), one in sums.items() if name == operation]
            slack = 0.0
            sum_ns = float(sum(ns * count for one in intervals for ns, count in one.latencies.items()))
            has_mean = self.has_latencies
            if not self.requests:
                # Rates are rounded to whole requests per second, and an interval may be missing at either
                # end.
                slack = len(intervals) * self.step_ms / 1000 + 2 * max(one.requests for one in intervals)
                sum_ns, has_mean = sum(one.sum_ns for one in intervals), self.latency is not None
            requests = sum(one.requests for one in intervals)
            mean_ns = sum_ns / requests if has_mean and requests else None
            totals[operation] = LoggedTotal(requests, slack, mean_ns)
        return totals

    def _select_logs(self) -> list[FioLog]:
        # Latency means are excluded: they arrive some milliseconds late, after their interval has ended.
        kinds = (FioLogKind.RATE, FioLogKind.BANDWIDTH)
        return [self.requests] if self.requests else [self.logs[kind] for kind in kinds]

    def sum_intervals(self, steps: _Intervals) -> dict[tuple[int, str], _IntervalTotals]:
        """Return the totals by interval and operation. A row describes the time before it."""
        sums: defaultdict[tuple[int, str], _IntervalTotals] = defaultdict(_IntervalTotals)
        # Assign a mean to the interval that contains the middle of its time span.
        back_ms = 0.0 if self.requests else self.step_ms / 2

        def sums_at(time_ms: int, operation: str) -> _IntervalTotals:
            return sums[steps.find_step(time_ms - back_ms), operation]

        if self.requests:
            for row in self.requests.iter_rows():
                one = sums_at(row.time_ms, row.operation)
                one.requests += 1
                one.bytes += row.block_bytes
                if self.has_latencies:
                    one.latencies[row.value] += 1
            return dict(sums)
        means = _Means(self.latency)
        for row, seconds in self._iterate_lengths(FioLogKind.RATE):
            one, requests = sums_at(row.time_ms, row.operation), row.value * seconds
            one.requests += requests
            one.sum_ns += requests * means.find_mean(row.operation, row.time_ms - seconds * 500)
        for row, seconds in self._iterate_lengths(FioLogKind.BANDWIDTH):
            sums_at(row.time_ms, row.operation).bytes += row.value * 1024 * seconds
        return dict(sums)

    def _iterate_lengths(self, kind: FioLogKind) -> Iterator[tuple[FioLogRow, float]]:
        """Yield each row with the seconds that its mean covers.

        The span starts at the previous row of the operation. After a longer gap the span is log_avg_msec,
        because an idle job writes no rows.
        """
        before = dict[str, int]()
        for row in self.logs[kind].iter_rows():
            since_ms = row.time_ms - before.get(row.operation, row.time_ms - self.step_ms)
            before[row.operation] = row.time_ms
            yield row, (since_ms if 0 <= since_ms < _MAX_GAP * self.step_ms else self.step_ms) / 1000


class _Means:
    """The means of a latency log.

    fio ends an interval of this log only when the next request completes, so a row is the mean of all
    requests since the previous row.
    """

    def __init__(self, log: FioLog | None) -> None:
        self._rows: defaultdict[str, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
        for row in log.iter_rows() if log else ():
            times, means = self._rows[row.operation]
            times.append(row.time_ms)
            means.append(row.value)

    def find_mean(self, operation: str, time_ms: float) -> int:
        """Return the mean that includes requests at this time; the last mean if no row is later."""
        times, means = self._rows[operation]
        return means[min(bisect_left(times, time_ms), len(means) - 1)] if means else 0


def _has_row_per_request(log: FioLog) -> bool:
    return len(log) > 0 and all(row.block_bytes for row in log.iter_rows())


def _list_gaps(log: FioLog) -> list[int]:
    """Return the milliseconds between consecutive rows of each operation."""
    times: defaultdict[str, list[int]] = defaultdict(list)
    for row in log.iter_rows():
        times[row.operation].append(row.time_ms)
    return [max(later - time, 0) for of_one in times.values() for time, later in pairwise(of_one)]


def parse_fio_logs(
    logs: Iterable[tuple[str, bytes]],
    report: tuple[str, bytes] | None = None,
    average_ms: int | None = None,
) -> ImportedFile:
    """Parse the logs of one run into entries; job names and log_avg_msec come from the run's report.

    `average_ms` is log_avg_msec for logs without a report. Raise BadInput, with the position, for invalid or
    insufficient logs, or if the logs contradict the report.
    """
    parsed = parse_report(decode_text(report[1]), report[0]) if report else None
    threads = LogThreads(parsed) if parsed else None
    jobs, left_out = _group_jobs(logs, threads, average_ms)
    step_ms = max(job.step_ms for job in jobs)
    times = [job.find_time_range() for job in jobs]
    has_means = not any(job.requests for job in jobs)
    steps = _Intervals(min(begin for begin, _ in times), max(end for _, end in times), step_ms, has_means)
    if steps.end_ms > _MAX_MS or steps.step_count > _MAX_STEPS:
        raise BadInput(
            f"fio's logs go from {steps.begin_ms} to {steps.end_ms} ms in steps of {step_ms} ms, which "
            "is too long for a run"
        )
    sums = [job.sum_intervals(steps) for job in jobs]
    if threads:
        threads.check_totals(
            {job.number: job.sum_operations(sum_) for job, sum_ in zip(jobs, sums, strict=True)}
        )
    notes = [] if all(job.requests for job in jobs) else [_ROUNDED]
    notes += [_NO_CLOCK] if len(jobs) > 1 else []
    wall_ns = _find_wall_ns(steps, parsed)
    notes += [_NO_TIME] if wall_ns is None else []
    entries = _make_entries(jobs, sums, steps, wall_ns or 0)
    program = parsed.version if parsed and parsed.version else "fio"
    # The report has percentiles; means of intervals do not.
    kept = ((REPORT_NAME, extract_json(decode_text(report[1])).encode("utf-8", "replace")),) if report else ()
    return ImportedFile(program, step_ms * _NS_PER_MS, entries, (*notes, *left_out), kept)


def _group_jobs(
    logs: Iterable[tuple[str, bytes]], threads: LogThreads | None, average_ms: int | None
) -> tuple[list[_Job], list[str]]:
    """Return (jobs in order, descriptions of omitted logs)."""
    by_job: defaultdict[int, dict[FioLogKind, FioLog]] = defaultdict(dict)
    names: dict[tuple[int, FioLogKind], str] = {}
    left_out = []
    for name, raw in logs:
        log = parse_log(raw, name)
        if isinstance(log, FioHistogramLog):
            left_out.append(f"fio: {name} is left out, because histograms in logs are not supported")
        elif not len(log):
            left_out.append(f"fio: {name} is empty")
        else:
            number = log.job or 0
            if log.kind in by_job[number]:
                raise BadInput(
                    f"{name} and {names[number, log.kind]} are from the same job: give the logs of one run"
                )
            by_job[number][log.kind], names[number, log.kind] = log, name
    if not by_job:
        raise BadInput("fio's logs are empty: " + "; ".join(left_out))
    jobs = []
    for number in sorted(by_job):
        reported_ms = threads.find_average_ms(number) if threads else None
        if average_ms and reported_ms is not None and average_ms != reported_ms:
            raise BadInput(f"--log-avg-msec is {average_ms}, but log_avg_msec in the report is {reported_ms}")
        job = _Job(number or None, by_job[number], average_ms or reported_ms)
        job.name = (threads.find_name(number) if threads else None) or job.name
        jobs.append(job)
    return jobs, left_out


def _find_wall_ns(steps: _Intervals, report: FioReport | None) -> int | None:
    """Return the wall time of the start, from the logs' clock or from the report's end time; None if
    unknown."""
    if steps.begin_ms >= _MIN_WALL_MS:
        return steps.begin_ms * _NS_PER_MS
    if report and report.end_wall_ns:
        return report.end_wall_ns - (steps.end_ms - steps.begin_ms) * _NS_PER_MS
    return None


def _make_entries(
    jobs: list[_Job], sums: list[dict[tuple[int, str], _IntervalTotals]], steps: _Intervals, wall_ns: int
) -> Iterator[RunEntry]:
    level = "jobs by fio's logs"
    disks = [ImportedDisk(place, job.name, level, job.list_missing()) for place, job in enumerate(jobs)]
    courses = [_JobReplay(disk, sum_) for disk, sum_ in zip(disks, sums, strict=True)]
    run = ImportedRun(disks, wall_ns - _NS_PER_S)
    yield from run.make_start_entries(_NS_PER_S)
    for step in range(1, steps.step_count + 1):
        for course in courses:
            course.add_step(step)
        yield run.make_interval_entry(_NS_PER_S + step * steps.step_ms * _NS_PER_MS)
    yield run.make_end_entry(_NS_PER_S + steps.step_count * steps.step_ms * _NS_PER_MS)


class _JobReplay:
    """Produces a job's amounts interval by interval, carrying fractional requests over to the next
    interval."""

    def __init__(self, disk: ImportedDisk, sums: Mapping[tuple[int, str], _IntervalTotals]) -> None:
        self._disk, self._sums = disk, sums
        self._operations = sorted({operation for _, operation in sums})
        self._rest: defaultdict[tuple[str, str], float] = defaultdict(float)

    def add_step(self, step: int) -> None:
        for operation in self._operations:
            sums = self._sums.get((step, operation))
            if sums:
                self._disk.add_requests(operation, self._count_requests(operation, sums))

    def _count_requests(self, operation: str, sums: _IntervalTotals) -> OpCounts:
        requests = self._carry_fraction(operation, "requests", sums.requests)
        bytes_ = self._carry_fraction(operation, "bytes", sums.bytes)
        if not sums.latencies:
            mean_ns = sums.sum_ns / sums.requests if sums.requests else 0.0
            return OpCounts(requests, bytes_, sum_ns=round(requests * mean_ns))
        total_ns = sum(ns * count for ns, count in sums.latencies.items())
        return OpCounts(requests, bytes_, total_ns, max(sums.latencies), sums.latencies)

    def _carry_fraction(self, operation: str, what: str, amount: float) -> int:
        amount += self._rest[operation, what]
        # Rounding up from one half keeps sums of rates from ending one request short.
        whole = math.floor(amount + 0.5)
        self._rest[operation, what] = amount - whole
        return whole
