"""A published experiment on a drive: from the arguments to the request, and from the levels to the report
section."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from opwatch.errors import UsageError
from opwatch.fields import Fields
from opwatch.guard.identity import DiskIdentity
from opwatch.host.device import BlockDevice
from opwatch.journal.request import SweepRequest
from opwatch.load.plain import PlainLoad
from opwatch.load.workload import LoadPattern, make_pattern
from opwatch.scenarios.free_space import evaluate_free_space
from opwatch.scenarios.iometer_drive import combine_drive_probes, make_drive_findings
from opwatch.scenarios.on_drive import choose_drive_pace, make_drive_levels, split_outcomes
from opwatch.scenarios.saturation import evaluate_saturation
from opwatch.scenarios.scenario import Scenario, ScenarioKind, load_scenario
from opwatch.sinks.scenario.document import build_iometer_fields, build_scenario_head
from opwatch.sinks.scenario.sweep_fields import build_free_space_fields, build_saturation_fields
from opwatch.sweep.levels import OpLevel, OpShare
from opwatch.sweep.outcome import LevelOutcome
from opwatch.sweep.plan import SweepPace
from opwatch.tools.commands.sweep.arguments.drive_arguments import find_flash_bytes, make_level_request
from opwatch.tools.commands.sweep.arguments.level_arguments import DEFAULT_METHOD, refuse_inapplicable
from opwatch.tools.commands.sweep.scenarios.changes import apply_changes

_PUBLISHED_LEVELS = ["0 %", "10 %"]


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
    scenario = apply_changes(load_scenario(args.scenario), args.set)
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
        return {"scenario": build_saturation_fields(scenario, evaluate_saturation(outcomes, 1.0), 1.0)}
    n_bytes = int(request.pattern.jobs[0].options["bs"])
    if scenario.kind is ScenarioKind.IOMETER:
        return {"scenario": _build_iometer_part(scenario, outcomes, n_bytes)}
    # Published figures exist for the author's file sizes only.
    published = scenario.published_rates if len(outcomes) == 2 * len(scenario.published_rates) else ()
    lines = evaluate_free_space(*split_outcomes(outcomes), n_bytes, published)
    return {"scenario": build_free_space_fields(scenario, lines)}


def _build_iometer_part(scenario: Scenario, outcomes: Sequence[LevelOutcome], n_bytes: int) -> dict[str, Any]:
    # Published figures exist for the author's levels only.
    is_his = [outcome.level.label for outcome in outcomes] == _PUBLISHED_LEVELS
    published = scenario.published if is_his else Fields({}, "nothing published")
    result = combine_drive_probes(outcomes)
    words = make_drive_findings(result, outcomes, published)
    return build_scenario_head(scenario) | build_iometer_fields(result, n_bytes, published.table, words)
