"""Map numbered fio logs to the jobs of a report, and check that logs and report agree. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from opwatch.errors import BadInput
from opwatch.fio.results import FioJob, FioReport

_MAX_THREADS = 1 << 16
_MAX_DIGITS = 9
# Interval means are weighted by rounded counts, whereas fio's own mean covers every request.
_COUNT_TOLERANCE, _MEAN_TOLERANCE = 0.03, 0.15


@dataclass(frozen=True, slots=True)
class LoggedTotal:
    """Totals of one operation from the logs of one thread.

    `slack` is the number of requests that rounding may hide. `mean_ns` is None without a latency log.
    """

    requests: float
    slack: float
    mean_ns: float | None


class LogThreads:
    """The threads of a run, in the order of their log numbers.

    With group_reporting, one job of the report represents `numjobs` threads.
    """

    def __init__(self, report: FioReport) -> None:
        self._report = report
        # Index of each thread's job in the report; log N belongs to thread N.
        self._places: list[int] = []
        names = [job.name for job in report.jobs]
        for place, job in enumerate(report.jobs):
            clones = _parse_whole(self._find_option(job, "numjobs"), "numjobs") or 1
            is_grouped = names.count(job.name) < clones
            self._places += [place] * (clones if is_grouped else 1)
            if len(self._places) > _MAX_THREADS:
                raise BadInput(f"fio's report has more than {_MAX_THREADS} threads")

    def _find_option(self, job: FioJob, name: str) -> str | None:
        return job.options.get(name, self._report.global_options.get(name))

    def _find_job(self, number: int) -> FioJob | None:
        return self._report.jobs[self._places[number - 1]] if 0 < number <= len(self._places) else None

    def find_name(self, number: int) -> str | None:
        """Return the name of a log's job, with the log number if several threads share the name; None if
        unknown."""
        job = self._find_job(number)
        if not job:
            return None
        names = [self._report.jobs[place].name for place in self._places]
        return job.name if names.count(job.name) == 1 else f"{job.name}.{number}"

    def find_average_ms(self, number: int) -> int | None:
        """Return log_avg_msec of a log, 0 if the log has a row per request, or None if the report has no
        options."""
        own = self._find_job(number)
        jobs = [own] if own else [*self._report.jobs]
        if not any(job.options for job in jobs) and not self._report.global_options:
            # Reports contain options since fio 2.14.
            return None
        values = {_parse_whole(self._find_option(job, "log_avg_msec"), "log_avg_msec") or 0 for job in jobs}
        if len(values) > 1:
            raise BadInput(
                "the jobs of the report differ in log_avg_msec, and the logs do not name their jobs"
            )
        return values.pop()

    def check_totals(self, totals: Mapping[int | None, Mapping[str, LoggedTotal]]) -> None:
        """Raise BadInput if logs contradict the report. Checks jobs with a complete set of logs."""
        by_job: defaultdict[int, list[Mapping[str, LoggedTotal]]] = defaultdict(list)
        for number, total in totals.items():
            if number is not None and number <= len(self._places):
                by_job[self._places[number - 1]].append(total)
        for place, threads in by_job.items():
            if len(threads) == self._places.count(place):
                _check_totals(self._report.jobs[place], threads)


def _check_totals(job: FioJob, threads: list[Mapping[str, LoggedTotal]]) -> None:
    for op, operation in job.operations.items():
        logged = [thread[op] for thread in threads if op in thread]
        if not logged:
            continue
        requests = sum(total.requests for total in logged)
        slack = sum(total.slack for total in logged) + operation.requests * _COUNT_TOLERANCE + 1
        if abs(requests - operation.requests) > slack:
            raise BadInput(
                f"the logs of {job.name:.60} have {requests:.0f} {op} requests, but its report has "
                f"{operation.requests}: they are from different runs, or log_avg_msec is wrong"
            )
        latency = operation.latencies.get("clat") or operation.latencies.get("lat")
        means = [total.mean_ns for total in logged if total.mean_ns is not None]
        if latency and latency.mean_ns and len(means) == len(logged):
            mean_ns = sum(total.requests * (total.mean_ns or 0) for total in logged) / requests
            if abs(mean_ns - latency.mean_ns) > latency.mean_ns * _MEAN_TOLERANCE:
                raise BadInput(
                    f"the logs of {job.name:.60} have a mean {op} latency of {mean_ns:.0f} ns, but its "
                    f"report has {latency.mean_ns:.0f} ns"
                )


def _parse_whole(text: str | None, name: str) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS):
        raise BadInput(f"fio's report: {name}={text:.40} is not a whole number")
    return int(text)
