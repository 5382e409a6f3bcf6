"""Tables of a report as text: the same cells in HTML and in Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from opwatch.fio.comparison import MeasuredRow
from opwatch.report.run_picture import DiskPicture
from opwatch.report.subject import ReportedRun, RunMark
from opwatch.samples.observation import Observation
from opwatch.samples.slow import SlowRequest
from opwatch.samples.slow_tally import select_slowest
from opwatch.sinks.blocks import TextTable
from opwatch.sinks.fio.comparison import TITLE, describe_error
from opwatch.sinks.jsonl import build_op_document
from opwatch.sinks.report.plots import amounts
from opwatch.trace.derive import QUANTILES, Latency, OpInterval, Wait

_MAX_ROWS = 20
_OPS = (
    *("operation", "requests", "per second", "MB/s", "mean", "p50", "p90", "p99", "p99.9", "longest"),
    *("queue depth", "median size", "sequential", "errors"),
)


def _format_maximum(latency: Latency) -> str:
    # "≤" marks an upper bound: the maximum is only known to its histogram slot.
    is_bound = latency.max_slack_ns and latency.max is not None
    return ("≤ " if is_bound else "") + amounts.format_latency(latency.max)


def _format_times(latency: Latency) -> list[str]:
    values = (latency.mean, *latency.quantiles.values())
    return [*(amounts.format_latency(value) for value in values), _format_maximum(latency)]


def _format_wait(wait: Wait) -> list[str]:
    """Return the cells of a time without quantiles. "≤" marks a maximum since the begin of the trace."""
    longest = amounts.format_latency(wait.max_limit)
    return [
        amounts.format_latency(wait.mean),
        *[amounts.NOTHING] * len(QUANTILES),
        longest if wait.max is not None else f"≤ {longest}",
    ]


def _build_row(name: str, op: OpInterval, seconds: float, absent: dict[str, str]) -> list[str]:
    document = build_op_document(op, seconds, absent)
    depth, errors = document["queue_depth"], document["errors"]
    return [
        name,
        f"{op.count:,}",
        amounts.format_rate(document["per_s"] or 0.0),
        amounts.format_megabytes(document["bytes_per_s"] or 0.0),
        *_format_times(op.latency),
        amounts.NOTHING if depth is None else f"{depth:.2f}",
        amounts.format_size(op.median_size()),
        amounts.format_percent(document["sequential_ratio"]),
        amounts.NOTHING if errors is None else f"{errors:,}",
    ]


def build_op_table(final: Observation) -> TextTable:
    """Return all operations of a summary, each followed by its times before the issue if measured."""
    rows = []
    for name, op in final.interval.ops.items():
        rows.append(_build_row(name, op, final.interval.seconds, final.missing_fields))
        for label, wait in ((f"{name}, throttled", op.throttle), (f"{name}, admission", op.admission)):
            if wait and wait.mean is not None:
                rows.append([label, "", "", "", *_format_wait(wait), "", "", "", ""])
        if op.queue and op.queue.mean is not None:
            rows.append([f"{name}, queue time", "", "", "", *_format_times(op.queue), "", "", "", ""])
    return TextTable(_OPS, rows)


def _format_submitter(request: SlowRequest) -> str:
    if request.submitter is None:
        return request.reason or ""
    name = request.name or "unnamed"
    who = f"{name} ({request.pid})" if request.pid is not None else name
    return f"{who}, {request.submitter.value}"


def build_slow_table(run: ReportedRun, disk: DiskPicture) -> TextTable | None:
    """Return the slowest requests, or None if no single requests were recorded."""
    if not disk.slow:
        return None
    rows = []
    for request in select_slowest(disk.slow, _MAX_ROWS):
        at = run.to_wall_time(request.end_ns)
        rows.append(
            [
                at.isoformat(" ", "milliseconds")[11:23] if at else amounts.NOTHING,
                request.op,
                _format_submitter(request),
                request.cgroup or amounts.NOTHING,
                amounts.format_latency(request.latency_ns),
                amounts.format_latency(request.queue_ns),
                amounts.format_size(request.bytes),
                amounts.NOTHING if request.sector is None else f"{request.sector:,}",
            ]
        )
    head = ("ended at", "operation", "submitted by", "cgroup", "latency", "queue time", "size", "sector")
    return TextTable(head, rows, words=4)


def format_clock(run: ReportedRun, at_ns: int) -> str:
    """Return the local time of a moment with its offset from the start."""
    since = (at_ns - run.picture.begin_ns) / 1e9
    at = run.to_wall_time(at_ns)
    after = f"{amounts.format_duration(since)} after the start" if since >= 0 else "before the start"
    return f"{at:%H:%M:%S} ({after})" if at else after


def build_phase_table(run: ReportedRun) -> TextTable | None:
    """Return the named parts of the run, or None without any."""
    rows = [
        [
            phase.name,
            format_clock(run, phase.begin_ns),
            format_clock(run, phase.end_ns) if phase.end_ns is not None else "end of the recording",
            amounts.format_duration((phase.end_ns - phase.begin_ns) / 1e9)
            if phase.end_ns is not None
            else "",
        ]
        for phase in run.phases
    ]
    return TextTable(("phase", "start", "end", "duration"), rows, words=3) if rows else None


def number_flags(marks: Sequence[RunMark]) -> Iterator[tuple[str, RunMark]]:
    """Yield each event with its number in the plots."""
    yield from ((str(number), mark) for number, mark in enumerate(marks, 1))


def build_event_table(run: ReportedRun) -> TextTable | None:
    """Return the events with their numbers in the plots, or None without any."""
    rows = [
        [name, format_clock(run, mark.at_ns), mark.kind, mark.text] for name, mark in number_flags(run.marks)
    ]
    return TextTable(("event", "time", "kind", "description"), rows, words=4) if rows else None


def build_fio_table(run: ReportedRun) -> TextTable | None:
    """Return fio's measurements of its jobs, each followed by the disks in the same time, or None without
    fio."""
    rows = []
    for job in run.fio:
        rows.append([job.job, job.op, *_format_measured(job.fio)])
        rows += [["", disk.device or "", *_format_measured(disk)] for disk in job.disks]
    head = ("job", "operation, disk", "requests", "mean", "p50", "p99", "p99.9")
    return TextTable(head, rows, words=2) if rows else None


def _format_measured(row: MeasuredRow) -> list[str]:
    times = (row.mean_ns, *row.percentiles_ns.values())
    return [f"{row.requests:,}", *(amounts.format_latency(time) for time in times)]


def format_fio_title(run: ReportedRun) -> str:
    """Return the title of that table, with the error of fio's percentiles."""
    return f"{TITLE} ({describe_error(run.fio)})" if run.fio else TITLE
