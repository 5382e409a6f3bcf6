"""Figures of several recordings side by side, as in `opwatch compare`."""

from __future__ import annotations

from opwatch.compare.comparison import ComparedDisk, RunComparison
from opwatch.compare.cpu import COMMAND_IO, CPU, CPU_IO, CPU_METRICS
from opwatch.compare.estimates import QUANTILES, Estimate
from opwatch.sinks.blocks import TextTable
from opwatch.sinks.compare import (
    Footnotes,
    explain_error_rate,
    format_bounds,
    format_ratio,
    format_statement,
    format_value,
    get_metric_title,
    label_run,
)
from opwatch.sinks.report.plots import amounts, markup

_TITLES = {
    "iops": "per second",
    "max": "longest",
    CPU: "CPUs busy",
    CPU_IO: "CPU time per request",
    COMMAND_IO: "command CPU time per request",
}
_LATENCIES = ("mean", *QUANTILES, CPU_IO, COMMAND_IO)


def _format_figure(metric: str, estimate: Estimate) -> str:
    """Return the figure as the comparison shows it, with the unit spelled out."""
    if metric in _LATENCIES:
        return amounts.format_latency(estimate.value)
    if metric == "max" and estimate.value is not None:
        return ("≤ " if estimate.low < estimate.high else "") + amounts.format_latency(estimate.value)
    return format_value(metric, estimate)


def _build_table(disk: ComparedDisk, runs: int, notes: Footnotes) -> TextTable:
    head = ["operation", "figure", *(label_run(run) for run in range(runs))]
    for run in range(1, runs):
        head += [f"{label_run(run)}/A", f"{label_run(run)}/A between", f"{label_run(run)} is"]
    rows = []
    for row in disk.rows:
        cells = [
            row.op or ("machine" if row.metric in (*CPU_METRICS, COMMAND_IO) else "drive"),
            _TITLES.get(row.metric, get_metric_title(row.metric)),
        ]
        cells += [_format_figure(row.metric, estimate) for estimate in row.estimates]
        for change in row.differences:
            cells += [
                format_ratio(change.ratio),
                format_bounds(change) or "-",
                format_statement(change, notes),
            ]
        rows.append(cells)
    return TextTable(head, rows, words=2)


def build_compare_tables(comparison: RunComparison) -> tuple[list[tuple[str, TextTable]], list[str]]:
    """Return a titled table for each row of disks, and the numbered reasons to which its cells refer."""
    notes, tables = Footnotes(), []
    for disk in comparison.disks:
        names = ", ".join(
            f"{label_run(run)} {file}: {course.device}"
            for run, (file, course) in enumerate(zip(comparison.files, disk.courses, strict=True))
        )
        tables.append((names, _build_table(disk, len(comparison.files), notes)))
    reasons = [f"[{number}] {reason}" for number, reason in enumerate(notes.reasons, 1)]
    return tables, [*reasons, explain_error_rate(comparison)]


def render_comparison(comparison: RunComparison) -> str:
    """Return the tables and reasons as HTML."""
    tables, reasons = build_compare_tables(comparison)
    shown = "".join(
        f"<h3>{markup.escape_text(name)}</h3>{markup.render_table(table.head, table.rows, table.words)}"
        for name, table in tables
    )
    notes = "".join(markup.render_paragraph(reason, "small") for reason in reasons)
    return f"<section><h2>Comparison</h2>{shown}{notes}</section>\n"
