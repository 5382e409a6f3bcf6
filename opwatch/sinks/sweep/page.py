"""A sweep as one page: the answer, plots against over-provisioning, tables, and the rounds of each level."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from opwatch import SCHEMA, units
from opwatch.errors import BadInput
from opwatch.report.subject import ReportedRun
from opwatch.sinks.blocks import Block, Section, TextTable, format_markdown_blocks
from opwatch.sinks.markdown_text import escaped
from opwatch.sinks.report.disk_section import render_plots
from opwatch.sinks.report.page import render_page, render_run_sections
from opwatch.sinks.report.plots import markup
from opwatch.sinks.report.plots.figure import Figure
from opwatch.sinks.report.single_figure import SingleFigure
from opwatch.sinks.sweep.advice_document import build_advice_document
from opwatch.sinks.sweep.advice_table import LIFE_TITLE, build_advice_sections
from opwatch.sinks.sweep.advice_text import describe_advice
from opwatch.sinks.sweep.document import SweepDocument
from opwatch.sinks.sweep.level_figures import ERROR_NOTE, plot_levels, plot_rounds
from opwatch.sinks.sweep.reading import decode_sweep, restore_result
from opwatch.sinks.sweep.table import build_sections, format_model
from opwatch.steady.strict import StrictState
from opwatch.sweep.advice.advice import SweepAdvice, advise
from opwatch.sweep.advice.targets import SweepTargets
from opwatch.sweep.result import SweepResult
from opwatch.sweep.returns import sort_levels

_HEIGHT = 440
_STATE = ("level", "rounds", "window", "drive writes", "look-back", "turnover")
_INVALID_IN_NAMES = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True, slots=True)
class ReportedSweep:
    """A sweep prepared for a report."""

    name: str
    plain: dict[str, Any]
    document: SweepDocument
    result: SweepResult
    advice: SweepAdvice


def prepare_sweep(name: str, document: dict[str, Any]) -> ReportedSweep:
    """Return everything that a report shows of a sweep. Raise BadInput for another document."""
    decoded = decode_sweep(document, name)
    if not decoded.levels:
        raise BadInput(f"{name}: the sweep has no levels")
    result = restore_result(decoded, name)
    return ReportedSweep(name, document, decoded, result, advise(result, SweepTargets()))


def render_sweep(sweep: ReportedSweep, run: ReportedRun | None = None) -> str:
    """Return the page of a sweep, with its recording if there is one."""
    body = "".join(_render_parts(sweep))
    if run:
        body += f"<section><h2>Recording</h2></section>{''.join(render_run_sections(run))}"
    return render_page(f"opwatch report: {sweep.name}", body)


def build_sweep_report(sweep: ReportedSweep) -> dict[str, Any]:
    """Return the sweep and its answer as keys of a report's document."""
    return {
        "schema": SCHEMA,
        "type": "report",
        "runs": [],
        "comparison": None,
        "sweep": sweep.plain,
        "answer": build_advice_document(sweep.name, sweep.result, sweep.advice, None),
    }


def format_sweep_markdown(sweep: ReportedSweep) -> Iterator[str]:
    """Yield the answer and the tables as Markdown, for a ticket."""
    yield from (f"# {escaped(sweep.document.target)}", "", escaped(_format_lead(sweep.document)), "")
    yield from (f"- {escaped(sentence)}" for sentence in _list_sentences(sweep))
    yield ""
    for section in _list_sections(sweep):
        yield from (f"## {escaped(section.title)}", "", *format_markdown_blocks(section.blocks))
    yield from (f"- {escaped(name)}: {escaped(value)}" for name, value in _list_facts(sweep))


def plot_single_levels(sweep: ReportedSweep) -> Iterator[SingleFigure]:
    """Yield each plot as a separate page, from which pictures are made."""
    for figure in _plot_all(sweep):
        drawn = figure.render_html()
        if drawn:
            name = _INVALID_IN_NAMES.sub("-", figure.title.lower()).strip("-")[:80]
            yield SingleFigure(name, render_page(figure.title, f"<div class=one>{drawn}</div>"), _HEIGHT)


def _plot_all(sweep: ReportedSweep) -> Iterator[Figure]:
    yield from plot_levels(sweep.result, sweep.advice)
    for outcome in sort_levels(sweep.result.outcomes):
        yield from plot_rounds(sweep.result, outcome)


