"""Figures of several recordings side by side, as in `opwatch compare`."""

from __future__ import annotations

from opwatch.compare.comparing import ComparedDisk, RunComparison
from opwatch.compare.cpu import COMMAND_IO, CPU, CPU_IO, CPU_METRICS
from opwatch.compare.estimates import QUANTILES, Estimate
from opwatch.sinks.compare import (
    Footnotes,
    label,
    meaning,
    shown_interval,
    shown_ratio,
    shown_value,
    statement,
    title,
)
from opwatch.sinks.report.plots import amounts, markup
from opwatch.sinks.report.tables import WordTable

_TITLES = {
    "iops": "a second",
    "max": "longest",
    CPU: "CPUs busy",
    CPU_IO: "CPU time a request",
    COMMAND_IO: "the command's",
}
_LATENCIES = ("mean", *QUANTILES, CPU_IO, COMMAND_IO)


def _shown(metric: str, estimate: Estimate) -> str:
    """Return the figure as the comparison shows it, with the unit spelled out."""
    if metric in _LATENCIES:
        return amounts.latency(estimate.value)
    if metric == "max" and estimate.value is not None:
        return ("≤ " if estimate.low < estimate.high else "") + amounts.latency(estimate.value)
    return shown_value(metric, estimate)


def _table(disk: ComparedDisk, runs: int, notes: Footnotes) -> WordTable:
    head = ["operation", "figure", *(label(run) for run in range(runs))]
    for run in range(1, runs):
        head += [f"{label(run)}/A", f"{label(run)}/A between", f"{label(run)} is"]
    rows = []
    for row in disk.rows:
        cells = [
            row.op or ("machine" if row.metric in (*CPU_METRICS, COMMAND_IO) else "drive"),
            _TITLES.get(row.metric, title(row.metric)),
        ]
        cells += [_shown(row.metric, estimate) for estimate in row.estimates]
        for change in row.differences:
            cells += [shown_ratio(change.ratio), shown_interval(change) or "-", statement(change, notes)]
        rows.append(cells)
    return WordTable(head, rows, words=2)


def compare_tables(comparison: RunComparison) -> tuple[list[tuple[str, WordTable]], list[str]]:
    """Return a titled table for each row of disks, and the numbered reasons to which its cells refer."""
    notes, tables = Footnotes(), []
    for disk in comparison.disks:
        names = ", ".join(
            f"{label(run)} {file}: {course.device}"
            for run, (file, course) in enumerate(zip(comparison.files, disk.courses, strict=True))
        )
        tables.append((names, _table(disk, len(comparison.files), notes)))
    reasons = [f"[{number}] {reason}" for number, reason in enumerate(notes.reasons, 1)]
    return tables, [*reasons, meaning(comparison)]


def compare_section(comparison: RunComparison) -> str:
    """Return the tables and reasons as HTML."""
    tables, reasons = compare_tables(comparison)
    shown = "".join(
        f"<h3>{markup.text(name)}</h3>{markup.table(table.head, table.rows, table.words)}"
        for name, table in tables
    )
    notes = "".join(markup.paragraph(reason, "small") for reason in reasons)
    return f"<section><h2>Side by side</h2>{shown}{notes}</section>\n"
