"""Logs of fio (write_bw_log and its like), alone or with the report of the same run: each job in intervals of
the length that the logs have. Pure."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

from opwatch.errors import BadInput
from opwatch.fio.logs import FioHistogramLog, FioLog, FioLogKind, FioLogRow, parse_log
from opwatch.fio.report import parse_report
from opwatch.fio.results import FioReport
from opwatch.foreign import text_of
from opwatch.frozen import frozen
from opwatch.imports.disk import Amounts, ImportedDisk, ImportedRun
from opwatch.imports.source import ImportedFile
from opwatch.samples.entries import RunEntry
from opwatch.trace.lacking import CPU, DEPTH, ERRORS, ISSUED, MAXIMUM, PERCENTILES, TRUST

_SECOND = 10**9
_MS = 10**6
# The steps into which a log with a row for every request is cut.
_STEP_MS = 1000
_MOST_STEPS = 1 << 16
# Milliseconds since 1970 are more than these since 2001, and no clock that began at a boot comes near.
_LEAST_WALL_MS, _MOST_MS = 10**12, 9 * 10**12
_LACKS = (
    f"{ERRORS}: fio's logs do not have them",
    f"{ISSUED}: fio's logs do not have them apart from what ended",
    f"{TRUST}: fio has no account of what was lost",
    f"{CPU}: fio's logs do not have it",
)
_MEANS = "fio's logs have means of intervals alone (log_avg_msec)"
_ROUNDED = "fio: logs with log_avg_msec have whole requests and KiB a second, and counts are made of them"
_NO_CLOCK = "fio: logs that begin with each job (without log_alternate_epoch) lie upon each other"
_NO_TIME = "fio: when it was is not in the logs"
# Latency from the submission on, as in a report, or else from when fio began with a request.
_LATENCIES = (FioLogKind.COMPLETION, FioLogKind.LATENCY)


@dataclass(slots=True)
class _Sums:
    """What one operation came to in one interval. `means` are latencies without a number of requests."""

    requests: float = 0.0
    bytes: float = 0.0
    means: list[int] = field(default_factory=list)
    latencies: defaultdict[int, int] = field(default_factory=lambda: defaultdict(int))


@frozen
class _Steps:
    """The intervals, numbered from 1, into which all logs are put."""

    begin_ms: int
    end_ms: int
    step_ms: int
    # Whether rows are of the time before them: they come some milliseconds early or late.
    has_means: bool

    @property
    def count(self) -> int:
        end_ms = self.end_ms - (self.step_ms / 2 if self.has_means else 0)
        return max(math.ceil((end_ms - self.begin_ms) / self.step_ms), 1)

    def at(self, time_ms: float) -> int:
        """The interval that a moment lies in, or ends."""
        return min(max(math.ceil((time_ms - self.begin_ms) / self.step_ms), 1), self.count)


class _Job:
    """The logs of one job, each kind once."""

    def __init__(self, number: int | None, logs: Mapping[FioLogKind, FioLog]) -> None:
        self.number, self.logs = number, logs
        self.name = "all jobs" if number is None else f"job {number}"
        latency = next((kind for kind in _LATENCIES if kind in logs), None)
        self.latency = logs[latency] if latency else None
        # A row of a single request has its size: any such log has all of them.
        singles = [log for log in (self.latency, *logs.values()) if log and _is_of_requests(log)]
        self.requests = singles[0] if singles else None
        self.step_ms = _STEP_MS if self.requests else max(_step_ms(log) for log in logs.values())
        missing = [kind for kind in (FioLogKind.RATE, FioLogKind.BANDWIDTH) if kind not in logs]
        if missing and not self.requests:
            raise BadInput(
                f"the logs of {self.name} have no {missing[0]} log: its requests and bytes follow from "
                "write_iops_log and write_bw_log together, or from any log without log_avg_msec"
            )

    @property
    def has_latencies(self) -> bool:
        """Whether each request has its own."""
        return self.requests is not None and self.requests is self.latency

    def lacks(self) -> tuple[str, ...]:
        if self.has_latencies:
            return _LACKS
        why = _MEANS if self.latency and not self.requests else "it has no latency log (write_lat_log)"
        lacks = (*_LACKS, f"{PERCENTILES}: {why}", f"{MAXIMUM}: {why}")
        return lacks if self.latency and not self.requests else (*lacks, f"{DEPTH}: {why}")

    def times(self) -> tuple[int, int]:
        """The milliseconds between which its rows lie."""
        rows = [row.time_ms for log in self._used() for row in log.rows()]
        return max(min(rows) - (1 if self.requests else self.step_ms), 0), max(rows)

    def _used(self) -> list[FioLog]:
        # Means of latency come some milliseconds late: they are of the interval that has just ended.
        kinds = (FioLogKind.RATE, FioLogKind.BANDWIDTH)
        return [self.requests] if self.requests else [self.logs[kind] for kind in kinds]

    def sums(self, steps: _Steps) -> dict[tuple[int, str], _Sums]:
        """What it came to, by interval and operation. A row is of the time until its own."""
        sums: defaultdict[tuple[int, str], _Sums] = defaultdict(_Sums)
        # The middle of the time that a mean is of decides.
        back_ms = 0.0 if self.requests else self.step_ms / 2

        def at(time_ms: int, operation: str) -> _Sums:
            return sums[steps.at(time_ms - back_ms), operation]

        if self.requests:
            for row in self.requests.rows():
                one = at(row.time_ms, row.operation)
                one.requests += 1
                one.bytes += row.block_bytes
                if self.has_latencies:
                    one.latencies[row.value] += 1
            return dict(sums)
        for row, seconds in _with_lengths(self.logs[FioLogKind.RATE]):
            at(row.time_ms, row.operation).requests += row.value * seconds
        for row, seconds in _with_lengths(self.logs[FioLogKind.BANDWIDTH]):
            at(row.time_ms, row.operation).bytes += row.value * 1024 * seconds
        for row in self.latency.rows() if self.latency else ():
            at(row.time_ms, row.operation).means.append(row.value)
        return dict(sums)


def _is_of_requests(log: FioLog) -> bool:
    return len(log) > 0 and all(row.block_bytes for row in log.rows())


def _with_lengths(log: FioLog) -> Iterator[tuple[FioLogRow, float]]:
    """Each row with the seconds that its mean is of: since the one before of its operation, or as long as
    the others where that is long ago, for a job that rests has no rows."""
    step_ms, before = _step_ms(log), dict[str, int]()
    for row in log.rows():
        since_ms = row.time_ms - before.get(row.operation, row.time_ms - step_ms)
        before[row.operation] = row.time_ms
        yield row, (since_ms if 0 <= since_ms < 2 * step_ms else step_ms) / 1000


def _step_ms(log: FioLog) -> int:
    """The milliseconds from one row to the next."""
    by_operation: defaultdict[str, list[int]] = defaultdict(list)
    for row in log.rows():
        by_operation[row.operation].append(row.time_ms)
    steps = [
        later - time_ms
        for times in by_operation.values()
        for time_ms, later in pairwise(times)
        if later > time_ms
    ]
    return max(round(median(steps)), 1) if steps else _STEP_MS


def read_fio_logs(logs: Iterable[tuple[str, bytes]], report: tuple[str, bytes] | None = None) -> ImportedFile:
    """What logs of one run tell, as entries; names of jobs are those of its report. BadInput, with the place,
    for what is no log, and for logs of which nothing follows."""
    jobs, left_out = _jobs(logs)
    parsed = parse_report(text_of(report[1]), report[0]) if report else None
    if parsed:
        _name(jobs, parsed)
    step_ms = max(job.step_ms for job in jobs)
    times = [job.times() for job in jobs]
    has_means = not any(job.requests for job in jobs)
    steps = _Steps(min(begin for begin, _ in times), max(end for _, end in times), step_ms, has_means)
    if steps.end_ms > _MOST_MS or steps.count > _MOST_STEPS:
        raise BadInput(
            f"fio's logs go from {steps.begin_ms} to {steps.end_ms} ms in steps of {step_ms}: no run is so "
            "long"
        )
    notes = [] if all(job.requests for job in jobs) else [_ROUNDED]
    notes += [_NO_CLOCK] if len(jobs) > 1 else []
    wall_ns = _wall_ns(steps, parsed)
    notes += [_NO_TIME] if wall_ns is None else []
    entries = _entries(jobs, steps, wall_ns or 0)
    program = parsed.version if parsed and parsed.version else "fio"
    return ImportedFile(program, step_ms * _MS, entries, (*notes, *left_out))


def _jobs(logs: Iterable[tuple[str, bytes]]) -> tuple[list[_Job], list[str]]:
    """(the jobs, in their order; what was left out)."""
    by_job: defaultdict[int, dict[FioLogKind, FioLog]] = defaultdict(dict)
    names: dict[tuple[int, FioLogKind], str] = {}
    left_out = []
    for name, raw in logs:
        log = parse_log(raw, name)
        if isinstance(log, FioHistogramLog):
            left_out.append(f"fio: {name} is left out: histograms are not taken from logs")
        elif not len(log):
            left_out.append(f"fio: {name} is empty")
        else:
            number = log.job or 0
            if log.kind in by_job[number]:
                raise BadInput(f"{name} and {names[number, log.kind]} are of one job: give logs of one run")
            by_job[number][log.kind], names[number, log.kind] = log, name
    if not by_job:
        raise BadInput("there is nothing in fio's logs: " + "; ".join(left_out))
    return [_Job(number or None, by_job[number]) for number in sorted(by_job)], left_out


def _name(jobs: Iterable[_Job], report: FioReport) -> None:
    """Call jobs by their names, which stand in the order of their numbers unless they were put together."""
    names = [job.name for job in report.jobs]
    for job in jobs:
        if job.number and job.number <= len(names):
            name = names[job.number - 1]
            job.name = name if names.count(name) == 1 else f"{name}.{job.number}"


def _wall_ns(steps: _Steps, report: FioReport | None) -> int | None:
    """The wall time of the begin: the logs' own clock, or by when the report was made."""
    if steps.begin_ms >= _LEAST_WALL_MS:
        return steps.begin_ms * _MS
    if report and report.end_wall_ns:
        return report.end_wall_ns - (steps.end_ms - steps.begin_ms) * _MS
    return None


