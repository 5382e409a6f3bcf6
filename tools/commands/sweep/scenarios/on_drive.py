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
from opwatch.load.plain import PlainLoad
from opwatch.load.workload import LoadPattern, pattern_of
from opwatch.scenarios.free_space import free_space
from opwatch.scenarios.iometer_drive import drive_statements, iometer_of_drive
from opwatch.scenarios.on_drive import both_lines, drive_levels, drive_pace
from opwatch.scenarios.saturation import saturated
from opwatch.scenarios.scenario import Scenario, ScenarioKind, scenario_of
from opwatch.sinks.scenario.document import iometer_fields, scenario_head
from opwatch.sinks.scenario.sweep_fields import free_space_fields, saturation_fields
from opwatch.sweep.journal.request import SweepRequest
from opwatch.sweep.levels import OpLevel, OpShare
from opwatch.sweep.outcome import LevelOutcome
from opwatch.sweep.plan import SweepPace
from opwatch.tools.commands.sweep.arguments.drive_arguments import flash_of, level_request
from opwatch.tools.commands.sweep.arguments.level_arguments import DEFAULT_METHOD, refuse_others
from opwatch.tools.commands.sweep.scenarios.changes import with_changes

_HIS_LEVELS = ["0 %", "10 %"]


def request_of_scenario(args: argparse.Namespace, disk: BlockDevice, identity: DiskIdentity) -> SweepRequest:
    """Return the request of `--scenario` for this drive. Writes nothing."""
    scenario, levels, pattern, pace = planned_on_drive(args, disk, flash_of(disk))
    return level_request(
        args, disk, identity, levels=levels, pace=pace, pattern=pattern, scenario=scenario.name
    )


def planned_on_drive(
    args: argparse.Namespace, disk: BlockDevice, flash_bytes: int | None
) -> tuple[Scenario, tuple[OpLevel, ...], LoadPattern, SweepPace]:
    scenario = with_changes(scenario_of(args.scenario), args.set)
    refuse_others(args, ("base", "reads", "seed", "on", "sprandom"), "a sweep that is no scenario")
    if args.method != DEFAULT_METHOD or args.fill != SweepPace().fill_passes or args.share != OpShare.USED:
        raise UsageError("--method, --fill, --share: a scenario decides these itself")
    levels = drive_levels(scenario, disk.size_bytes, flash_bytes, args.op)
    depth, n_bytes = args.depth or scenario.queue_depth, args.bs or scenario.io_bytes
    name = f"random writes of {n_bytes} bytes, queue depth {depth}"
    pattern = pattern_of(PlainLoad(name, 0, 100, n_bytes, depth), scenario.name)
    # The default of other sweeps means that the option was not given.
    own_round = None if args.round == SweepPace().round_ratio else args.round
    return scenario, levels, pattern, drive_pace(scenario, own_round, args.rounds)


def scenario_part(request: SweepRequest, outcomes: Sequence[LevelOutcome]) -> dict[str, Any]:
    """Return the experiment's section of the document, or nothing for other sweeps and unfinished ones."""
    if request.scenario is None or len(outcomes) < len(request.levels):
        return {}
    scenario = scenario_of(request.scenario)
    if scenario.kind is ScenarioKind.SATURATION:
        return {"scenario": saturation_fields(scenario, saturated(outcomes, 1.0), 1.0)}
    n_bytes = int(request.pattern.jobs[0].options["bs"])
    if scenario.kind is ScenarioKind.IOMETER:
        return {"scenario": _iometer_part(scenario, outcomes, n_bytes)}
    # Published figures exist for the author's file sizes only.
    published = scenario.published_rates if len(outcomes) == 2 * len(scenario.published_rates) else ()
    lines = free_space(*both_lines(outcomes), n_bytes, published)
    return {"scenario": free_space_fields(scenario, lines)}


def _iometer_part(scenario: Scenario, outcomes: Sequence[LevelOutcome], n_bytes: int) -> dict[str, Any]:
    # Published figures exist for the author's levels only.
    is_his = [outcome.level.label for outcome in outcomes] == _HIS_LEVELS
    published = scenario.published if is_his else Fields({}, "nothing published")
    result = iometer_of_drive(outcomes)
    words = drive_statements(result, outcomes, published)
    return scenario_head(scenario) | iometer_fields(result, n_bytes, published.table, words)
