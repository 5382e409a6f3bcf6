"""A comparison as Markdown for a pull request. Names of files and disks are untrusted text."""

from __future__ import annotations

from collections.abc import Sequence

from opwatch import units
from opwatch.compare.comparison import ComparedDisk, RunComparison
from opwatch.compare.decision import Decision, Ruling
from opwatch.sinks.compare import (
    Footnotes,
    describe_runs,
    explain_error_rate,
    format_bounds,
    format_ratio,
    format_ruling,
    format_statement,
    format_value,
    get_metric_title,
    label_run,
)
from opwatch.sinks.markdown_text import escaped


def _join_cells(words: Sequence[str]) -> str:
    return "| " + " | ".join(words) + " |"


def _format_table(disk: ComparedDisk, runs: int, notes: Footnotes) -> list[str]:
    further = range(1, runs)
    head = ["", "", *(label_run(run) for run in range(runs))]
    for run in further:
        head += [f"{label_run(run)}/A", "between", f"{label_run(run)} is"]
    aligned = ["---", "---", *["---:"] * runs, *["---:", "---", "---"] * (runs - 1)]
    rows = [_join_cells(head), _join_cells(aligned)]
    for row in disk.rows:
        cells = [row.op or "", get_metric_title(row.metric)]
        cells += [format_value(row.metric, estimate) for estimate in row.estimates]
        for difference in row.differences:
            words = format_statement(difference, notes)
            verdict = f"**{words}**" if difference.is_detected else escaped(words)
            cells += [format_ratio(difference.ratio), format_bounds(difference), verdict]
        rows.append(_join_cells([cell if cell.startswith("**") else _escape_figure(cell) for cell in cells]))
    return rows


def _escape_figure(text: str) -> str:
    """Return a table cell for a figure. Only characters that would end the cell or open a tag are escaped."""
    return (
        units.replace_unprintable(text).replace("<", "&lt;").replace("|", "\\|") if "\\" not in text else text
    )


def format_markdown(comparison: RunComparison, decisions: Sequence[Decision]) -> list[str]:
    """Return a comparison and its rulings as lines of Markdown."""
    notes, shown = Footnotes(), list[str]()
    for disk in comparison.disks:
        shown += [f"- {escaped(' '.join(text.split()))}" for text in describe_runs(comparison, disk)]
        shown += ["", *_format_table(disk, len(comparison.files), notes), ""]
    shown += [f"{number}. {escaped(reason)}" for number, reason in enumerate(notes.reasons, 1)]
    shown += ["", explain_error_rate(comparison)]
    if decisions:
        shown.append("")
    for decision in decisions:
        words = escaped(format_ruling(decision))
        shown.append(f"- **{words}**" if decision.ruling is Ruling.FIRES else f"- {words}")
    return shown
