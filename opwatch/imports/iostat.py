"""Import the text or JSON of `iostat -x -t`: rates and mean latencies of intervals. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise

from opwatch.cpu import TICKS_PER_S, CpuTimes
from opwatch.errors import BadInput
from opwatch.fields import Fields
from opwatch.foreign import decode_text, parse_json, require_table
from opwatch.imports.disk import ImportedDisk, ImportedRun, OpCounts
from opwatch.imports.iostat_text import is_iostat_text, parse_iostat_text
from opwatch.imports.source import ImportedFile
from opwatch.samples.entries import RunEntry
from opwatch.trace.unavailable import CPU, ERRORS, IRQ, ISSUED, MAXIMUM, PERCENTILES, TRUST

# First letter of the column names, and the operation.
_OPS = {"r": "read", "w": "write", "d": "discard", "f": "flush"}
_NS_PER_S = 10**9
_MAX_DISKS, _MAX_REPORTS, _MAX_CPUS = 1024, 1 << 16, 1 << 16
_HEAD_BYTES = 512
# Maximum sum of four shares, each rounded to 0.01.
_MAX_SHARE = 100.03
_TIME_FORMATS = ("%Y-%m-%dT%H:%M:%S%z", "%m/%d/%Y %I:%M:%S %p", "%m/%d/%Y %H:%M:%S", "%m/%d/%y %H:%M:%S")
_MISSING = (
    f"{PERCENTILES}: iostat reports mean latencies only",
    f"{MAXIMUM}: iostat reports mean latencies only",
    f"{ERRORS}: iostat does not count them",
    f"{ISSUED}: iostat counts completed requests only",
    f"{TRUST}: iostat does not report losses",
)
_NO_CPU = f"{CPU}: avg-cpu or the number of CPUs is missing: run iostat without -d"
_NO_IRQ = f"{IRQ}: iostat includes it in the system time"
_CPU_ROUNDED = "iostat: CPU time is computed from percentages rounded to 0.01"
_ROUNDED = "iostat: rates are rounded to 0.01, and counts are computed from them"
_EVEN_INTERVALS = "iostat: times are whole seconds; each interval has the mean length"
_UNEVEN_INTERVALS = (
    "iostat: its intervals are uneven, and times are whole seconds: each length may be wrong by up to 1 s"
)
# Bytes per unit of the columns: -k (default), -m, or sectors with POSIXLY_CORRECT.
_UNITS = {"kB/s": 1 << 10, "MB/s": 1 << 20, "sec/s": 512}
# Below this, MB/s rounded to 0.01 have an error above 5 %.
_MIN_MB = 0.1


@dataclass(frozen=True, slots=True)
class _Report:
    """One iostat report: requests per second, bytes per second and mean latency in ns, by device and
    operation.

    `cpu` is the number of CPUs used by users, by the system, and stolen.
    """

    at: datetime
    rows: dict[str, dict[str, tuple[float, float, float]]]
    cpus: int = 0
    cpu: tuple[float, float, float] | None = None


def is_iostat(raw: bytes) -> bool:
    """Return whether the data start like the text or JSON of iostat."""
    head = raw[:_HEAD_BYTES]
    return b'"sysstat"' in head or is_iostat_text(decode_text(head))


def parse_iostat(raw: bytes, name: str) -> ImportedFile:
    """Parse an iostat report into entries. Raise BadInput, with the position, for other data."""
    reports = _parse_reports(raw, name)
    if len(reports) < 2:
        raise BadInput(f"{name}: the interval needs at least two reports, but it has {len(reports)}")
    span_s = (reports[-1].at - reports[0].at).total_seconds()
    if span_s <= 0:
        raise BadInput(
            f"{name}: its reports cover no time, or go backwards: {reports[0].at} to {reports[-1].at}"
        )
    step_ns = round(span_s * 1e9 / (len(reports) - 1))
    moments = _find_report_ends(reports, step_ns, name)
    is_even = moments[-1] == step_ns * (len(reports) - 1)
    notes = [
        _ROUNDED,
        _EVEN_INTERVALS if is_even else _UNEVEN_INTERVALS,
        *([_CPU_ROUNDED] if _has_cpu(reports) else []),
    ]
    return ImportedFile("iostat", step_ns, _make_entries(reports, step_ns, moments), tuple(notes))


def _find_report_ends(reports: Sequence[_Report], step_ns: int, name: str) -> list[int]:
    """Return each report's end as an offset from the first report.

    Timestamps are whole seconds; equal intervals are assumed if the timestamps allow them.
    """
    times = [round((report.at - reports[0].at).total_seconds() * _NS_PER_S) for report in reports]
    even = [number * step_ns for number in range(len(reports))]
    if all(abs(time - moment) <= _NS_PER_S for time, moment in zip(times, even, strict=True)):
        return even
    for number, (before, after) in enumerate(pairwise(times), 2):
        if after <= before:
            raise BadInput(f"{name}: report {number} is not later than the previous one")
    return times


def _has_cpu(reports: Sequence[_Report]) -> bool:
    return all(report.cpu for report in reports)


def _parse_reports(raw: bytes, name: str) -> list[_Report]:
    head = decode_text(raw[:_HEAD_BYTES])
    table = parse_iostat_text(decode_text(raw), name) if is_iostat_text(head) else parse_json(raw, name)
    document = Fields(require_table(table, name), name)
    reports = []
    for host in document.read_subtable("sysstat").read_list("hosts"):
        host_fields = Fields(require_table(host, f"{name}: a host"), name)
        cpus = host_fields.read_optional("number-of-cpus", host_fields.read_count) or 0
        statistics = host_fields.read_list("statistics")
        for number, row in enumerate(statistics[:_MAX_REPORTS], 1):
            where = f"{name}: report {number}"
            reports.append(_parse_report(Fields(require_table(row, where), where), min(cpus, _MAX_CPUS)))
    return reports


def _parse_report(fields: Fields, cpus: int) -> _Report:
    if "timestamp" not in fields.table:
        raise fields.make_error("it has no timestamp: run iostat with -t")
    rows: dict[str, dict[str, tuple[float, float, float]]] = {}
    for row in fields.read_list("disk"):
        disk = Fields(require_table(row, fields.where), fields.where)
        name = disk.read_text("disk_device")
        if "r/s" not in disk.table:
            raise fields.make_error(f"{name:.40} has no r/s: run iostat with -x, and without -s")
        row_fields = Fields(disk.table, f"{fields.where}: {name:.40}")
        rows[name] = {
            op: _parse_rates(row_fields, letter) for letter, op in _OPS.items() if f"{letter}/s" in disk.table
        }
    if len(rows) > _MAX_DISKS:
        raise fields.make_error(f"{len(rows)} disks, at most {_MAX_DISKS} can be imported")
    return _Report(_parse_timestamp(fields), rows, cpus, _parse_cpu(fields, cpus))


def _parse_cpu(fields: Fields, cpus: int) -> tuple[float, float, float] | None:
    """Return the number of CPUs in each state; iostat prints shares of all CPUs."""
    if "avg-cpu" not in fields.table or not cpus:
        return None
    shares = fields.read_subtable("avg-cpu")
    user, nice, system, steal = (shares.read_amount(name) for name in ("user", "nice", "system", "steal"))
    if user + nice + system + steal > _MAX_SHARE:
        raise shares.make_error("more than 100 % of the CPUs were busy")
    return (user + nice) * cpus / 100, system * cpus / 100, steal * cpus / 100


def _parse_timestamp(fields: Fields) -> datetime:
    text = fields.read_text("timestamp")
    for form in _TIME_FORMATS:
        try:
            moment = datetime.strptime(text, form)
        except ValueError:
            continue
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    raise fields.make_error(f"{text!r:.40} is not a known time format: run iostat with S_TIME_FORMAT=ISO")


def _make_entries(reports: Sequence[_Report], step_ns: int, moments: Sequence[int]) -> Iterator[RunEntry]:
    """Yield the entries. The run starts at the end of the first report, which may cover the time since
    boot."""
    names = sorted({name for report in reports for name in report.rows})
    has_cpu = _has_cpu(reports)
    lacks = (*_MISSING, _NO_IRQ if has_cpu else _NO_CPU)
    disks = {name: ImportedDisk(place, name, "rates by iostat", lacks) for place, name in enumerate(names)}
    begin_ns = step_ns
    run = ImportedRun([*disks.values()], round(reports[0].at.timestamp() * 1e9) - begin_ns)
    times = [0.0, 0.0, 0.0]
    run.cpu = _make_cpu_times(reports[0].cpus, times) if has_cpu else None
    yield from run.make_start_entries(begin_ns)
    for report, (before, moment) in zip(reports[1:], pairwise(moments), strict=True):
        length_ns = moment - before
        for at, cores in enumerate(report.cpu or () if has_cpu else ()):
            times[at] += cores * length_ns / _NS_PER_S
        run.cpu = _make_cpu_times(report.cpus, times) if has_cpu else None
        for name, row in report.rows.items():
            for op, rates in row.items():
                disks[name].add_requests(op, _count_requests(rates, length_ns))
        yield run.make_interval_entry(begin_ns + moment)
    yield run.make_end_entry(begin_ns + moments[-1])


def _make_cpu_times(cpus: int, seconds: Sequence[float]) -> CpuTimes:
    user, system, steal = (round(value * TICKS_PER_S) for value in seconds)
    return CpuTimes(cpus, user, system, 0, steal)


def _parse_rates(row: Fields, letter: str) -> tuple[float, float, float]:
    """Return (requests per second, bytes per second, mean latency in ns) of the operation with this
    letter."""
    requests = row.read_amount(f"{letter}/s")
    await_ns = row.read_amount(f"{letter}_await") * 1e6 if f"{letter}_await" in row.table or requests else 0.0
    # Flushes move no data.
    return requests, 0.0 if letter == "f" else _parse_byte_rate(row, letter, requests), await_ns


def _parse_byte_rate(row: Fields, letter: str, requests: float) -> float:
    """Return bytes per second. Raise BadInput if the unit is unknown or too coarse, or if the mean size
    disagrees."""
    unit = next((unit for unit in _UNITS if f"{letter}{unit}" in row.table), None)
    if unit is None:
        raise row.make_error(f"it has none of the columns {', '.join(letter + unit for unit in _UNITS)}")
    value = row.read_amount(f"{letter}{unit}")
    rate, kib = value * _UNITS[unit], row.read_optional(f"{letter}areq-sz", row.read_amount)
    if kib is None:
        if unit == "MB/s" and requests and value < _MIN_MB:
            raise row.make_error(
                f"{letter}{unit} is {value}, which is rounded too coarsely: run iostat with -k"
            )
        return rate
    step = 0.01 if any(value % 1 for value in row.table.values() if isinstance(value, float)) else 1.0
    of_sizes, most = requests * kib * 1024, step * (requests + kib + step) * 1024
    if abs(rate - of_sizes) > most + step * _UNITS[unit]:
        raise row.make_error(
            f"{letter}{unit} is {value}, but {letter}/s times {letter}areq-sz KiB is "
            f"{of_sizes / _UNITS[unit]:.2f}"
        )
    # Use the value with the smaller rounding error.
    return of_sizes if step * _UNITS[unit] > most else rate


def _count_requests(rates: tuple[float, float, float], length_ns: int) -> OpCounts:
    requests, bytes_ = (round(rate * length_ns / _NS_PER_S) for rate in rates[:2])
    return OpCounts(requests, bytes_, sum_ns=round(requests * rates[2]))
