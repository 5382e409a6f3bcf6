"""A report of fio: what each job came to, all of its time as one interval. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from opwatch.errors import BadInput
from opwatch.fio.report import parse_report
from opwatch.fio.results import TRANSFERS, FioJob, FioLatency, FioOperation, FioReport
from opwatch.foreign import text_of
from opwatch.imports.disk import Amounts, ImportedDisk, ImportedRun
from opwatch.imports.source import ImportedFile
from opwatch.samples.entries import Ended, RunEntry
from opwatch.trace.lacking import CPU, ERRORS, ISSUED, PERCENTILES, TRUST

_SECOND = 10**9
_LACKS = (
    f"{ERRORS}: fio's report does not count them by operation",
    f"{ISSUED}: fio's report does not count them apart from what ended",
    f"{TRUST}: fio has no account of what was lost",
    f"{CPU}: fio's report has that of its jobs alone, not the machine's",
)
_NO_BINS = f"{PERCENTILES}: the report is JSON and not JSON+, which has histograms"
_NOTES = (
    "fio: a job stands where a disk would, and all of its time is one interval",
    "fio: when jobs began is not in its report: each begins at the same moment",
)


def read_fio(raw: bytes, name: str) -> ImportedFile:
    """What a report of fio tells, as entries. BadInput, with the place, for what is no report."""
    report = parse_report(text_of(raw), name)
    mixed = [job.name for job in report.jobs if not set(TRANSFERS) <= job.operations.keys()]
    if mixed:
        raise BadInput(f"{name}: job {mixed[0]!r:.60} has all operations in one (unified_rw_reporting)")
    longest_s = max(job.runtime_s for job in report.jobs)
    if longest_s <= 0:
        raise BadInput(f"{name}: no job ran for a millisecond")
    return ImportedFile(report.version or "fio", round(longest_s * _SECOND), _entries(report), _NOTES)


def _entries(report: FioReport) -> Iterator[RunEntry]:
    names = _names(report)
    disks = [
        ImportedDisk(place, name, f"jobs by {report.version or 'fio'}", _lacks(job))
        for place, (name, job) in enumerate(zip(names, report.jobs, strict=True))
    ]
    ends = [_SECOND + round(job.runtime_s * _SECOND) for job in report.jobs]
    wall_ns = (report.end_wall_ns or max(ends)) - max(ends)
    # Each job has a length of its own: it is a run of one disk.
    runs = [ImportedRun([disk], wall_ns) for disk in disks]
    for run in runs:
        yield from run.begin(_SECOND)
    for disk, job in zip(disks, report.jobs, strict=True):
        for op in (*TRANSFERS, "flush"):
            if op in job.operations:
                disk.add(op, _amounts(job.operations[op]))
    in_order = sorted(zip(ends, runs, strict=True), key=lambda end_and_run: end_and_run[0])
    for end_ns, run in in_order:
        yield run.tick(end_ns)
    # The last sample of each is where its job ended.
    last = {place: sample for end_ns, run in in_order for place, sample in run.end(end_ns).samples.items()}
    yield Ended(last)


def _names(report: FioReport) -> list[str]:
    """The names of the jobs. Those of one name have their number as well."""
    names = [job.name for job in report.jobs]
    return [
        name if names.count(name) == 1 else f"{name}.{names[:place].count(name) + 1}"
        for place, name in enumerate(names)
    ]


def _lacks(job: FioJob) -> tuple[str, ...]:
    latencies = [operation.latency for operation in job.operations.values() if operation.latency]
    return _LACKS if all(latency.bins is not None for latency in latencies) else (*_LACKS, _NO_BINS)


def _amounts(operation: FioOperation) -> Amounts:
    latency: FioLatency | None = operation.latency
    bytes_ = operation.bytes or 0
    if latency is None:
        return Amounts(operation.requests, bytes_)
    return Amounts(
        operation.requests,
        bytes_,
        sum_ns=round(latency.mean_ns * operation.requests),
        max_ns=latency.max_ns,
        latencies=dict(latency.bins or ()),
    )
