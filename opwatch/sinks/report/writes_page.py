"""A recorded measurement of writes as a page, as Markdown and as JSON: the flow to NAND, and its rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from opwatch import SCHEMA, units
from opwatch.sinks.blocks import TextTable, format_markdown_table
from opwatch.sinks.markdown_text import escaped
from opwatch.sinks.report.page import list_header_facts, render_page
from opwatch.sinks.report.plots import amounts, markup
from opwatch.sinks.report.plots.flow_figure import FlowFigure, build_levels
from opwatch.sinks.report.single_figure import SingleFigure
from opwatch.sinks.writes import (
    GROUP_HEAD,
    PROCESS_HEAD,
    build_writes_document,
    list_group_cells,
    list_process_cells,
    list_row_cells,
)
from opwatch.writes.series import WritesOutcome
from opwatch.writes.waterfall import WriteStep

_TITLE = "Written bytes, from programs to NAND"
_FLOW_NOTE = (
    "Each bar is as wide as its bytes. Between two bars: what is passed on, what is added (a wedge that "
    "grows), and what is not passed on (a dashed wedge). A dashed bar is unknown."
)
_HEIGHT = 620


@dataclass(frozen=True, slots=True)
class ReportedWrites:
    """A recorded measurement prepared for a report. `count` is the number of its intervals, and `notes` are
    about the recording."""

    name: str
    header: Mapping[str, str | int]
    ending: str
    total: WritesOutcome
    count: int
    notes: tuple[str, ...] = ()


def render_writes(writes: ReportedWrites) -> str:
    """Return the page."""
    return render_page(f"opwatch report: {writes.name}", "".join(_render_parts(writes)))


def build_writes_report(writes: ReportedWrites) -> dict[str, Any]:
    """Return the report's document, with the rows of the whole measurement."""
    return {
        "schema": SCHEMA,
        "type": "report",
        "runs": [],
        "comparison": None,
        "writes": build_writes_document(writes.total),
    }


def format_writes_markdown(writes: ReportedWrites) -> Iterator[str]:
    """Yield the sentences and tables as Markdown, for a ticket."""
    yield from (f"# {escaped(writes.name)}", "", escaped(_format_lead(writes)), "")
    yield from (f"- {escaped(sentence)}" for sentence in _list_sentences(writes))
    yield ""
    for table in _build_tables(writes.total):
        yield from (*format_markdown_table(table), "")
    yield from (f"- {escaped(name)}: {escaped(value)}" for name, value in _list_facts(writes))


def plot_single_writes(writes: ReportedWrites) -> Iterator[SingleFigure]:
    """Yield the flow as a separate page, from which a picture is made."""
    drawn = _make_figure(writes).render_html()
    if drawn:
        yield SingleFigure("writes", render_page(_TITLE, f"<div class=one>{drawn}</div>"), _HEIGHT)


def _render_parts(writes: ReportedWrites) -> Iterator[str]:
    subject = markup.escape_text(writes.total.waterfall.stack.subject)
    lead = markup.render_paragraph(_format_lead(writes), "lead")
    yield f"<header><h1>{subject}</h1>{lead}</header>\n"
    yield markup.render_list(_list_sentences(writes), "summary")
    findings = writes.total.waterfall.findings
    if findings:
        yield f"<div class='trust doubt'>{''.join(map(markup.render_paragraph, findings))}</div>"
    yield "".join(markup.render_paragraph(f"Note: {note}") for note in (*writes.total.notes, *writes.notes))
    drawn = _make_figure(writes).render_html()
    if drawn:
        yield f"<section><h2>{_TITLE}</h2>{drawn}{markup.render_paragraph(_FLOW_NOTE, 'small')}</section>\n"
    for table in _build_tables(writes.total):
        words = markup.render_table(table.head, table.rows, table.words)
        yield f"<section><h2>By {table.head[0]}</h2>{words}</section>\n"
    yield f"<section><h2>About this recording</h2>{markup.render_pairs(_list_facts(writes))}</section>"


def _make_figure(writes: ReportedWrites) -> FlowFigure:
    waterfall = writes.total.waterfall
    title = f"{waterfall.stack.subject}, {amounts.format_duration(waterfall.seconds)}"
    return FlowFigure(title, waterfall.base.name if waterfall.base else "", build_levels(waterfall))


def _format_lead(writes: ReportedWrites) -> str:
    total = writes.total
    words = [f"until {total.at.astimezone():%Y-%m-%d %H:%M:%S %Z}"] if total.at else []
    words.append(amounts.format_duration(total.waterfall.seconds))
    words += [f"{writes.count} intervals"] if writes.count else []
    words += [str(writes.header[name]) for name in ("host",) if writes.header.get(name)]
    return ", ".join(words)


def _list_sentences(writes: ReportedWrites) -> list[str]:
    """Return how much was written at both ends, and the largest addition of the file system."""
    waterfall = writes.total.waterfall
    base = waterfall.base
    if base is None or base.total is None:
        return ["Nothing was written in this time."]
    rows = {row.kind: row for row in waterfall.rows}
    sentences = [f"{base.name}: {units.format_capacity(base.total)} written."]
    for kind in (WriteStep.DEVICE, WriteStep.DRIVES, WriteStep.NAND):
        row = rows.get(kind)
        if row and row is not base and row.total is not None:
            ratio = f"{row.total / base.total:.2f} times as much"
            sentences.append(f"{row.name}: {units.format_capacity(row.total)}, {ratio}.")
    device = rows[WriteStep.DEVICE].total
    journal = rows.get(WriteStep.JOURNAL)
    if device and journal and journal.added:
        sentences.append(f"{journal.name}: {100 * journal.added / device:.0f} % of the device's bytes.")
    return sentences


def _build_tables(outcome: WritesOutcome) -> Iterator[TextTable]:
    """Yield the rows, and the control groups or processes if they were measured."""
    base = outcome.waterfall.base
    head = ("step", "remark", "bytes", f"x of {base.name}" if base else "ratio")
    rows = [(name, remark, size, ratio) for name, size, ratio, remark in list_row_cells(outcome)]
    yield TextTable(head, rows, words=2)
    if outcome.groups is not None:
        yield TextTable(GROUP_HEAD, list_group_cells(outcome.groups))
    if outcome.processes is not None:
        yield TextTable(PROCESS_HEAD, list_process_cells(outcome.processes))


def _list_facts(writes: ReportedWrites) -> list[tuple[str, str]]:
    return [*list_header_facts(writes.header), ("ended", writes.ending)]