def _render_parts(sweep: ReportedSweep) -> Iterator[str]:
    document = sweep.document
    lead = markup.render_paragraph(_format_lead(document), "lead")
    yield f"<header><h1>{markup.escape_text(document.target)}</h1>{lead}</header>\n"
    yield markup.render_list(_list_sentences(sweep), "summary")
    yield _render_state(sweep)
    plots = render_plots(plot_levels(sweep.result, sweep.advice))
    note = markup.render_paragraph(ERROR_NOTE, "small")
    yield f"<section><h2>Figures by level</h2>{note}{plots}</section>\n"
    for section in _list_sections(sweep):
        title = markup.escape_text(section.title)
        yield f"<section><h2>{title}</h2>{render_blocks(section.blocks)}</section>\n"
    yield "<section><h2>Rounds of each level</h2>"
    for outcome in sort_levels(sweep.result.outcomes):
        drawn = render_plots(plot_rounds(sweep.result, outcome))
        yield f"<h3>{markup.escape_text(outcome.level.label)}</h3>{drawn}" if drawn else ""
    yield "</section>\n"
    yield f"<section><h2>About this sweep</h2>{markup.render_pairs(_list_facts(sweep))}</section>\n"


def render_blocks(blocks: Iterable[Block]) -> str:
    """Return tables and paragraphs as HTML."""
    return "".join(
        markup.render_table(one.head, one.rows, one.words)
        if isinstance(one, TextTable)
        else markup.render_paragraph(one, "small")
        for one in blocks
    )


def _format_lead(document: SweepDocument) -> str:
    words = [f"Over-provisioning sweep, levels by {document.method}; {document.workload}"]
    words += [f"started {document.created}"] if document.created else []
    return "; ".join(words)


def _list_sentences(sweep: ReportedSweep) -> list[str]:
    """Return the answer, followed by what the reader has to know about it."""
    document, sentences = sweep.document, list(describe_advice(sweep.advice))
    if document.is_ended is False:
        sentences.append(f"The sweep is not finished: opwatch sweep resume {document.sweep} does the rest.")
    return [*sentences, format_model(document.model)] if document.model else sentences


def _render_state(sweep: ReportedSweep) -> str:
    """Return whether all levels are in steady state, and which are not."""
    states = {one.level.label: one.strict.state for one in sort_levels(sweep.result.outcomes)}
    others = [f"{label} {state}" for label, state in states.items() if state is not StrictState.PASS]
    words = (
        f"Not in a proven steady state: {', '.join(others)}. Section Steady state has the reasons."
        if others
        else f"All {len(states)} levels are in a proven steady state."
    )
    return f"<div class='trust{' doubt' if others else ''}'>{markup.render_paragraph(words)}</div>\n"


def _list_sections(sweep: ReportedSweep) -> Iterator[Section]:
    """Yield the tables, without repeating in other words what the answer says."""
    # The tables of the document have the levels, and say why a life is missing.
    left_out = {"Levels"} if sweep.result.endurance_bytes else {"Levels", LIFE_TITLE}
    yield from (
        section for section in build_sections(sweep.document, has_reasons=False) if section.title != "Gains"
    )
    for section in build_advice_sections(sweep.result, sweep.advice, None):
        if section.title not in left_out:
            yield section
    yield Section("Steady state", list(_build_state(sweep)))


def _build_state(sweep: ReportedSweep) -> Iterator[Block]:
    """Yield the rounds behind each level's verdict, and the conditions that are not met."""
    rows, conditions = [], []
    for level in sweep.document.levels:
        strict, window = level.opwatch, level.opwatch.window
        rows.append(
            (
                level.label,
                f"{len(level.rounds)}",
                f"{window[0]} to {window[1]}" if window else "-",
                _format_turns(strict.written_drive_writes),
                _format_turns(strict.lookback_drive_writes),
                _format_turns(strict.turnover_drive_writes),
            )
        )
        conditions += [
            (
                level.label,
                check.name,
                check.wanted,
                check.measured,
                "not measured" if check.is_met is None else "no",
            )
            for check in strict.checks
            if not check.is_met
        ]
    yield TextTable(_STATE, rows)
    if conditions:
        yield TextTable(("level", "condition", "required", "measured", "met"), conditions, words=5)


def _format_turns(drive_writes: float | None) -> str:
    return "-" if drive_writes is None else units.format_plain(drive_writes, 3)


def _list_facts(sweep: ReportedSweep) -> list[tuple[str, str]]:
    document, disk = sweep.document, sweep.document.disk
    facts = [("source", sweep.name), ("target", document.target), ("workload", document.workload)]
    facts += [("sweep", document.sweep)] if document.sweep else []
    facts += [("started", document.created)] if document.created else []
    if disk:
        words = [disk.model or "no model", disk.serial or "no serial number"]
        facts.append(("drive", ", ".join([*words, units.format_capacity(disk.size_bytes)])))
    if document.superblock_pages:
        facts.append(("superblock", f"{document.superblock_pages} mapping units"))
    facts.append(("method", f"levels by {document.method}"))
    return facts
