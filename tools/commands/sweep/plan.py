"""`opwatch sweep plan`: every step of a sweep with its bytes and time. Writes nothing, and needs no root."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from opwatch.collectors.guard.disk_facts import read_disk_identity
from opwatch.errors import UsageError
from opwatch.host.device import BlockDevice, Devices
from opwatch.load.distribution import find_write_parts
from opwatch.load.workload import find_workload, require_data_only_writes, require_reach
from opwatch.pts.planning import bound_test_bytes, plan_part_steps
from opwatch.scenarios.scenario import load_scenario
from opwatch.sinks.sweep.document import build_plan_document
from opwatch.sinks.sweep.plan import format_plan
from opwatch.sinks.terminal import open_stdout
from opwatch.sweep.levels import LevelScale, OpBase, OpLevel, OpShare, parse_levels
from opwatch.sweep.methods import FILE_METHODS, find_method
from opwatch.sweep.plan import SweepPlan, SweepRefusal, SweepSpeed, plan_steps
from opwatch.sweep.purges import DISCARD
from opwatch.tools.acting.fio.options import find_sprandom_refusal
from opwatch.tools.acting.sweep.offers import describe_purge
from opwatch.tools.acting.sweep.refusals import find_refusals
from opwatch.tools.arguments import parse_byte_size
from opwatch.tools.commands.sweep.arguments.drive_arguments import (
    add_allowance_argument,
    add_device_argument,
    find_flash_bytes,
)
from opwatch.tools.commands.sweep.arguments.file_arguments import (
    FILE_LEVELS,
    FILE_OPTIONS,
    add_file_arguments,
    choose_file_levels,
    inspect_mount,
    refuse_file_options,
)
from opwatch.tools.commands.sweep.arguments.level_arguments import (
    DEFAULT_LEVELS,
    DEFAULT_METHOD,
    DEFAULT_WORKLOAD,
    MODEL_OPTIONS,
    VirtualSweep,
    add_level_arguments,
    add_load_arguments,
    add_model_arguments,
    make_pace,
    make_virtual_sweep,
    refuse_inapplicable,
)
from opwatch.tools.commands.sweep.arguments.pts_arguments import (
    add_test_arguments,
    make_order,
    make_test_levels,
    make_test_pace,
    refuse_level_options,
    refuse_test_options,
)
from opwatch.tools.commands.sweep.scenarios.arguments import add_scenario_argument, expand_workload
from opwatch.tools.commands.sweep.scenarios.on_drive import plan_on_drive
from opwatch.tools.commands.sweep.scenarios.on_model import is_sweep, make_scenario_run, plan_experiment


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "opwatch sweep plan --dev D|--virtual PROFILE [--op LEVELS|--test NAME] [options]\n"
        "       opwatch sweep plan --scenario NAME --virtual PROFILE|--on NAME=DIR [options]"
    )
    add_device_argument(parser)
    add_allowance_argument(parser)
    add_model_arguments(parser)
    add_level_arguments(parser)
    add_load_arguments(parser)
    add_file_arguments(parser)
    add_test_arguments(parser)
    add_scenario_argument(parser)
    parser.add_argument(
        "--flash", metavar="SIZE", type=parse_byte_size, help="the drive's flash capacity for data, if known"
    )
    parser.add_argument(
        "--rated",
        metavar="SIZE",
        type=parse_byte_size,
        help="bytes that the host may write in the drive's life (TBW)",
    )
    parser.add_argument(
        "--fill-speed",
        metavar="SIZE",
        type=parse_byte_size,
        help="the drive's sequential write rate per second",
    )
    parser.add_argument(
        "--speed", metavar="SIZE", type=parse_byte_size, help="the drive's rate per second under the workload"
    )
    parser.add_argument("--json", action="store_true", help='print one JSON document, "schema":"opwatch/1"')


def run(args: argparse.Namespace) -> int:
    if args.scenario is not None:
        refuse_inapplicable(args, ["test", *FILE_OPTIONS], "a sweep without --scenario")
        if args.dev is not None:
            refuse_inapplicable(args, ["virtual"], "a scenario without --dev")
            return _show_plan(_plan_scenario_on_drive(expand_workload(args)), args)
        return _show_plan(_plan_scenario(expand_workload(args)), args)
    refuse_inapplicable(args, ["set", "on"], "--scenario")
    if (args.dev is None) == (args.virtual is None):
        raise UsageError("name what to plan for: either --dev D or --virtual PROFILE")
    refuse_test_options(args)
    if args.test is not None:
        refuse_inapplicable(args, FILE_OPTIONS, "levels (--op)")
        plan = _plan_test(args)
    else:
        refuse_file_options(args)
        plan = _plan_device(args) if args.dev is not None else _plan_model(args)
    return _show_plan(plan, args)


def _show_plan(plan: SweepPlan, args: argparse.Namespace) -> int:
    if args.json:
        open_stdout().write_json(build_plan_document(plan))
    else:
        open_stdout().write_lines(format_plan(plan))
    return 0


def _plan_scenario(args: argparse.Namespace) -> SweepPlan:
    if is_sweep(load_scenario(args.scenario)):
        return _plan_sweep(make_scenario_run(args).sweep, args)
    return plan_experiment(args)


def _plan_scenario_on_drive(args: argparse.Namespace) -> SweepPlan:
    devices = Devices()
    device = _resolve_drive(devices, args.dev)
    _, levels, pattern, pace = plan_on_drive(args, device, args.flash or find_flash_bytes(device))
    purge = describe_purge(device, args.purge or DISCARD.name)
    steps = plan_steps(levels, DEFAULT_METHOD, pace, _make_speed(args), purge)
    refused = find_refusals(devices, args.dev, allow_virtual=args.allow_virtual, purge=purge.name)
    return SweepPlan(
        target=_describe_target(devices, device),
        method=DEFAULT_METHOD,
        workload=pattern.name,
        levels=levels,
        steps=tuple(step for step in steps if step.at_most),
        refusals=tuple(refused),
        life_bytes=args.rated,
        life_reason="--rated SIZE gives the rated endurance",
    )


def _make_speed(args: argparse.Namespace) -> SweepSpeed:
    return SweepSpeed(args.fill_speed, args.speed)


def _plan_model(args: argparse.Namespace) -> SweepPlan:
    refuse_inapplicable(args, ["purge", "sprandom"], "--dev")
    return _plan_sweep(make_virtual_sweep(expand_workload(args)), args)


def _plan_sweep(sweep: VirtualSweep, args: argparse.Namespace) -> SweepPlan:
    steps = plan_steps(sweep.levels, find_method(args.method).name, sweep.pace, _make_speed(args))
    return SweepPlan(
        target=f"{sweep.profile.name} (simulated)",
        method=find_method(args.method).name,
        workload=sweep.load.name,
        levels=sweep.levels,
        # A drive to be written while new is not filled first.
        steps=tuple(step for step in steps if step.at_most),
        life_bytes=args.rated,
        life_reason="--rated SIZE gives the rated endurance",
        is_model=True,
    )


def _resolve_drive(devices: Devices, named: str) -> BlockDevice:
    """Return the whole drive that the user named."""
    device = devices.resolve(named)
    if device.is_partition:
        raise UsageError(
            f"{device.name} is a partition, and levels are set on the whole drive: name the drive"
        )
    if not device.size_bytes:
        raise UsageError(f"{device.name} has no size: it has no medium, or cannot be read")
    return device


def _describe_target(devices: Devices, device: BlockDevice) -> str:
    identity = read_disk_identity(devices, device)
    serial = identity.serial or "not reported"
    return f"{device.name}, {identity.model or 'unknown model'}, serial number {serial}"


def _plan_test(args: argparse.Namespace) -> SweepPlan:
    """Return the plan of an SNIA test."""
    refuse_inapplicable(args, ["virtual"], "levels (--op); a test runs on a drive")
    refuse_inapplicable(args, MODEL_OPTIONS, "--virtual")
    refuse_level_options(args)
    devices = Devices()
    device = _resolve_drive(devices, args.dev)
    order, purge = make_order(args, device), describe_purge(device, args.purge or DISCARD.name)
    levels = make_test_levels(order, device)
    planned = [bound_test_bytes(part, device.size_bytes) for part in order.parts]
    return SweepPlan(
        target=_describe_target(devices, device),
        method="window",
        workload=f"SNIA PTS 2.0.2 {order.name}",
        levels=levels,
        steps=plan_part_steps(order, levels, make_test_pace(args), _make_speed(args), purge),
        refusals=tuple(find_refusals(devices, args.dev, allow_virtual=args.allow_virtual, purge=purge.name)),
        life_bytes=args.rated,
        life_reason="--rated SIZE gives the rated endurance",
        most_write_bytes=None if None in planned else sum(one or 0 for one in planned),
        bytes_reason="" if args.speed else "the bytes written depend on the drive's speed (--speed)",
    )


def _list_sprandom_refusals(args: argparse.Namespace) -> list[SweepRefusal]:
    refused = find_sprandom_refusal() if args.sprandom else None
    return [SweepRefusal("fill", refused, "leave out --sprandom to fill in order")] if refused else []


def _require_room(levels: Sequence[OpLevel], device: BlockDevice) -> None:
    for level in levels:
        if level.usable_bytes > device.size_bytes:
            raise UsageError(
                f"--op {level.label} uses {level.usable_bytes} bytes, but {device.name} has only "
                f"{device.size_bytes}"
            )


def _plan_device(args: argparse.Namespace) -> SweepPlan:
    devices = Devices()
    is_on_files = args.method in FILE_METHODS
    named = devices.resolve(args.dev) if is_on_files else _resolve_drive(devices, args.dev)
    device = named.disk
    refuse_inapplicable(args, [name for name in MODEL_OPTIONS if name != "base"], "--virtual")
    base = OpBase(args.base or OpBase.VISIBLE)
    if base is OpBase.FLASH and args.flash is None:
        raise UsageError(f"--base {base} needs the flash size of {device.name} (--flash SIZE)")
    capacity = args.flash if base is OpBase.FLASH else device.size_bytes
    usual = FILE_LEVELS if is_on_files else DEFAULT_LEVELS
    levels = parse_levels(args.op or usual, LevelScale(capacity, OpShare(args.share), base), args.flash)
    _require_room(levels, device)
    method, purge = find_method(args.method).name, describe_purge(device, args.purge or DISCARD.name)
    pattern, pace = find_workload(args.workload or DEFAULT_WORKLOAD), make_pace(args)
    require_reach(pattern, pace.round_ratio)
    if is_on_files:
        require_data_only_writes(pattern)
        room, refused = inspect_mount(args, devices, named)
        levels = choose_file_levels(args, levels, room)
    else:
        refused = find_refusals(
            devices,
            args.dev,
            allow_virtual=args.allow_virtual,
            method=method,
            purge=purge.name,
            levels=levels,
        )
    parts = find_write_parts(pattern, levels[0].load_bytes)
    return SweepPlan(
        target=_describe_target(devices, device),
        method=method,
        workload=pattern.name,
        levels=levels,
        steps=plan_steps(levels, method, pace, _make_speed(args), purge, parts),
        refusals=(*refused, *_list_sprandom_refusals(args)),
        life_bytes=args.rated,
        life_reason="--rated SIZE gives the rated endurance",
    )
