"""A report in Markdown: sentences and tables, for a pull request or a ticket."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from opwatch.compare.comparing import RunComparison
from opwatch.report.subject import ReportedRun
from opwatch.sinks.compare_markdown import markdown
from opwatch.sinks.markdown_text import escaped, escaped_cell
from opwatch.sinks.report.change_words import change_table
from opwatch.sinks.report.owner_table import owner_table, reason_of
from opwatch.sinks.report.page import facts, lead
from opwatch.sinks.report.sentences import summary, trust_sentences
from opwatch.sinks.report.tables import (
    WordTable,
    event_table,
    fio_table,
    fio_title,
    op_table,
    phase_table,
    slow_table,
)


def _table(table: WordTable | None, title: str) -> Iterator[str]:
    if not table:
        return
    yield from (f"**{escaped(title)}**", "")
    yield _cells(table.head)
    yield _cells(["---" if place < table.words else "---:" for place in range(len(table.head))], plain=True)
    yield from (_cells(row) for row in table.rows)
    yield ""


def _cells(words: Sequence[str], *, plain: bool = False) -> str:
    return "| " + " | ".join(word if plain else escaped_cell(word) for word in words) + " |"


def report_lines(runs: Sequence[ReportedRun], comparison: RunComparison | None) -> Iterator[str]:
    """Yield the report of all recordings, line by line."""
    if comparison:
        yield from ("# Side by side", "", *markdown(comparison, ()), "")
    for run in runs:
        yield from _run_lines(run)


def _run_lines(run: ReportedRun) -> Iterator[str]:
    yield from (f"# {escaped(run.name)}", "", escaped(lead(run)), "")
    yield from (f"- {escaped(sentence)}" for sentence in summary(run))
    sentences, is_well = trust_sentences(run)
    for sentence in sentences:
        yield f"- {escaped(sentence)}" if is_well else f"- **{escaped(sentence)}**"
    yield from (f"- Note: {escaped(note)}" for note in run.notes)
    yield ""
    for disk in run.picture.disks.values():
        for final in disk.finals:
            if final.interval.ops:
                yield from _table(op_table(final), disk.label)
        reason = reason_of(disk)
        yield from (escaped(reason), "") if reason else ()
        yield from _table(owner_table(disk), f"Whose the requests of {disk.label} were")
        yield from _table(change_table(run, run.changes[disk.label]), f"Changes of {disk.label}")
        yield from _table(slow_table(run, disk), f"The slowest requests of {disk.label}")
    yield from _table(fio_table(run), fio_title(run))
    yield from _table(phase_table(run), "Phases")
    yield from _table(event_table(run), "Events")
    yield from (f"- {escaped(name)}: {escaped(value)}" for name, value in facts(run))
    yield ""
