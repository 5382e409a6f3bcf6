"""Import a fio report: the totals of each job as a single interval. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from opwatch.errors import BadInput
from opwatch.fio.recorded import REPORT_NAME
from opwatch.fio.report import extract_json, parse_report
from opwatch.fio.results import TRANSFERS, FioLatency, FioOperation, FioReport
from opwatch.foreign import decode_text
from opwatch.imports.disk import ImportedDisk, ImportedRun, OpCounts
from opwatch.imports.fio_rows import FioRow, make_rows
from opwatch.imports.source import ImportedFile
from opwatch.samples.entries import RunEnded, RunEntry
from opwatch.trace.unavailable import CPU, DEPTH, ERRORS, ISSUED, MAXIMUM, PERCENTILES, TRUST

_NS_PER_S = 10**9
_MISSING = (
    f"{ERRORS}: fio's report does not count them by operation",
    f"{ISSUED}: fio's report counts completed requests only",
    f"{TRUST}: fio does not report losses",
    f"{CPU}: fio's report has the CPU time of its jobs only, not of the machine",
)
_FIO_PERCENTILES = "fio's own percentiles are shown separately"
_UNTIMED = "fio did not measure the latency of some operation (gtod_reduce, disable_clat or similar)"
_NO_BINS = f"{PERCENTILES}: the report is JSON, and only JSON+ has histograms; {_FIO_PERCENTILES}"
_COARSE_BINS = f"{PERCENTILES}: fio before 3.0 has bins of whole microseconds; {_FIO_PERCENTILES}"
_NOTES = (
    "fio: each job takes the place of a disk, and all of its time is one interval",
    "fio: the report does not contain when jobs started: all start at the same time here",
)
_SEPARATE_ROWS = "fio: operations of a job that took different times have separate rows"
_WHOLE_US = (
    "fio: versions before 3.0 round latencies down to whole microseconds: means are up to 1 µs too low"
)


def parse_fio(raw: bytes, name: str) -> ImportedFile:
    """Parse a fio report into entries.

    Raise BadInput, with the position, if the text is not a report or contradicts the rates in it.
    """
    text = decode_text(raw)
    report = parse_report(text, name)
    mixed = [job.name for job in report.jobs if not set(TRANSFERS) <= job.operations.keys()]
    if mixed:
        raise BadInput(f"{name}: job {mixed[0]!r:.60} combines all operations (unified_rw_reporting)")
    rows = make_rows(report, name)
    longest_s = max(row.runtime_s for row in rows)
    if longest_s <= 0:
        raise BadInput(f"{name}: no job ran for at least a millisecond")
    notes = [*_NOTES, _SEPARATE_ROWS] if len(rows) > len(report.jobs) else [*_NOTES]
    if any(latency.quantum_ns > 1 for row in rows for latency in _list_latencies(row)):
        notes.append(_WHOLE_US)
    program, step_ns = report.version or "fio", round(longest_s * _NS_PER_S)
    kept = ((REPORT_NAME, extract_json(text, name).encode("utf-8", "replace")),)
    return ImportedFile(program, step_ns, _make_entries(report, rows), tuple(notes), kept)


def _make_entries(report: FioReport, rows: Sequence[FioRow]) -> Iterator[RunEntry]:
    level = f"jobs by {report.version or 'fio'}"
    disks = [ImportedDisk(place, row.name, level, _list_missing(row)) for place, row in enumerate(rows)]
    ends = [_NS_PER_S + round(row.runtime_s * _NS_PER_S) for row in rows]
    wall_ns = (report.end_wall_ns or max(ends)) - max(ends)
    # Rows have different durations, so each is a run with a single disk.
    runs = [ImportedRun([disk], wall_ns) for disk in disks]
    for run in runs:
        yield from run.make_start_entries(_NS_PER_S)
    for disk, row in zip(disks, rows, strict=True):
        for op, operation in row.operations.items():
            disk.add_requests(op, _count_requests(operation))
    in_order = sorted(zip(ends, runs, strict=True), key=lambda end_and_run: end_and_run[0])
    for end_ns, run in in_order:
        yield run.make_interval_entry(end_ns)
    # The last sample of a job is at the job's end.
    last = {
        place: sample
        for end_ns, run in in_order
        for place, sample in run.make_end_entry(end_ns).samples.items()
    }
    yield RunEnded(last)


def _list_latencies(row: FioRow) -> list[FioLatency]:
    return [operation.reported_latency for operation in row.operations.values() if operation.reported_latency]


def _list_missing(row: FioRow) -> tuple[str, ...]:
    if any(operation.requests and not operation.reported_latency for operation in row.operations.values()):
        return (*_MISSING, *(f"{name}: {_UNTIMED}" for name in (PERCENTILES, MAXIMUM, DEPTH)))
    missing = [latency for latency in _list_latencies(row) if latency.bins is None]
    if not missing:
        return _MISSING
    return (*_MISSING, _COARSE_BINS if any(latency.quantum_ns > 1 for latency in missing) else _NO_BINS)


def _count_requests(operation: FioOperation) -> OpCounts:
    latency: FioLatency | None = operation.reported_latency
    bytes_ = operation.bytes or 0
    if latency is None:
        return OpCounts(operation.requests, bytes_)
    return OpCounts(
        operation.requests,
        bytes_,
        sum_ns=round(latency.mean_ns * operation.requests),
        max_ns=latency.max_ns,
        latencies=dict(latency.bins or ()),
    )
