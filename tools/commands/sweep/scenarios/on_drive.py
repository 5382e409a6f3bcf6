"""A published experiment on a drive: from the arguments to the request, and from the levels to the report
section."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from opwatch.errors import UsageError
from opwatch.guard.identity import DiskIdentity
from opwatch.host.device import BlockDevice
from opwatch.journal.request import SweepRequest
from opwatch.load.plain import PlainLoad
from opwatch.load.workload import LoadPattern, make_pattern
from opwatch.scenarios.free_space import evaluate_free_space
from opwatch.scenarios.iometer import combine_drive_probes, make_drive_findings
from opwatch.scenarios.on_drive import choose_drive_pace, make_drive_levels, split_outcomes
from opwatch.scenarios.saturation import evaluate_saturation
from opwatch.scenarios.scenario import Scenario, ScenarioKind, load_scenario
from opwatch.sinks.sweep.scenario_document import (
    build_free_space_fields,
    build_iometer_fields,
    build_saturation_fields,
    build_scenario_head,
)
from opwatch.sweep.levels import OpLevel, OpShare
from opwatch.sweep.outcome import LevelOutcome
from opwatch.sweep.plan import SweepPace
from opwatch.tools.commands.sweep.arguments.drive_arguments import find_flash_bytes, make_level_request
from opwatch.tools.commands.sweep.arguments.level_arguments import DEFAULT_METHOD, refuse_inapplicable
from opwatch.tools.commands.sweep.scenarios.arguments import read_scenario


def make_scenario_request(
    args: argparse.Namespace, disk: BlockDevice, identity: DiskIdentity
) -> SweepRequest:
    """Return the request of `--scenario` for this drive. Writes nothing."""
    scenario, levels, pattern, pace = plan_on_drive(args, disk, find_flash_bytes(disk))
    return make_level_request(
        args, disk, identity, levels=levels, pace=pace, pattern=pattern, scenario=scenario.name
    )


def plan_on_drive(
    args: argparse.Namespace, disk: BlockDevice, flash_bytes: int | None
) -> tuple[Scenario, tuple[OpLevel, ...], LoadPattern, SweepPace]:
    scenario = read_scenario(args)
    refuse_inapplicable(args, ("base", "reads", "seed", "on", "sprandom"), "a sweep without --scenario")
    if args.method != DEFAULT_METHOD or args.fill != SweepPace().fill_passes or args.share != OpShare.USED:
        raise UsageError("--method, --fill, --share: a scenario sets these itself")
    levels = make_drive_levels(scenario, disk.size_bytes, flash_bytes, args.op)
    depth, n_bytes = args.depth or scenario.queue_depth, args.bs or scenario.io_bytes
    name = f"random writes of {n_bytes} bytes, queue depth {depth}"
    pattern = make_pattern(PlainLoad(name, 0, 100, n_bytes, depth), scenario.name)
    # The value is the default of other sweeps if the user did not give the option.
    own_round = None if args.round == SweepPace().round_ratio else args.round
    return scenario, levels, pattern, choose_drive_pace(scenario, own_round, args.rounds)


def build_scenario_part(request: SweepRequest, outcomes: Sequence[LevelOutcome]) -> dict[str, Any]:
    """Return the experiment's section of the document, or nothing for other sweeps and unfinished ones."""
    if request.scenario is None or len(outcomes) < len(request.levels):
        return {}
    scenario = load_scenario(request.scenario)
    if scenario.kind is ScenarioKind.SATURATION:
        levels = evaluate_saturation(scenario, outcomes, 1.0)
        return {"scenario": build_saturation_fields(scenario, levels, 1.0)}
    n_bytes = int(request.pattern.jobs[0].options["bs"])
    if scenario.kind is ScenarioKind.FREE_SPACE:
        lines = evaluate_free_space(scenario, *split_outcomes(outcomes), n_bytes)
        return {"scenario": build_free_space_fields(scenario, lines)}
    labels = [f"{word.removesuffix('%')} %" for word in scenario.drive_levels.split(",")]
    if [outcome.level.label for outcome in outcomes] != labels:
        scenario = scenario.without_published()
    result = combine_drive_probes(outcomes)
    found = make_drive_findings(scenario, result, outcomes)
    return {
        "scenario": build_scenario_head(scenario) | build_iometer_fields(scenario, result, n_bytes, found)
    }
