"""The section of a published experiment in the document of a drive's sweep."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from opwatch.journal.request import SweepRequest
from opwatch.scenarios.free_space import evaluate_free_space
from opwatch.scenarios.iometer import combine_drive_probes, make_drive_findings
from opwatch.scenarios.on_drive import split_outcomes
from opwatch.scenarios.saturation import SaturationTarget, evaluate_saturation
from opwatch.scenarios.scenario import ScenarioKind, load_scenario
from opwatch.sinks.sweep.scenario_document import (
    build_free_space_fields,
    build_iometer_fields,
    build_saturation_fields,
    build_scenario_head,
)
from opwatch.sweep.outcome import LevelOutcome


def build_scenario_part(request: SweepRequest, outcomes: Sequence[LevelOutcome]) -> dict[str, Any]:
    """Return the experiment's section, or nothing for other sweeps and unfinished ones."""
    if request.scenario is None or len(outcomes) < len(request.levels):
        return {}
    scenario = load_scenario(request.scenario)
    if scenario.kind is ScenarioKind.SATURATION:
        saturation = evaluate_saturation(scenario, outcomes, SaturationTarget("drive"))
        return {"scenario": build_saturation_fields(scenario, saturation, 1.0)}
    n_bytes = int(request.pattern.jobs[0].options["bs"])
    if scenario.kind is ScenarioKind.FREE_SPACE:
        lines = evaluate_free_space(scenario, *split_outcomes(outcomes), n_bytes, "drive")
        return {"scenario": build_free_space_fields(scenario, lines)}
    labels = [f"{word.removesuffix('%')} %" for word in scenario.levels.split(",")]
    if [outcome.level.label for outcome in outcomes] != labels:
        scenario = scenario.without_published()
    result = combine_drive_probes(outcomes)
    found = make_drive_findings(scenario, result, outcomes)
    return {
        "scenario": build_scenario_head(scenario) | build_iometer_fields(scenario, result, n_bytes, found)
    }
