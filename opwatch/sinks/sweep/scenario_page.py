"""Experiments as one page: the author's findings with verdicts, plots, and tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from opwatch.fields import Fields
from opwatch.foreign import require_table
from opwatch.scenarios.claims import Finding, ScenarioVerdict
from opwatch.scenarios.scenario import ScenarioKind
from opwatch.sinks.markdown_text import as_text, fenced
from opwatch.sinks.report.page import render_page
from opwatch.sinks.report.plots import markup
from opwatch.sinks.report.plots.figure import Figure
from opwatch.sinks.report.single_figure import SingleFigure
from opwatch.sinks.sweep.scenario_document import TYPE
from opwatch.sinks.sweep.scenario_figures import FIGURES
from opwatch.sinks.sweep.scenario_section import find_holder, format_experiment
from opwatch.sinks.sweep.table import format_sweep as sweep_lines

# Heights of a picture with and without a note of several lines, and the length of such a note.
_HIGH, _LOW, _LONG_NOTE = 520, 440, 150
_VERDICTS = ("author's finding", "here", "why")


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
        scenario, verdicts = fields.read_subtable("scenario"), _list_findings(fields)
        yield f"## {as_text(scenario.read_text('name'))}: {_summarize_findings(verdicts)}"
        yield f"From {as_text(name)}."
        yield ""
        for one in verdicts:
            yield f"- {as_text(one.what)}: **{one.verdict.label}**; {as_text(one.why)}"
        yield ""
        yield from fenced(_format_document(document))


def _render_experiment(name: str, document: Mapping[str, Any]) -> Iterator[str]:
    fields = _check_document(document)
    scenario, verdicts = fields.read_subtable("scenario"), _list_findings(fields)
    words = _summarize_findings(verdicts)
    yield f"<section><h2>{markup.escape_text(scenario.read_text('name'))}: {markup.escape_text(words)}</h2>"
    yield markup.render_paragraph(scenario.read_text("title"), "lead")
    yield markup.render_paragraph(f"{scenario.read_text('source')}. {scenario.read_text('remark')}")
    yield markup.render_paragraph(
        f"{fields.read_text('target')}, {fields.read_text('workload')}; from {name}"
    )
    yield markup.render_table(
        _VERDICTS, [(one.what, one.verdict.label, one.why) for one in verdicts], words=3
    )
    figures = "".join(figure.render_html() for figure in plot_experiment(document))
    yield f"<div class=plots>{figures}</div>" if figures else ""
    yield f"{markup.render_preformatted(_format_document(document))}</section>\n"


def _list_findings(document: Fields) -> list[Finding]:
    """Return the findings in document order. The first level of a saturation is its baseline."""
    if _read_kind(document) is ScenarioKind.SATURATION:
        return [
            Finding(
                f"{level.read_text('label')} left unused gains what the collector models predict",
                level.read_member("likeness", ScenarioVerdict),
                level.read_text("why"),
            )
            for level in document.read_subtable("scenario").read_subtables("levels")[1:]
        ]
    return [
        Finding(row.read_text("what"), row.read_member("verdict", ScenarioVerdict), row.read_text("why"))
        for row in find_holder(document).read_subtables("statements")
    ]


def _summarize_findings(findings: Sequence[Finding]) -> str:
    """Return a one-word summary, with counts if the verdicts differ."""
    counts = Counter(one.verdict for one in findings)
    there = [verdict for verdict in ScenarioVerdict if counts[verdict]] or [ScenarioVerdict.UNTOLD]
    if len(there) == 1:
        return there[0].label
    return ", ".join(f"{counts[verdict]} {verdict.label}" for verdict in there)


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
