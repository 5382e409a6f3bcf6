"""Parse the report of fio 2.2 and later (--output-format=json or json+), also within other text. Pure.

Before fio 3.0, latencies are whole microseconds under other names; before 2.21, `io_bytes` is in KiB; before
3.8, `job_runtime` is missing.
"""

from __future__ import annotations

import re
from typing import Any

from opwatch.errors import BadInput
from opwatch.fields import Fields
from opwatch.fio.results import OPERATIONS, TRANSFERS, FioJob, FioLatency, FioOperation, FioReport
from opwatch.foreign import MOST_MEMORY, parse_json, table_of

_WHERE = "fio's report"
_MOST_JOBS = 1 << 12
# fio has 29 groups of 64 bins; a list of percentiles has at most 20.
_MOST_BINS, _MOST_PERCENTILES = 29 * 64, 64
_MOST_OPTIONS = 1 << 10
_LATENCIES = ("slat", "clat", "lat")
_PERCENTAGE = re.compile(r"[0-9]{1,3}(?:\.[0-9]{1,9})?", re.ASCII)
_IN_KIB = re.compile(r"fio-[12]\.")
_SECOND = re.compile(r"^\}\s*^\{", re.MULTILINE)
_BEGIN, _END = re.compile(r"^\{", re.MULTILINE), re.compile(r"^\}", re.MULTILINE)


def parse_report(text: str, where: str = _WHERE, most_memory: int = MOST_MEMORY) -> FioReport:
    """Parse a report. Raises BadInput with the position for any other text, or for values of more memory."""
    document = parse_json(json_in(text, where), where, most_memory)
    fields = Fields(table_of(document, where), where)
    if "client_stats" in fields.table:
        raise fields.bad("it is of fio --client, which adds up other hosts: import each host's own report")
    rows = fields.rows("jobs")
    if not 0 < len(rows) <= _MOST_JOBS:
        raise fields.bad(f"it has {len(rows)} jobs, not 1 to {_MOST_JOBS}")
    version = fields.optional("fio version", fields.text) or ""
    jobs = tuple(_job(_table(row, f"{where}: job {number}"), version) for number, row in enumerate(rows, 1))
    made_ms = fields.optional("timestamp_ms", fields.count)
    return FioReport(
        version=version,
        jobs=jobs,
        global_options=_options(fields, "global options"),
        end_wall_ns=None if made_ms is None else made_ms * 10**6,
    )


def json_in(text: str, where: str = _WHERE) -> str:
    """Return only the JSON. fio prints warnings before and other output formats after the JSON."""
    begin = _BEGIN.search(text)
    if not begin:
        raise BadInput(f"{where}: it has no JSON: run fio with --output-format=json+")
    # A multi-line document ends with a bracket on a separate line.
    ends = [end.end() for end in _END.finditer(text, begin.start())]
    report = text[begin.start() : ends[-1] if ends else text.rfind("}") + 1]
    if _SECOND.search(report):
        raise BadInput(
            f"{where}: it has several reports (--status-interval): leave the last one, or import fio's logs"
        )
    return report


def without_json(text: str, where: str = _WHERE) -> str:
    """Return fio's output without the JSON."""
    report = json_in(text, where)
    before, _, behind = text.partition(report)
    return before + behind.removeprefix("\n")


def _table(value: Any, where: str) -> Fields:  # noqa: ANN401
    return Fields(table_of(value, where), where)


def _job(fields: Fields, version: str) -> FioJob:
    operations = {
        name: _operation(fields.sub(key), version, has_data=key != "sync")
        for key, name in OPERATIONS.items()
        if key in fields.table
    }
    own = [name for name in TRANSFERS if name in operations]
    if own != list(TRANSFERS) and (own or "mixed" not in operations):
        raise fields.bad("it has not all of read, write and trim")
    begin_ms = fields.optional("job_start", fields.count)
    threads_ms = fields.optional("job_runtime", fields.count)
    threads_s = None if threads_ms is None else threads_ms / 1000
    # The sum of the threads' times is not the duration; the sum is used only if no operation has a time.
    runtime_s = max((operation.runtime_s or 0 for operation in operations.values()), default=0)
    return FioJob(
        name=fields.text("jobname"),
        group=fields.optional("groupid", fields.count) or 0,
        error=fields.optional("error", fields.count) or 0,
        runtime_s=runtime_s or threads_s or 0.0,
        operations=operations,
        options=_options(fields, "job options"),
        threads_s=threads_s,
        user_cpu_percent=fields.optional("usr_cpu", fields.amount),
        system_cpu_percent=fields.optional("sys_cpu", fields.amount),
        begin_wall_ns=None if begin_ms is None else begin_ms * 10**6,
    )


