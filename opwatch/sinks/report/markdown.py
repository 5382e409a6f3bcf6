"""A report in Markdown: sentences and tables, for a pull request or a ticket."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from opwatch.compare.comparison import RunComparison
from opwatch.report.subject import ReportedRun
from opwatch.sinks.blocks import TextTable, format_markdown_table
from opwatch.sinks.compare_markdown import format_markdown
from opwatch.sinks.markdown_text import escaped
from opwatch.sinks.report.change_text import build_change_table
from opwatch.sinks.report.owner_table import build_owner_table, explain_missing_owners
from opwatch.sinks.report.page import format_lead, list_facts
from opwatch.sinks.report.sentences import describe_trust, summarize_run
from opwatch.sinks.report.slow_table import SLOW_TITLE, build_slow_causes_table
from opwatch.sinks.report.tables import (
    build_event_table,
    build_fio_table,
    build_op_table,
    build_phase_table,
    build_slow_table,
    format_fio_title,
)


def _format_table(table: TextTable | None, title: str) -> Iterator[str]:
    if table:
        yield from (f"**{escaped(title)}**", "", *format_markdown_table(table), "")


def format_report(runs: Sequence[ReportedRun], comparison: RunComparison | None) -> Iterator[str]:
    """Yield the report of all recordings, line by line."""
    if comparison:
        yield from ("# Comparison", "", *format_markdown(comparison, ()), "")
    for run in runs:
        yield from _format_run(run)


def _format_run(run: ReportedRun) -> Iterator[str]:
    yield from (f"# {escaped(run.name)}", "", escaped(format_lead(run)), "")
    yield from (f"- {escaped(sentence)}" for sentence in summarize_run(run))
    sentences, is_well = describe_trust(run)
    for sentence in sentences:
        yield f"- {escaped(sentence)}" if is_well else f"- **{escaped(sentence)}**"
    yield from (f"- Note: {escaped(note)}" for note in run.notes)
    yield ""
    slow = build_slow_causes_table(run)
    yield from _format_table(slow, SLOW_TITLE)
    yield from (f"- {escaped(note)}" for note in run.slow_notes if slow)
    for disk in run.picture.disks.values():
        for final in disk.finals:
            if final.interval.ops:
                yield from _format_table(build_op_table(final), disk.label)
        reason = explain_missing_owners(disk)
        yield from (escaped(reason), "") if reason else ()
        yield from _format_table(build_owner_table(disk), f"Request owners of {disk.label}")
        yield from _format_table(build_change_table(run, run.changes[disk.label]), f"Changes of {disk.label}")
        yield from _format_table(build_slow_table(run, disk), f"Slowest requests of {disk.label}")
    yield from _format_table(build_fio_table(run), format_fio_title(run))
    yield from _format_table(build_phase_table(run), "Phases")
    yield from _format_table(build_event_table(run), "Events")
    yield from (f"- {escaped(name)}: {escaped(value)}" for name, value in list_facts(run))
    yield ""
