"""`opwatch sweep run`: on a drive, destroying its contents; or on simulated flash, in virtual time."""

from __future__ import annotations

import argparse

from opwatch.errors import UsageError
from opwatch.host import privilege
from opwatch.host.device import Devices
from opwatch.journal.file import FOLDER, create_sweep_journal
from opwatch.journal.state import SweepState
from opwatch.scenarios.scenario import load_scenario
from opwatch.sweep.methods import FILE_METHODS
from opwatch.tools.acting.guard.held_disk import HeldDisk
from opwatch.tools.acting.guard.held_mount import HeldMount
from opwatch.tools.commands.sweep import virtual
from opwatch.tools.commands.sweep.arguments.drive_arguments import (
    DRIVE_OPTIONS,
    add_drive_arguments,
    add_sweep_arguments,
    make_consent,
    make_request,
)
from opwatch.tools.commands.sweep.arguments.file_arguments import FILE_OPTIONS, refuse_file_options
from opwatch.tools.commands.sweep.arguments.level_arguments import (
    MODEL_OPTIONS,
    add_model_arguments,
    refuse_inapplicable,
)
from opwatch.tools.commands.sweep.arguments.pts_arguments import (
    add_sponsor_argument,
    add_test_arguments,
    make_test_request,
    refuse_test_options,
)
from opwatch.tools.commands.sweep.running import (
    add_recording_argument,
    print_left_out,
    print_result,
    require_new_file,
    run_remaining_levels,
)
from opwatch.tools.commands.sweep.scenarios.arguments import (
    add_loader_argument,
    add_scenario_argument,
    expand_workload,
)
from opwatch.tools.commands.sweep.scenarios.on_drive import make_scenario_request
from opwatch.tools.commands.sweep.scenarios.on_model import is_sweep
from opwatch.tools.runs.waiting import Waiter


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "opwatch sweep run --dev D --destroy --confirm SERIAL [--op LEVELS] [options]\n"
        "       opwatch sweep run --dev D --confirm SERIAL --method file|fill --dir MOUNT [options]\n"
        "       opwatch sweep run --dev D --destroy --confirm SERIAL --test NAME [options]\n"
        "       opwatch sweep run --virtual PROFILE [--op LEVELS] [options]\n"
        "       opwatch sweep run --scenario NAME --virtual PROFILE [--op LEVELS] [options]\n"
        "       opwatch sweep run --scenario NAME --dev D --destroy --confirm SERIAL [options]\n"
        "       opwatch sweep run --scenario mixed-io --virtual hard-disks|--on NAME=DIR... [options]"
    )
    add_drive_arguments(parser)
    add_model_arguments(parser)
    add_scenario_argument(parser)
    add_loader_argument(parser)
    add_recording_argument(
        parser, "record into a new file; with --virtual, write the document that --json prints"
    )
    add_sweep_arguments(parser)
    add_test_arguments(parser)
    add_sponsor_argument(parser)


def run(args: argparse.Namespace) -> int:
    refuse_test_options(args)
    if args.scenario is None:
        refuse_inapplicable(args, ["set", "on"], "--scenario")
    if not args.on:
        refuse_inapplicable(args, ["load"], "--on: on a whole drive, fio is always the load generator")
    if args.virtual is not None or (args.scenario is not None and args.dev is None):
        # An experiment on filesystems has a journal too.
        keeps = ("journals",) if args.on else ()
        refuse_inapplicable(args, [name for name in DRIVE_OPTIONS if name not in keeps], "--dev")
        args = expand_workload(args)
        has_levels = args.scenario is None or is_sweep(load_scenario(args.scenario))
        return virtual.run(args) if has_levels else virtual.run_experiment(args)
    if args.dev is None:
        raise UsageError(
            "name what to measure: --dev D (a drive) or --virtual PROFILE (simulated; see opwatch sweep list)"
        )
    if args.scenario is not None:
        refuse_inapplicable(args, ["test", *FILE_OPTIONS], "a sweep without --scenario")
        args = expand_workload(args)
    else:
        refuse_inapplicable(args, MODEL_OPTIONS, "--virtual")
    if args.test is None:
        refuse_file_options(args)
    else:
        refuse_inapplicable(args, FILE_OPTIONS, "levels (--op)")
    require_new_file(args.output)
    privilege.require_root("opwatch sweep run", "it writes to a drive", "sweep run ...")
    # From here on a signal takes effect at the next consistent point, with exit status 7.
    with Waiter() as waiter:
        state = _run_on_drive(args, waiter)
    return print_result(state, json=args.json)


def _run_on_drive(args: argparse.Namespace, waiter: Waiter) -> SweepState:
    claim: HeldDisk | HeldMount
    if args.scenario is not None:
        claim = HeldDisk(Devices(), args.dev, make_consent(args))
        request = make_scenario_request(args, claim.disk, claim.identity)
    elif args.test is not None:
        claim = HeldDisk(Devices(), args.dev, make_consent(args))
        request = make_test_request(args, claim.disk, claim.identity)
    elif args.method in FILE_METHODS:
        claim = HeldMount(Devices(), args.dev, args.dir, make_consent(args))
        request = make_request(args, claim.disk, claim.identity, claim)
    else:
        claim = HeldDisk(Devices(), args.dev, make_consent(args))
        request = make_request(args, claim.disk, claim.identity)
    if request.pattern.left_out and not args.quiet:
        print_left_out(request.pattern)
    with claim, create_sweep_journal(args.journals or FOLDER, request) as journal:
        state = SweepState(request)
        run_remaining_levels(claim, journal, state, waiter, args)
    return state
