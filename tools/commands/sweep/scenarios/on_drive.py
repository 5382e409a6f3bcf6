"""A published experiment on a drive: from the arguments to the request."""

from __future__ import annotations

import argparse

from opwatch.errors import UsageError
from opwatch.guard.identity import DiskIdentity
from opwatch.host.device import BlockDevice
from opwatch.journal.request import SweepRequest
from opwatch.load.plain import PlainLoad
from opwatch.load.workload import LoadPattern, make_pattern
from opwatch.scenarios.on_drive import choose_drive_pace, make_drive_levels
from opwatch.scenarios.scenario import Scenario
from opwatch.sweep.levels import OpLevel, OpShare
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
