"""A comparison as Markdown for a pull request. Names of files and disks are untrusted text."""

from __future__ import annotations

from collections.abc import Sequence

from opwatch import units
from opwatch.compare.comparing import ComparedDisk, RunComparison
from opwatch.compare.deciding import Decision, Ruling
from opwatch.sinks.compare import (
    Footnotes,
    label,
    meaning,
    ruling_of,
    runs_of,
    shown_interval,
    shown_ratio,
    shown_value,
    statement,
    title,
)
from opwatch.sinks.markdown_text import escaped


def _cells(words: Sequence[str]) -> str:
    return "| " + " | ".join(words) + " |"


def _table(disk: ComparedDisk, runs: int, notes: Footnotes) -> list[str]:
    further = range(1, runs)
    head = ["", "", *(label(run) for run in range(runs))]
    for run in further:
        head += [f"{label(run)}/A", "between", f"{label(run)} is"]
    aligned = ["---", "---", *["---:"] * runs, *["---:", "---", "---"] * (runs - 1)]
    rows = [_cells(head), _cells(aligned)]
    for row in disk.rows:
        cells = [row.op or "", title(row.metric)]
        cells += [shown_value(row.metric, estimate) for estimate in row.estimates]
        for difference in row.differences:
            words = statement(difference, notes)
            verdict = f"**{words}**" if difference.is_real else escaped(words)
            cells += [shown_ratio(difference.ratio), shown_interval(difference), verdict]
        rows.append(_cells([cell if cell.startswith("**") else _cell(cell) for cell in cells]))
    return rows


def _cell(text: str) -> str:
    """Return a table cell for a figure. Only characters that would end the cell or open a tag are escaped."""
    return units.printable(text).replace("<", "&lt;").replace("|", "\\|") if "\\" not in text else text


def markdown(comparison: RunComparison, decisions: Sequence[Decision]) -> list[str]:
    """Return a comparison and its rulings as lines of Markdown."""
    notes, shown = Footnotes(), list[str]()
    for disk in comparison.disks:
        shown += [f"- {escaped(' '.join(text.split()))}" for text in runs_of(comparison, disk)]
        shown += ["", *_table(disk, len(comparison.files), notes), ""]
    shown += [f"{number}. {escaped(reason)}" for number, reason in enumerate(notes.reasons, 1)]
    shown += ["", meaning(comparison)]
    if decisions:
        shown.append("")
    for decision in decisions:
        words = escaped(ruling_of(decision))
        shown.append(f"- **{words}**" if decision.ruling is Ruling.FIRES else f"- {words}")
    return shown
