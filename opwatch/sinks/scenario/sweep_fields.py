"""Fields added by an experiment to the sweep's document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from opwatch.scenarios.free_space import FilledDrive
from opwatch.scenarios.saturation import SaturationLevel, find_steady_iops
from opwatch.scenarios.scenario import Scenario
from opwatch.sinks.scenario.document import build_scenario_head, build_statements


def build_saturation_fields(
    scenario: Scenario, levels: Sequence[SaturationLevel], time_ratio: float
) -> dict[str, Any]:
    """Return the experiment's fields. `time_ratio` is the duration of the rounds divided by the drive time
    they represent."""
    return build_scenario_head(scenario) | {
        "time_ratio": time_ratio,
        "levels": [_build_saturated_level(level) for level in levels],
    }


def _build_saturated_level(level: SaturationLevel) -> dict[str, Any]:
    return {
        "label": level.outcome.level.label,
        "fresh_iops": level.fresh_iops,
        "cliff": level.cliff._asdict() if level.cliff else None,
        "predicted_cliff_bytes": level.predicted_bytes,
        "steady_iops": find_steady_iops(level.outcome),
        "iops_cv": level.outcome.figures.iops_cv,
        "gain": level.gain,
        "gain_error": level.gain_error,
        "expected_gain": level.expected._asdict() if level.expected else None,
        "is_by_waf": level.is_by_waf,
        "likeness": level.likeness.value,
        "why": level.why,
    }


def build_free_space_fields(scenario: Scenario, result: FilledDrive) -> dict[str, Any]:
    """Return the experiment's fields. Rates are in bytes per second."""
    return build_scenario_head(scenario) | {
        "reserved_ratio": scenario.reserved_ratio,
        "points": [point._asdict() for point in result.points],
        "statements": build_statements(result.statements),
        "flash_as_published": result.flash_as_published,
    }
