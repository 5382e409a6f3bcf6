"""Convert a fio report into rows, checking each against the rates that fio prints. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from opwatch.errors import BadInput
from opwatch.fio.results import TRANSFERS, FioJob, FioLatency, FioOperation, FioReport

# Operations with durations within this share of each other form one row.
_SAME_TIME = 0.01
# fio prints KiB/s as whole numbers; before 2.2, requests per second as well.
_ROUNDED, _TOLERANCE = 1.0, 0.012
# The middle of a fio bin is within 1/128 of the values in the bin; fio's clock has whole ns.
_BIN_TOLERANCE = 1 / 64


@dataclass(frozen=True, slots=True)
class FioRow:
    """The counterpart of a disk: a job, or one operation of a job if the operations had different
    durations."""

    name: str
    operations: Mapping[str, FioOperation]
    runtime_s: float


def make_rows(report: FioReport, where: str) -> list[FioRow]:
    """Return the rows of all jobs. Raise BadInput if a row contradicts the rates that fio reports."""
    rows = [
        row for name, job in zip(report.job_names, report.jobs, strict=True) for row in _split_job(name, job)
    ]
    for row in rows:
        for op, operation in row.operations.items():
            _check_rates(row, operation, f"{where}: {row.name:.60}: {op}")
    return rows


def _split_job(name: str, job: FioJob) -> Iterator[FioRow]:
    used = {op: job.operations[op] for op in TRANSFERS if job.operations[op].requests}
    times = [operation.runtime_s or job.runtime_s for operation in used.values()]
    flushes = {op: operation for op, operation in job.operations.items() if op == "flush"}
    if not used or max(times) - min(times) <= max(times) * _SAME_TIME:
        yield FioRow(name, used | flushes, max(times, default=job.runtime_s))
        return
    # Flushes belong to writes, and have no duration of their own.
    flushed = "write" if "write" in used else next(iter(used))
    for (op, operation), runtime_s in zip(used.items(), times, strict=True):
        yield FioRow(f"{name} {op}", {op: operation} | (flushes if op == flushed else {}), runtime_s)


def _check_rates(row: FioRow, operation: FioOperation, where: str) -> None:
    """Raise BadInput if an operation's rates over the row's duration differ from the rates that fio
    printed."""
    for amount, reported, unit in (
        (operation.requests, operation.reported_iops, " requests per second"),
        ((operation.bytes or 0) / 1024, operation.reported_kib_per_s, " KiB/s"),
    ):
        if reported is None or not amount:
            continue
        if not row.runtime_s:
            raise BadInput(f"{where}: it has requests, but a duration of 0")
        rate = amount / row.runtime_s
        if abs(rate - reported) > max(_ROUNDED, _TOLERANCE * rate):
            raise BadInput(
                f"{where}: its counts over {row.runtime_s:g} s give {rate:g}{unit}, but fio reports "
                f"{reported:g}{unit}: the file was changed, or this version of fio is not supported"
            )
    if operation.reported_latency and operation.reported_latency.bins is not None:
        _check_bins(operation.reported_latency, operation.reported_latency.bins, where)


def _check_bins(latency: FioLatency, bins: tuple[tuple[int, int], ...], where: str) -> None:
    count = sum(number for _, number in bins)
    if count != latency.requests:
        raise BadInput(f"{where}: its bins have {count} requests, but fio reports {latency.requests}")
    mean = sum(middle * number for middle, number in bins) / count if count else 0.0
    if abs(mean - latency.mean_ns) > max(_ROUNDED, _BIN_TOLERANCE * latency.mean_ns):
        raise BadInput(
            f"{where}: the mean of its bins is {mean:g} ns, but fio reports {latency.mean_ns:g} ns: with "
            "lat_percentiles an old fio has bins of another latency; import its JSON without bins"
        )
