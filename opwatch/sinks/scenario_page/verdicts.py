"""Verdicts on an author's findings in a document, and their summary."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from opwatch.fields import Fields
from opwatch.scenarios.claims import ScenarioVerdict
from opwatch.scenarios.scenario import ScenarioKind


class PageVerdict(NamedTuple):
    """A finding, whether reproduced, and the reason."""

    what: str
    verdict: ScenarioVerdict
    why: str


def find_holder(document: Fields) -> Fields:
    """Return the part of a document that holds points and statements; an experiment with levels has a
    separate part."""
    return document if document.table.get("type") != "sweep" else document.read_subtable("scenario")


def list_verdicts(document: Fields) -> list[PageVerdict]:
    """Return the verdicts in document order."""
    scenario = document.read_subtable("scenario")
    if scenario.read_member("kind", ScenarioKind) is ScenarioKind.SATURATION:
        return list(_list_level_verdicts(scenario.read_subtables("levels")))
    return [
        PageVerdict(row.read_text("what"), row.read_member("verdict", ScenarioVerdict), row.read_text("why"))
        for row in find_holder(document).read_subtables("statements")
    ]


def _list_level_verdicts(levels: Sequence[Fields]) -> Iterator[PageVerdict]:
    """Return the verdicts of all levels except the first, which is the baseline."""
    for level in levels[1:]:
        what = f"{level.read_text('label')} left unused gains what the collector models predict"
        yield PageVerdict(what, level.read_member("likeness", ScenarioVerdict), level.read_text("why"))


def summarize_verdicts(verdicts: Sequence[PageVerdict]) -> str:
    """Return a one-word summary, with counts if the verdicts differ."""
    counts = {kind: sum(one.verdict is kind for one in verdicts) for kind in ScenarioVerdict}
    there = [kind for kind in ScenarioVerdict if counts[kind]]
    if not there:
        return ScenarioVerdict.UNTOLD.label
    if len(there) == 1:
        return there[0].label
    return ", ".join(f"{counts[kind]} {kind.label}" for kind in there)
