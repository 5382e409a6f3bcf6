"""Experiments as one page: the author's findings with verdicts, plots, and tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from opwatch.fields import Fields
from opwatch.foreign import table_of
from opwatch.scenarios.scenario import ScenarioKind
from opwatch.sinks.markdown_text import as_text, fenced
from opwatch.sinks.report.page import document_of
from opwatch.sinks.report.plots import markup
from opwatch.sinks.report.plots.figure import Figure
from opwatch.sinks.report.single_figure import SingleFigure
from opwatch.sinks.scenario.document import TYPE
from opwatch.sinks.scenario.table import experiment_lines
from opwatch.sinks.scenario_page.other_figures import (
    free_space_figures,
    iometer_figures,
    mixed_figures,
    untrimmed_figures,
)
from opwatch.sinks.scenario_page.saturation_figures import saturation_figures
from opwatch.sinks.scenario_page.verdicts import verdict_of_all, verdicts_of
from opwatch.sinks.sweep.table import lines as sweep_lines

_FIGURES: Mapping[ScenarioKind, Callable[[Fields], Iterator[Figure]]] = {
    ScenarioKind.SATURATION: saturation_figures,
    ScenarioKind.FREE_SPACE: free_space_figures,
    ScenarioKind.UNTRIMMED: untrimmed_figures,
    ScenarioKind.IOMETER: iometer_figures,
    ScenarioKind.MIXED: mixed_figures,
}
# Heights of a picture with and without a note of several lines, and the length of such a note.
_HIGH, _LOW, _LONG_NOTE = 520, 440, 150
_VERDICTS = ("what its author found", "here", "why")


def experiment_page(documents: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
    """Return the page of the experiments, each named after its file. Raise BadInput for another kind of
    document."""
    body = "".join("".join(_section(name, document)) for name, document in documents)
    names = ", ".join(name for name, _ in documents)
    title = f"opwatch report: {names}"
    return document_of(title, f"<header><h1>{markup.text(names)}</h1></header>\n{body}")


def experiment_figures(document: Mapping[str, Any]) -> list[Figure]:
    """Return the experiment's plots in order."""
    fields = _checked(document)
    return list(_FIGURES[fields.sub("scenario").kind("kind", ScenarioKind)](fields))


def single_experiment_figures(documents: Sequence[tuple[str, Mapping[str, Any]]]) -> Iterator[SingleFigure]:
    """Yield each plot as a separate page, named after the experiment and the plot's position."""
    taken: dict[str, int] = {}
    for _, document in documents:
        name = _checked(document).sub("scenario").kind("kind", ScenarioKind).value.replace(" ", "-")
        for figure in experiment_figures(document):
            taken[name] = taken.get(name, 0) + 1
            unique = name if taken[name] == 1 else f"{name}-{taken[name]}"
            page = document_of(figure.title, f"<div class=one>{figure.html()}</div>")
            yield SingleFigure(unique, page, _HIGH if len(figure.note) > _LONG_NOTE else _LOW)


def experiment_markdown(documents: Sequence[tuple[str, Mapping[str, Any]]]) -> Iterator[str]:
    """Yield the verdicts and tables as Markdown, for a ticket."""
    for name, document in documents:
        fields = _checked(document)
        scenario, verdicts = fields.sub("scenario"), verdicts_of(fields)
        yield f"## {as_text(scenario.text('name'))}: {verdict_of_all(verdicts)}"
        yield f"From {as_text(name)}."
        yield ""
        for one in verdicts:
            yield f"- {as_text(one.what)}: **{one.verdict.value}**; {as_text(one.why)}"
        yield ""
        yield from fenced(_lines(document))


def _section(name: str, document: Mapping[str, Any]) -> Iterator[str]:
    fields = _checked(document)
    scenario, verdicts = fields.sub("scenario"), verdicts_of(fields)
    words = verdict_of_all(verdicts)
    yield f"<section><h2>{markup.text(scenario.text('name'))}: {markup.text(words)}</h2>"
    yield markup.paragraph(scenario.text("title"), "lead")
    yield markup.paragraph(f"{scenario.text('source')}. {scenario.text('remark')}")
    yield markup.paragraph(f"{fields.text('target')}, {fields.text('workload')}; from {name}")
    yield markup.table(_VERDICTS, [(one.what, one.verdict.value, one.why) for one in verdicts], words=3)
    figures = "".join(figure.html() for figure in experiment_figures(document))
    yield f"<div class=plots>{figures}</div>" if figures else ""
    yield f"{markup.lines_of(_lines(document))}</section>\n"


def _checked(document: Mapping[str, Any]) -> Fields:
    where = "the experiment"
    fields = Fields(table_of(document, where), where)
    if fields.table.get("type") not in ("sweep", TYPE) or fields.table.get("scenario") is None:
        raise fields.bad("it is none of a scenario: opwatch sweep run --scenario NAME -o FILE writes one")
    return fields


def _lines(document: Mapping[str, Any]) -> list[str]:
    table = dict(document)
    return list(experiment_lines(table) if table.get("type") == TYPE else sweep_lines(table))
