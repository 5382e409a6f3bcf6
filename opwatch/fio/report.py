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
from opwatch.foreign import MAX_MEMORY, parse_json, require_table

_WHERE = "fio's report"
_MAX_JOBS = 1 << 12
# fio has 29 groups of 64 bins; a list of percentiles has at most 20.
_MAX_BINS, _MAX_PERCENTILES = 29 * 64, 64
_MAX_OPTIONS = 1 << 10
_LATENCIES = ("slat", "clat", "lat")
_PERCENTAGE = re.compile(r"[0-9]{1,3}(?:\.[0-9]{1,9})?", re.ASCII)
_IN_KIB = re.compile(r"fio-[12]\.")
_SECOND = re.compile(r"^\}\s*^\{", re.MULTILINE)
_BEGIN, _END = re.compile(r"^\{", re.MULTILINE), re.compile(r"^\}", re.MULTILINE)


def parse_report(text: str, where: str = _WHERE, most_memory: int = MAX_MEMORY) -> FioReport:
    """Parse a report. Raises BadInput with the position for any other text, or for values of more memory."""
    document = parse_json(extract_json(text, where), where, most_memory)
    fields = Fields(require_table(document, where), where)
    if "client_stats" in fields.table:
        raise fields.make_error(
            "it is from fio --client, which combines hosts: import each host's own report"
        )
    rows = fields.read_list("jobs")
    if not 0 < len(rows) <= _MAX_JOBS:
        raise fields.make_error(f"it has {len(rows)} jobs, not 1 to {_MAX_JOBS}")
    version = fields.read_optional("fio version", fields.read_text) or ""
    jobs = tuple(
        _parse_job(_make_fields(row, f"{where}: job {number}"), version) for number, row in enumerate(rows, 1)
    )
    made_ms = fields.read_optional("timestamp_ms", fields.read_count)
    return FioReport(
        version=version,
        jobs=jobs,
        global_options=_parse_options(fields, "global options"),
        end_wall_ns=None if made_ms is None else made_ms * 10**6,
    )


def extract_json(text: str, where: str = _WHERE) -> str:
    """Return only the JSON. fio prints warnings before and other output formats after the JSON."""
    begin = _BEGIN.search(text)
    if not begin:
        raise BadInput(f"{where}: it has no JSON: run fio with --output-format=json+")
    # A multi-line document ends with a bracket on a separate line.
    ends = [end.end() for end in _END.finditer(text, begin.start())]
    report = text[begin.start() : ends[-1] if ends else text.rfind("}") + 1]
    if _SECOND.search(report):
        raise BadInput(
            f"{where}: it has several reports (--status-interval): keep only the last one, or import "
            "fio's logs"
        )
    return report


def remove_json(text: str, where: str = _WHERE) -> str:
    """Return fio's output without the JSON."""
    report = extract_json(text, where)
    before, _, behind = text.partition(report)
    return before + behind.removeprefix("\n")


def _make_fields(value: Any, where: str) -> Fields:  # noqa: ANN401
    return Fields(require_table(value, where), where)


def _parse_job(fields: Fields, version: str) -> FioJob:
    operations = {
        name: _parse_operation(fields.read_subtable(key), version, has_data=key != "sync")
        for key, name in OPERATIONS.items()
        if key in fields.table
    }
    own = [name for name in TRANSFERS if name in operations]
    if own != list(TRANSFERS) and (own or "mixed" not in operations):
        raise fields.make_error("read, write or trim is missing")
    begin_ms = fields.read_optional("job_start", fields.read_count)
    threads_ms = fields.read_optional("job_runtime", fields.read_count)
    threads_s = None if threads_ms is None else threads_ms / 1000
    # The sum of the threads' times is not the duration; the sum is used only if no operation has a time.
    runtime_s = max((operation.runtime_s or 0 for operation in operations.values()), default=0)
    return FioJob(
        name=fields.read_text("jobname"),
        group=fields.read_optional("groupid", fields.read_count) or 0,
        error=fields.read_optional("error", fields.read_count) or 0,
        runtime_s=runtime_s or threads_s or 0.0,
        operations=operations,
        options=_parse_options(fields, "job options"),
        threads_s=threads_s,
        user_cpu_percent=fields.read_optional("usr_cpu", fields.read_amount),
        system_cpu_percent=fields.read_optional("sys_cpu", fields.read_amount),
        begin_wall_ns=None if begin_ms is None else begin_ms * 10**6,
    )


