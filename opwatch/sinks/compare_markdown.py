"""A comparison as Markdown for a pull request. Names of files and disks are untrusted text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

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

# Characters with a meaning anywhere in a line, and characters with a meaning only at the start.
_SPECIAL = re.compile(r"([\\`*_\[\]<>|~@&]|#(?=\d))")
_AT_BEGIN = re.compile(r"^([-+#=]|\d+(?=[.)](?:\s|$)))")


def escaped(text: str) -> str:
    """Return text with all Markdown escaped: it cannot end a table cell, mention a user or make a link."""
    words = escaped_cell(text)
    begin = _AT_BEGIN.match(words)
    if not begin:
        return words
    # A backslash goes after the number of a list item, and before any other character.
    place = begin.end() if begin[0].isdigit() else 0
    return f"{words[:place]}\\{words[place:]}"


def escaped_cell(text: str) -> str:
    """Return text with its Markdown escaped for a table cell, which never starts a line."""
    return _SPECIAL.sub(r"\\\1", units.printable(text))


def fenced(lines: Iterable[str]) -> list[str]:
    """Return lines as a Markdown code block. The fence is longer than any fence in the lines, so no line can
    close the block."""
    block = list(lines)
    longest = max((len(run) for line in block for run in re.findall("`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return [fence, *block, fence]


def as_text(text: str) -> str:
    """Return text from a file, with Markdown tags, code and links escaped."""
    return re.sub(r"([\\`<\[])", r"\\\1", units.printable(text))


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
