"""Verdicts on an author's findings in a document, and their summary."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from opwatch.fields import Fields
from opwatch.scenarios.scenario import ScenarioKind, ScenarioVerdict


class PageVerdict(NamedTuple):
    """A finding, whether reproduced, and the reason."""

    what: str
    verdict: ScenarioVerdict
    why: str


def holder_of(document: Fields) -> Fields:
    """Return the part of a document that holds points and statements; an experiment with levels has a
    separate part."""
    return document if document.table.get("type") != "sweep" else document.sub("scenario")


def verdicts_of(document: Fields) -> list[PageVerdict]:
    """Return the verdicts in document order."""
    scenario = document.sub("scenario")
    if scenario.kind("kind", ScenarioKind) is ScenarioKind.SATURATION:
        return list(_of_levels(scenario.tables("levels")))
    return [
        PageVerdict(row.text("what"), row.kind("verdict", ScenarioVerdict), row.text("why"))
        for row in holder_of(document).tables("statements")
    ]


def _of_levels(levels: Sequence[Fields]) -> Iterator[PageVerdict]:
    """Return the verdicts of all levels except the first, which is the baseline."""
    for level in levels[1:]:
        what = f"{level.text('label')} left unused gains what models of collectors say"
        yield PageVerdict(what, level.kind("likeness", ScenarioVerdict), level.text("why"))


def verdict_of_all(verdicts: Sequence[PageVerdict]) -> str:
    """Return a one-word summary, with counts if the verdicts differ."""
    counts = {kind: sum(one.verdict is kind for one in verdicts) for kind in ScenarioVerdict}
    there = [kind for kind in ScenarioVerdict if counts[kind]]
    if not there:
        return ScenarioVerdict.UNTOLD.value
    if len(there) == 1:
        return there[0].value
    return ", ".join(f"{counts[kind]} {kind.value}" for kind in there)