def _parse_operation(fields: Fields, version: str, *, has_data: bool) -> FioOperation:
    if "total_ios" not in fields.table:
        raise fields.make_error("it has no total_ios, the number of requests, which fio 2.2 and later report")
    requests = fields.read_count("total_ios")
    latencies = {
        name: latency
        for name in _LATENCIES
        for key, quantum_ns in ((f"{name}_ns", 1), (name, 1000))
        if key in fields.table
        and (latency := _parse_latency(fields.read_subtable(key), quantum_ns, requests))
    }
    if not has_data:
        return FioOperation(requests, latencies)
    runtime_ms = fields.read_optional("runtime", fields.read_count)
    is_in_kib = _IN_KIB.match(version) is not None and "io_kbytes" not in fields.table
    return FioOperation(
        requests,
        latencies,
        bytes=fields.read_count("io_bytes") * (1024 if is_in_kib else 1),
        runtime_s=None if runtime_ms is None else runtime_ms / 1000,
        short=fields.read_optional("short_ios", fields.read_count),
        dropped=fields.read_optional("drop_ios", fields.read_count),
        reported_iops=fields.read_optional("iops", fields.read_amount),
        reported_kib_per_s=fields.read_optional("bw", fields.read_amount),
    )


def _parse_latency(fields: Fields, quantum_ns: int, most: int) -> FioLatency | None:
    """Return a latency of at most `most` requests, or None if nothing was measured.

    fio writes zeros for unmeasured latencies.
    """
    # fio before 3.18 does not report N.
    requests = fields.read_optional("N", fields.read_count)
    if requests == 0 or (requests is None and not fields.read_amount("max")):
        return None
    # fio 2 numbers its bins or labels them in whole microseconds, which is not the histogram format used
    # here.
    bins = fields.read_optional("bins", fields.read_counts) if quantum_ns == 1 else None
    if bins is not None and len(bins) > _MAX_BINS:
        raise fields.make_error(f"it has {len(bins)} bins; the maximum is {_MAX_BINS}")
    if requests is None:
        requests = sum(bins.values()) if bins else most
    return FioLatency(
        requests=requests,
        min_ns=fields.read_count("min") * quantum_ns,
        max_ns=fields.read_count("max") * quantum_ns,
        mean_ns=fields.read_amount("mean") * quantum_ns,
        deviation_ns=fields.read_amount("stddev") * quantum_ns,
        percentiles=_parse_percentiles(fields, quantum_ns),
        bins=_parse_bins(fields, bins) if bins is not None else None,
        quantum_ns=quantum_ns,
    )


def _parse_percentiles(fields: Fields, quantum_ns: int) -> dict[float, int]:
    table = fields.read_optional("percentile", fields.read_counts) or {}
    if len(table) > _MAX_PERCENTILES:
        raise fields.make_error(f"it has {len(table)} percentiles; the maximum is {_MAX_PERCENTILES}")
    for name in table:
        if not _PERCENTAGE.fullmatch(name) or float(name) > 100:
            raise fields.make_error(f"{name!r:.40} is not a percentile")
    # Old versions of fio pad the list with 0.
    return {float(name): value * quantum_ns for name, value in table.items() if float(name) > 0}


def _parse_bins(fields: Fields, table: dict[str, int]) -> tuple[tuple[int, int], ...]:
    for name in table:
        if not (name.isascii() and name.isdecimal() and len(name) <= 20):
            raise fields.make_error(f"{name!r:.40} is not a bin")
    return tuple(sorted((int(name), count) for name, count in table.items()))


def _parse_options(fields: Fields, key: str) -> dict[str, str]:
    if fields.table.get(key) is None:
        return {}
    options = fields.read_subtable(key)
    if len(options.table) > _MAX_OPTIONS:
        raise options.make_error(f"it has more than {_MAX_OPTIONS} options")
    return {name: options.read_text(name) for name in options.table}
