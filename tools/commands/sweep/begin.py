"""`opwatch sweep run`: on a drive, destroying its contents; or on simulated flash, in virtual time."""

from __future__ import annotations

import argparse

from opwatch.collectors.guard.held_disk import HeldDisk
from opwatch.collectors.guard.held_mount import HeldMount
from opwatch.errors import UsageError
from opwatch.host import privilege
from opwatch.host.device import Devices
from opwatch.scenarios.scenario import scenario_of
from opwatch.sinks.terminal import say
from opwatch.sweep.journal.file import FOLDER, begin
from opwatch.sweep.journal.state import SweepState
from opwatch.sweep.methods import ON_FILES
from opwatch.tools.commands.sweep import virtual
from opwatch.tools.commands.sweep.arguments.drive_arguments import (
    DRIVE_OPTIONS,
    add_drive_arguments,
    add_sweep_arguments,
    consent_from,
    request_from,
)
from opwatch.tools.commands.sweep.arguments.file_arguments import FILE_OPTIONS, refuse_file_options
from opwatch.tools.commands.sweep.arguments.level_arguments import (
    MODEL_OPTIONS,
    add_model_arguments,
    refuse_others,
)
from opwatch.tools.commands.sweep.arguments.pts_arguments import (
    add_sponsor_argument,
    add_test_arguments,
    refuse_test_options,
    test_request_from,
)
from opwatch.tools.commands.sweep.running import add_recording_argument, perform, require_new, tell
from opwatch.tools.commands.sweep.scenarios.experiment import experiment_of
from opwatch.tools.commands.sweep.scenarios.on_drive import request_of_scenario
from opwatch.tools.commands.sweep.scenarios.plain_arguments import shaped
from opwatch.tools.commands.sweep.scenarios.scenario import add_loader_argument, add_scenario_argument
from opwatch.tools.waiting import Waiter


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "opwatch sweep run --dev D --destroy --confirm SERIAL [--op LEVELS] [options]\n"
        "       opwatch sweep run --dev D --confirm SERIAL --method file|fill --dir MOUNT [options]\n"
        "       opwatch sweep run --dev D --destroy --confirm SERIAL --test NAME [options]\n"
        "       opwatch sweep run --virtual PROFILE [--op LEVELS] [options]\n"
        "       opwatch sweep run --scenario NAME --virtual PROFILE [--op LEVELS] [options]\n"
        "       opwatch sweep run --scenario NAME --dev D --destroy --confirm SERIAL [options]\n"
        "       opwatch sweep run --scenario mixed-io --on NAME=DIR [--on NAME=DIR] [options]"
    )
    add_drive_arguments(parser)
    add_model_arguments(parser)
    add_scenario_argument(parser)
    add_loader_argument(parser)
    add_recording_argument(
        parser, "keep a recording of it in a new file; with --virtual, the document that --json prints"
    )
    add_sweep_arguments(parser)
    add_test_arguments(parser)
    add_sponsor_argument(parser)


def run(args: argparse.Namespace) -> int:
    refuse_test_options(args)
    if args.scenario is None:
        refuse_others(args, ["set", "on"], "--scenario")
    if not args.on:
        refuse_others(args, ["load"], "--on: sysbench writes files, and of a whole drive fio is the load")
    if args.virtual is not None or (args.scenario is not None and args.dev is None):
        # An experiment on filesystems has a journal too.
        keeps = ("journals",) if args.on else ()
        refuse_others(args, [name for name in DRIVE_OPTIONS if name not in keeps], "--dev")
        args = shaped(args)
        has_levels = args.scenario is None or experiment_of(scenario_of(args.scenario)) is None
        return virtual.run(args) if has_levels else virtual.run_experiment(args)
    if args.dev is None:
        raise UsageError("say on what: --dev D is a drive, --virtual PROFILE simulates one (sweep list)")
    if args.scenario is not None:
        refuse_others(args, ["test", *FILE_OPTIONS], "a sweep that is no scenario")
        args = shaped(args)
    else:
        refuse_others(args, MODEL_OPTIONS, "--virtual")
    if args.test is None:
        refuse_file_options(args)
    else:
        refuse_others(args, FILE_OPTIONS, "levels (--op)")
    require_new(args.output)
    privilege.require_root("opwatch sweep run", "it writes to a drive", "sweep run ...")
    # From here on a signal takes effect at the next consistent point, with exit status 7.
    with Waiter() as waiter:
        state = _on_a_drive(args, waiter)
    return tell(state, json=args.json)


def _on_a_drive(args: argparse.Namespace, waiter: Waiter) -> SweepState:
    claim: HeldDisk | HeldMount
    if args.scenario is not None:
        claim = HeldDisk(Devices(), args.dev, consent_from(args))
        request = request_of_scenario(args, claim.disk, claim.identity)
    elif args.test is not None:
        claim = HeldDisk(Devices(), args.dev, consent_from(args))
        request = test_request_from(args, claim.disk, claim.identity)
    elif args.method in ON_FILES:
        claim = HeldMount(Devices(), args.dev, args.dir, consent_from(args))
        request = request_from(args, claim.disk, claim.identity, claim)
    else:
        claim = HeldDisk(Devices(), args.dev, consent_from(args))
        request = request_from(args, claim.disk, claim.identity)
    if request.pattern.left_out and not args.quiet:
        say(f"{request.pattern.name}: the sweep decides these itself: {', '.join(request.pattern.left_out)}")
    with claim, begin(args.journals or FOLDER, request) as journal:
        state = SweepState(request)
        perform(claim, journal, state, waiter, args)
    return state
