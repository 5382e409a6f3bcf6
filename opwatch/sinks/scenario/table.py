"""The table of an experiment without levels, built from its document."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from opwatch.fields import Fields
from opwatch.foreign import require_table
from opwatch.scenarios.scenario import ScenarioKind
from opwatch.sinks.scenario.document import TYPE
from opwatch.sinks.scenario.iometer import format_iometer
from opwatch.sinks.scenario.mixed import format_mixed
from opwatch.sinks.scenario.statements import format_statements
from opwatch.sinks.scenario.untrimmed import format_untrimmed
from opwatch.sinks.wrapping import wrap_text

_SECTIONS = {
    ScenarioKind.UNTRIMMED: format_untrimmed,
    ScenarioKind.IOMETER: format_iometer,
    ScenarioKind.MIXED: format_mixed,
}


def format_experiment(document: dict[str, Any]) -> Iterator[str]:
    """Yield the experiment's source, target and results, and whether they match the author's findings."""
    where = "the experiment"
    fields = Fields(require_table(document, where), where)
    if fields.table.get("type") != TYPE:
        raise fields.make_error(f"type is not {TYPE}: it was not written by opwatch sweep run --scenario")
    scenario = fields.read_subtable("scenario")
    yield from wrap_text(f"scenario {scenario.read_text('name')}: {scenario.read_text('title')}")
    yield from wrap_text(f"source: {scenario.read_text('source')}. {scenario.read_text('remark')}")
    yield from wrap_text(f"{fields.read_text('target')}, {fields.read_text('workload')}")
    if fields.table.get("model") is not None:
        yield from _format_model(fields.read_subtable("model"))
    section = _SECTIONS.get(scenario.read_member("kind", ScenarioKind))
    if section is None:
        raise scenario.make_error("its kind has levels")
    yield ""
    yield from section(fields)
    yield ""
    yield from format_statements(fields)


def _format_model(model: Fields) -> Iterator[str]:
    text = f"A MODEL of {model.read_text('profile')} in virtual time, not a drive"
    if model.read_amount("ratio") != 1:
        text += f", simulated at {100 * model.read_amount('ratio'):.2g} % of its size"
    yield from wrap_text(f"{text}. Its constants: {model.read_text('source')}.")
