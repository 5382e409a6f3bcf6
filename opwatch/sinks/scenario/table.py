"""The table of an experiment without levels, built from its document."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from opwatch.fields import Fields
from opwatch.foreign import table_of
from opwatch.scenarios.scenario import ScenarioKind
from opwatch.sinks.folding import folded
from opwatch.sinks.scenario.document import TYPE
from opwatch.sinks.scenario.iometer import iometer_lines
from opwatch.sinks.scenario.mixed import mixed_lines
from opwatch.sinks.scenario.statements import statement_lines
from opwatch.sinks.scenario.untrimmed import untrimmed_lines

_SECTIONS = {
    ScenarioKind.UNTRIMMED: untrimmed_lines,
    ScenarioKind.IOMETER: iometer_lines,
    ScenarioKind.MIXED: mixed_lines,
}


def experiment_lines(document: dict[str, Any]) -> Iterator[str]:
    """Yield the experiment's source, target and results, and whether they match the author's findings."""
    where = "the experiment"
    fields = Fields(table_of(document, where), where)
    if fields.table.get("type") != TYPE:
        raise fields.bad(f"type is not {TYPE}: it was not written by opwatch sweep run --scenario")
    scenario = fields.sub("scenario")
    yield from folded(f"scenario {scenario.text('name')}: {scenario.text('title')}")
    yield from folded(f"source: {scenario.text('source')}. {scenario.text('remark')}")
    yield from folded(f"{fields.text('target')}, {fields.text('workload')}")
    if fields.table.get("model") is not None:
        yield from _model(fields.sub("model"))
    section = _SECTIONS.get(scenario.kind("kind", ScenarioKind))
    if section is None:
        raise scenario.bad("kind is one that has levels")
    yield ""
    yield from section(fields)
    yield ""
    yield from statement_lines(fields)


def _model(model: Fields) -> Iterator[str]:
    text = f"A MODEL of {model.text('profile')} in virtual time, not a drive"
    if model.amount("ratio") != 1:
        text += f", simulated at {100 * model.amount('ratio'):.2g} % of its size"
    yield from folded(f"{text}. Its constants: {model.text('source')}.")