def _operation(fields: Fields, version: str, *, has_data: bool) -> FioOperation:
    if "total_ios" not in fields.table:
        raise fields.bad("it has no total_ios, the number of requests, which fio 2.2 and later report")
    requests = fields.count("total_ios")
    latencies = {
        name: latency
        for name in _LATENCIES
        for key, quantum_ns in ((f"{name}_ns", 1), (name, 1000))
        if key in fields.table and (latency := _latency(fields.sub(key), quantum_ns, requests))
    }
    if not has_data:
        return FioOperation(requests, latencies)
    runtime_ms = fields.optional("runtime", fields.count)
    is_in_kib = _IN_KIB.match(version) is not None and "io_kbytes" not in fields.table
    return FioOperation(
        requests,
        latencies,
        bytes=fields.count("io_bytes") * (1024 if is_in_kib else 1),
        runtime_s=None if runtime_ms is None else runtime_ms / 1000,
        short=fields.optional("short_ios", fields.count),
        dropped=fields.optional("drop_ios", fields.count),
        reported_iops=fields.optional("iops", fields.amount),
        reported_kib_per_s=fields.optional("bw", fields.amount),
    )


def _latency(fields: Fields, quantum_ns: int, most: int) -> FioLatency | None:
    """Return a latency of at most `most` requests, or None if nothing was measured.

    fio writes zeros for unmeasured latencies.
    """
    # fio before 3.18 does not report N.
    requests = fields.optional("N", fields.count)
    if requests == 0 or (requests is None and not fields.amount("max")):
        return None
    # fio 2 numbers its bins or labels them in whole microseconds, which is not the histogram format used
    # here.
    bins = fields.optional("bins", fields.counts) if quantum_ns == 1 else None
    if bins is not None and len(bins) > _MOST_BINS:
        raise fields.bad(f"it has {len(bins)} bins, and fio at most {_MOST_BINS}")
    if requests is None:
        requests = sum(bins.values()) if bins else most
    return FioLatency(
        requests=requests,
        min_ns=fields.count("min") * quantum_ns,
        max_ns=fields.count("max") * quantum_ns,
        mean_ns=fields.amount("mean") * quantum_ns,
        deviation_ns=fields.amount("stddev") * quantum_ns,
        percentiles=_percentiles(fields, quantum_ns),
        bins=_bins(fields, bins) if bins is not None else None,
        quantum_ns=quantum_ns,
    )


def _percentiles(fields: Fields, quantum_ns: int) -> dict[float, int]:
    table = fields.optional("percentile", fields.counts) or {}
    if len(table) > _MOST_PERCENTILES:
        raise fields.bad(f"it has {len(table)} percentiles, and fio at most {_MOST_PERCENTILES}")
    for name in table:
        if not _PERCENTAGE.fullmatch(name) or float(name) > 100:
            raise fields.bad(f"{name!r:.40} is no percentile")
    # Old versions of fio pad the list with 0.
    return {float(name): value * quantum_ns for name, value in table.items() if float(name) > 0}


def _bins(fields: Fields, table: dict[str, int]) -> tuple[tuple[int, int], ...]:
    for name in table:
        if not (name.isascii() and name.isdecimal() and len(name) <= 20):
            raise fields.bad(f"{name!r:.40} is no bin")
    return tuple(sorted((int(name), count) for name, count in table.items()))


def _options(fields: Fields, key: str) -> dict[str, str]:
    if fields.table.get(key) is None:
        return {}
    options = fields.sub(key)
    if len(options.table) > _MOST_OPTIONS:
        raise options.bad(f"it has more than {_MOST_OPTIONS} options")
    return {name: options.text(name) for name in options.table}
