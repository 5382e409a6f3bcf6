"""Experiments as one page: verdicts on the author's claims, our own checks, plots, and tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from opwatch.codec import decode
from opwatch.fields import Fields
from opwatch.foreign import require_table
from opwatch.scenarios.claims import Finding, ScenarioVerdict, SelfCheck
from opwatch.scenarios.scenario import ScenarioKind
from opwatch.sinks.markdown_text import as_text, fenced
from opwatch.sinks.report.page import render_page
from opwatch.sinks.report.plots import markup
from opwatch.sinks.report.plots.figure import Figure
from opwatch.sinks.report.single_figure import SingleFigure
from opwatch.sinks.sweep.document import SweepDocument
from opwatch.sinks.sweep.page import render_blocks
from opwatch.sinks.sweep.scenario_document import TYPE
from opwatch.sinks.sweep.scenario_figures import FIGURES
from opwatch.sinks.sweep.scenario_section import (
    find_holder,
    format_experiment,
    format_model,
    list_experiment_blocks,
    read_checks,
    read_findings,
)
from opwatch.sinks.sweep.table import format_sweep as sweep_lines
from opwatch.sinks.sweep.table import make_level_table

# Heights of a picture with and without a note of several lines, and the length of such a note.
_HIGH, _LOW, _LONG_NOTE = 520, 440, 150
_CLAIMS, _CHECKS = ("author's claim", "here", "why"), ("check of our own model", "result", "why")


def render_experiments(documents: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
    """Return the page of the experiments, each named after its file. Raise BadInput for another kind of
    document."""
    body = "".join("".join(_render_experiment(name, document)) for name, document in documents)
    names = ", ".join(name for name, _ in documents)
    title = f"opwatch report: {names}"
    return render_page(title, f"<header><h1>{markup.escape_text(names)}</h1></header>\n{body}")


def plot_experiment(document: Mapping[str, Any]) -> list[Figure]:
    """Return the experiment's plots in order."""
    fields = _check_document(document)
    return list(FIGURES[_read_kind(fields)](fields))


def plot_single_experiments(documents: Sequence[tuple[str, Mapping[str, Any]]]) -> Iterator[SingleFigure]:
    """Yield each plot as a separate page, named after the experiment and the plot's position."""
    taken: dict[str, int] = {}
    for _, document in documents:
        name = _read_kind(_check_document(document)).value.replace(" ", "-")
        for figure in plot_experiment(document):
            taken[name] = taken.get(name, 0) + 1
            unique = name if taken[name] == 1 else f"{name}-{taken[name]}"
            page = render_page(figure.title, f"<div class=one>{figure.render_html()}</div>")
            yield SingleFigure(unique, page, _HIGH if len(figure.note) > _LONG_NOTE else _LOW)


def format_experiment_markdown(documents: Sequence[tuple[str, Mapping[str, Any]]]) -> Iterator[str]:
    """Yield the verdicts and tables as Markdown, for a ticket."""
    for name, document in documents:
        fields = _check_document(document)
        holder = find_holder(fields)
        findings, checks = read_findings(holder), read_checks(holder)
        title = fields.read_subtable("scenario").read_text("name")
        yield f"## {as_text(title)}: {_summarize_findings(findings)}"
        yield f"From {as_text(name)}."
        yield ""
        for finding in findings:
            yield f"- {as_text(finding.what)}: **{finding.verdict.label}**; {as_text(finding.why)}"
        yield ""
        if checks:
            yield "Checks of our own model:"
            yield ""
        for check in checks:
            yield f"- {as_text(check.what)}: {check.verdict.value}; {as_text(check.why)}"
        yield ""
        yield from fenced(_format_document(document))


def _render_experiment(name: str, document: Mapping[str, Any]) -> Iterator[str]:
    fields = _check_document(document)
    scenario, holder = fields.read_subtable("scenario"), find_holder(fields)
    findings = read_findings(holder)
    words = _summarize_findings(findings)
    yield f"<section><h2>{markup.escape_text(scenario.read_text('name'))}: {markup.escape_text(words)}</h2>"
    yield markup.render_paragraph(scenario.read_text("title"), "lead")
    yield markup.render_paragraph(f"{scenario.read_text('source')}. {scenario.read_text('remark')}")
    yield markup.render_paragraph(
        f"{fields.read_text('target')}, {fields.read_text('workload')}; from {name}"
    )
    yield _render_judgement(findings, read_checks(holder))
    figures = "".join(figure.render_html() for figure in plot_experiment(document))
    yield f"<div class=plots>{figures}</div>" if figures else ""
    yield from _render_tables(fields)
    yield "</section>\n"


def _render_judgement(findings: Sequence[Finding], checks: Sequence[SelfCheck]) -> str:
    """Return the author's claims, and apart from them our own checks."""
    claims = [(one.what, one.verdict.label, one.why) for one in findings]
    page = markup.render_table(_CLAIMS, claims, words=3, whole=1) if claims else ""
    if checks:
        rows = [(one.what, one.verdict.value, one.why) for one in checks]
        page += markup.render_table(_CHECKS, rows, words=3, whole=1)
    return page


def _render_tables(document: Fields) -> Iterator[str]:
    blocks = list(list_experiment_blocks(document))
    if document.table.get("type") != TYPE:
        blocks.append(make_level_table(decode(SweepDocument, document.table, document.where)))
    elif document.table.get("model") is not None:
        yield markup.render_paragraph(format_model(document.read_subtable("model")))
    yield render_blocks(blocks)


def _summarize_findings(findings: Sequence[Finding]) -> str:
    """Return the verdicts on the author's claims with their counts; checks of ours do not count."""
    counts = Counter(one.verdict for one in findings)
    some = [f"{counts[verdict]} {verdict.label}" for verdict in ScenarioVerdict if counts[verdict]]
    claims = "1 claim" if len(findings) == 1 else f"{len(findings)} claims"
    return f"{claims} of the author: {', '.join(some)}" if some else "no claim of the author was judged"


def _read_kind(document: Fields) -> ScenarioKind:
    return document.read_subtable("scenario").read_member("kind", ScenarioKind)


def _check_document(document: Mapping[str, Any]) -> Fields:
    where = "the experiment"
    fields = Fields(require_table(document, where), where)
    if fields.table.get("type") not in ("sweep", TYPE) or fields.table.get("scenario") is None:
        raise fields.make_error(
            "it is not the document of a scenario: opwatch sweep run --scenario NAME -o FILE writes one"
        )
    return fields


def _format_document(document: Mapping[str, Any]) -> list[str]:
    table = dict(document)
    return list(format_experiment(table) if table.get("type") == TYPE else sweep_lines(table))
