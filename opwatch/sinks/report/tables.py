"""Tables of a report as text: the same cells in HTML and in Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from opwatch.fio.beside import MeasuredRow
from opwatch.report.gathering import DiskPicture
from opwatch.report.subject import ReportedRun, RunMark
from opwatch.samples.observation import Observation
from opwatch.samples.slow import SlowRequest
from opwatch.samples.slow_tally import slowest
from opwatch.sinks.fio.beside import TITLE, error_of
from opwatch.sinks.report.plots import amounts
from opwatch.trace.derive import Latency, OpInterval
from opwatch.trace.lacking import DEPTH, ERRORS, ISSUED, SEQUENTIAL

_MOST_ROWS = 20
_OPS = (
    *("operation", "requests", "a second", "MB/s", "mean", "p50", "p90", "p99", "p99.9", "longest"),
    *("queue depth", "median size", "sequential", "errors"),
)


@dataclass(frozen=True, slots=True)
class WordTable:
    """Rows of text under a header. The first `words` columns are names, all others numbers."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: int = 1


def _longest(latency: Latency) -> str:
    # "≤" marks an upper bound: the maximum is only known to its histogram slot.
    is_bound = latency.max_slack_ns and latency.max is not None
    return ("≤ " if is_bound else "") + amounts.latency(latency.max)


def _times(latency: Latency) -> list[str]:
    values = (latency.mean, *latency.quantiles.values())
    return [*(amounts.latency(value) for value in values), _longest(latency)]


def _row(name: str, op: OpInterval, seconds: float, absent: dict[str, str]) -> list[str]:
    has_order = ISSUED not in absent and SEQUENTIAL not in absent
    return [
        name,
        f"{op.count:,}",
        amounts.rate(op.count / seconds if seconds else 0.0),
        amounts.megabytes(op.bytes / seconds if seconds else 0.0),
        *_times(op.latency),
        amounts.NOTHING if DEPTH in absent else f"{op.queue_depth:.2f}",
        amounts.size(op.size_p50()),
        amounts.percent(op.sequential_ratio) if has_order else amounts.NOTHING,
        amounts.NOTHING if ERRORS in absent else f"{op.errors:,}",
    ]


def op_table(final: Observation) -> WordTable:
    """Return all operations of a summary, each followed by its queue time if measured."""
    rows = []
    for name, op in final.interval.ops.items():
        rows.append(_row(name, op, final.interval.seconds, final.absent))
        if op.queue and op.queue.mean is not None:
            rows.append([f"{name}, in the queue", "", "", "", *_times(op.queue), "", "", "", ""])
    return WordTable(_OPS, rows)


def _who(request: SlowRequest) -> str:
    if request.submitter is None:
        return request.reason or ""
    name = request.name or "unnamed"
    who = f"{name} ({request.pid})" if request.pid is not None else name
    return f"{who}, {request.submitter.value}"


def slow_table(run: ReportedRun, disk: DiskPicture) -> WordTable | None:
    """Return the slowest requests, or None if no single requests were recorded."""
    if not disk.slow:
        return None
    rows = []
    for request in slowest(disk.slow, _MOST_ROWS):
        at = run.wall(request.end_ns)
        rows.append(
            [
                at.isoformat(" ", "milliseconds")[11:23] if at else amounts.NOTHING,
                request.op,
                _who(request),
                request.cgroup or amounts.NOTHING,
                amounts.latency(request.latency_ns),
                amounts.latency(request.queue_ns),
                amounts.size(request.bytes),
                amounts.NOTHING if request.sector is None else f"{request.sector:,}",
            ]
        )
    head = ("ended at", "operation", "asked for by", "cgroup", "latency", "in the queue", "size", "sector")
    return WordTable(head, rows, words=4)


def clock(run: ReportedRun, at_ns: int) -> str:
    """Return the local time of a moment, and its offset from the start."""
    since = (at_ns - run.picture.begin_ns) / 1e9
    at = run.wall(at_ns)
    after = f"{amounts.span(since)} in" if since >= 0 else "before the begin"
    return f"{at:%H:%M:%S}, {after}" if at else after


def phase_table(run: ReportedRun) -> WordTable | None:
    """Return the named parts of the run, or None without any."""
    rows = [
        [
            phase.name,
            clock(run, phase.begin_ns),
            clock(run, phase.end_ns) if phase.end_ns is not None else "with the recording",
            amounts.span((phase.end_ns - phase.begin_ns) / 1e9) if phase.end_ns is not None else "",
        ]
        for phase in run.phases
    ]
    return WordTable(("phase", "began", "ended", "took"), rows, words=3) if rows else None


def flag_names(marks: Sequence[RunMark]) -> Iterator[tuple[str, RunMark]]:
    """Yield each event with its number in the plots."""
    yield from ((str(number), mark) for number, mark in enumerate(marks, 1))


def event_table(run: ReportedRun) -> WordTable | None:
    """Return the events with their numbers in the plots, or None without any."""
    rows = [[name, clock(run, mark.at_ns), mark.kind, mark.text] for name, mark in flag_names(run.marks)]
    return WordTable(("event", "at", "kind", "what"), rows, words=4) if rows else None


def fio_table(run: ReportedRun) -> WordTable | None:
    """Return fio's measurements of its jobs, each followed by the disks in the same time, or None without
    fio."""
    rows = []
    for job in run.fio:
        rows.append([job.job, job.op, *_measured(job.fio)])
        rows += [["", disk.device or "", *_measured(disk)] for disk in job.disks]
    head = ("job", "operation, disk", "requests", "mean", "p50", "p99", "p99.9")
    return WordTable(head, rows, words=2) if rows else None


def _measured(row: MeasuredRow) -> list[str]:
    times = (row.mean_ns, *row.percentiles_ns.values())
    return [f"{row.requests:,}", *(amounts.latency(time) for time in times)]


def fio_title(run: ReportedRun) -> str:
    """Return the title of that table, with the error of fio's percentiles."""
    return f"{TITLE} ({error_of(run.fio)})" if run.fio else TITLE