def _entries(jobs: list[_Job], steps: _Steps, wall_ns: int) -> Iterator[RunEntry]:
    level = "jobs by fio's logs"
    disks = [ImportedDisk(place, job.name, level, job.lacks()) for place, job in enumerate(jobs)]
    courses = [_JobCourse(disk, job.sums(steps)) for disk, job in zip(disks, jobs, strict=True)]
    run = ImportedRun(disks, wall_ns - _SECOND)
    yield from run.begin(_SECOND)
    for step in range(1, steps.count + 1):
        for course in courses:
            course.add(step)
        yield run.tick(_SECOND + step * steps.step_ms * _MS)
    yield run.end(_SECOND + steps.count * steps.step_ms * _MS)


class _JobCourse:
    """What a job comes to, interval after interval. Parts of requests are kept for the next."""

    def __init__(self, disk: ImportedDisk, sums: Mapping[tuple[int, str], _Sums]) -> None:
        self._disk, self._sums = disk, sums
        self._operations = sorted({operation for _, operation in sums})
        self._rest: defaultdict[tuple[str, str], float] = defaultdict(float)
        self._mean = dict[str, float]()

    def add(self, step: int) -> None:
        for operation in self._operations:
            sums = self._sums.get((step, operation))
            if sums:
                self._disk.add(operation, self._amounts(operation, sums))

    def _amounts(self, operation: str, sums: _Sums) -> Amounts:
        if sums.means:
            self._mean[operation] = sum(sums.means) / len(sums.means)
        requests = self._whole(operation, "requests", sums.requests)
        bytes_ = self._whole(operation, "bytes", sums.bytes)
        if not sums.latencies:
            return Amounts(requests, bytes_, sum_ns=round(requests * self._mean.get(operation, 0.0)))
        total_ns = sum(ns * count for ns, count in sums.latencies.items())
        return Amounts(requests, bytes_, total_ns, max(sums.latencies), sums.latencies)

    def _whole(self, operation: str, what: str, amount: float) -> int:
        amount += self._rest[operation, what]
        # Half of a request may come early, so that sums of rates are not one too few at the end.
        whole = math.floor(amount + 0.5)
        self._rest[operation, what] = amount - whole
        return whole
