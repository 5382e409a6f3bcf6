"""`opwatch sweep plan`: every step of a sweep, its bytes and its time. Writes nothing, and needs no root."""

from __future__ import annotations

import argparse

from opwatch.collectors.guard.looking import identity_of_disk
from opwatch.collectors.sweep.refusals import refusals
from opwatch.errors import UsageError
from opwatch.host.device import Devices
from opwatch.load.workload import load, require_reach
from opwatch.sinks.sweep.document import plan_document
from opwatch.sinks.sweep.plan import plan_lines
from opwatch.sinks.terminal import data
from opwatch.sweep.levels import LevelScale, OpBase, OpShare, parse_levels
from opwatch.sweep.methods import method_of
from opwatch.sweep.plan import SweepPlan, SweepSpeed, plan_steps
from opwatch.sweep.purges import DISCARD, purge_of
from opwatch.tools.arguments import byte_size
from opwatch.tools.commands.sweep.drive_arguments import add_allowance_argument, add_device_argument
from opwatch.tools.commands.sweep.level_arguments import (
    DEFAULT_WORKLOAD,
    MODEL_OPTIONS,
    add_level_arguments,
    add_load_arguments,
    add_model_arguments,
    pace_from,
    refuse_others,
    virtual_from,
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "opwatch sweep plan --dev D|--virtual PROFILE [--op LEVELS] [options]"
    add_device_argument(parser)
    add_allowance_argument(parser)
    add_model_arguments(parser)
    add_level_arguments(parser)
    add_load_arguments(parser)
    parser.add_argument(
        "--flash", metavar="SIZE", type=byte_size, help="what the drive has in all, where you know it"
    )
    parser.add_argument(
        "--rated", metavar="SIZE", type=byte_size, help="what the host may write in the drive's life (TBW)"
    )
    parser.add_argument(
        "--fill-speed", metavar="SIZE", type=byte_size, help="bytes a second that it takes in order"
    )
    parser.add_argument(
        "--speed", metavar="SIZE", type=byte_size, help="bytes a second that it takes of the workload"
    )
    parser.add_argument("--json", action="store_true", help='one document, "schema":"opwatch/1"')


def run(args: argparse.Namespace) -> int:
    if (args.dev is None) == (args.virtual is None):
        raise UsageError("say of what: --dev D or --virtual PROFILE, and one of them")
    plan = _of_device(args) if args.dev is not None else _of_model(args)
    if args.json:
        data().json(plan_document(plan))
    else:
        data().lines(plan_lines(plan))
    return 0


def _speed(args: argparse.Namespace) -> SweepSpeed:
    return SweepSpeed(args.fill_speed, args.speed)


def _of_model(args: argparse.Namespace) -> SweepPlan:
    refuse_others(args, ["workload", "purge"], "--dev")
    sweep = virtual_from(args)
    return SweepPlan(
        target=f"{sweep.profile.name} (simulated)",
        method=method_of(args.method).name,
        workload=sweep.load.name,
        levels=sweep.levels,
        steps=plan_steps(sweep.levels, method_of(args.method).name, sweep.pace, _speed(args)),
        life_bytes=args.rated,
        life_reason="--rated says what the host may write in its life",
        is_model=True,
    )


def _of_device(args: argparse.Namespace) -> SweepPlan:
    devices = Devices()
    device = devices.resolve(args.dev)
    if device.is_partition:
        raise UsageError(f"{device.name} is a partition: a level is one of the whole drive; name that")
    if not device.size_bytes:
        raise UsageError(f"{device.name} has no size: there is no medium in it, or it cannot be read")
    refuse_others(args, [name for name in MODEL_OPTIONS if name != "base"], "--virtual")
    base = OpBase(args.base or OpBase.VISIBLE)
    if base is OpBase.FLASH and args.flash is None:
        raise UsageError(f"--base {base}: say how much flash {device.name} has (--flash SIZE)")
    capacity = args.flash if base is OpBase.FLASH else device.size_bytes
    levels = parse_levels(args.op, LevelScale(capacity, OpShare(args.share), base), args.flash)
    for level in levels:
        if level.usable_bytes > device.size_bytes:
            raise UsageError(
                f"--op {level.label}: {level.usable_bytes} bytes are to be used, and {device.name} has "
                f"{device.size_bytes}"
            )
    method, purge = method_of(args.method).name, purge_of(args.purge or DISCARD.name)
    pattern, pace = load(args.workload or DEFAULT_WORKLOAD), pace_from(args)
    require_reach(pattern, pace.round_ratio)
    identity = identity_of_disk(devices, device)
    serial = identity.serial or "not told"
    return SweepPlan(
        target=f"{device.name}, {identity.model or 'no model'}, serial number {serial}",
        method=method,
        workload=pattern.name,
        levels=levels,
        steps=plan_steps(levels, method, pace, _speed(args), purge),
        refusals=tuple(
            refusals(devices, args.dev, allow_virtual=args.allow_virtual, method=method, purge=purge.name)
        ),
        life_bytes=args.rated,
        life_reason="--rated says what the host may write in its life",
    )
