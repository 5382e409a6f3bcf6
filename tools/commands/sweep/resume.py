"""`opwatch sweep resume NAME --destroy --confirm SERIAL`: run the remaining levels of a sweep. An experiment
on filesystems needs only its name."""

from __future__ import annotations

import argparse
from collections.abc import Collection
from contextlib import closing
from dataclasses import replace

from opwatch.collectors.guard.disk_facts import read_disk_identity
from opwatch.errors import RefusedError
from opwatch.guard.identity import DiskIdentity, list_differences
from opwatch.host import privilege
from opwatch.host.device import Devices
from opwatch.journal.file import FOLDER, reopen_sweep_journal
from opwatch.journal.state import SweepState
from opwatch.journal.undo import HighestUndo, parse_undo
from opwatch.scenarios.experiment_file import has_experiment, reopen_experiment
from opwatch.sweep.purges import SANITIZE
from opwatch.tools.acting.addresses.lowering import undo_highest
from opwatch.tools.acting.erasing.password import undo_passwords
from opwatch.tools.acting.guard.held_disk import HeldDisk
from opwatch.tools.acting.namespaces.sanitizing import wait_for_sanitize
from opwatch.tools.acting.sweep.files import undo_files
from opwatch.tools.acting.sweep.namespace import undo_namespaces
from opwatch.tools.acting.sweep.partition import undo_partitions
from opwatch.tools.commands.sweep.arguments.drive_arguments import (
    add_consent_arguments,
    add_wear_arguments,
    make_consent,
)
from opwatch.tools.commands.sweep.arguments.file_arguments import reclaim_mount
from opwatch.tools.commands.sweep.arguments.level_arguments import refuse_inapplicable
from opwatch.tools.commands.sweep.running import (
    add_recording_argument,
    print_result,
    require_new_file,
    run_remaining_levels,
)
from opwatch.tools.commands.sweep.scenarios.on_mounts import finish_experiment
from opwatch.tools.commands.sweep.virtual import print_experiment
from opwatch.tools.runs.progress import ProgressReporter
from opwatch.tools.runs.waiting import Waiter


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "opwatch sweep resume NAME --destroy --confirm SERIAL [options]\n"
        "       opwatch sweep resume NAME [options]   (an experiment on filesystems)"
    )
    parser.add_argument("name", metavar="NAME", help="the sweep's name, printed when it started and stopped")
    add_consent_arguments(parser)
    add_recording_argument(parser, "record the rest of the sweep into a new file")
    add_wear_arguments(parser, "as before", "as before")


def run(args: argparse.Namespace) -> int:
    require_new_file(args.output)
    if has_experiment(args.journals or FOLDER, args.name):
        return _resume_experiment(args)
    privilege.require_root("opwatch sweep resume", "it writes to a drive", "sweep resume ...")
    journal, state = reopen_sweep_journal(args.journals or FOLDER, args.name)
    with journal:
        if not state.remaining_levels and state.is_ended:
            return print_result(state, json=args.json)
        devices = Devices()
        if state.request.purge == SANITIZE.name:
            # Until sanitize ends, the drive's identity cannot be read.
            with closing(ProgressReporter(quiet=args.quiet)) as talk:
                wait_for_sanitize(state.disk_identity, talk.show_progress, journal.resume_command)
        # This must come first: without the namespace the drive has no disk for identification.
        undo_namespaces(devices, make_consent(args), journal, state)
        consent = replace(make_consent(args), planned=state.disk_identity)
        name = find_present_drive(devices, state.disk_identity, list_possible_sizes(state))
        budget = state.find_remaining_budget(args.max_write, args.max_life, args.max_temperature)
        state.request = replace(state.request, budget=budget)
        with Waiter() as waiter:
            if state.request.place:
                with reclaim_mount(devices, name, state.request, consent) as mount:
                    undo_files(mount, journal, state)
                    run_remaining_levels(mount, journal, state, waiter, args)
            else:
                # Do this first, because a locked drive cannot be read.
                undo_passwords(devices, name, journal, state)
                undo_highest(devices, name, consent, journal, state)
                undo_partitions(devices, name, consent, journal, state)
                with HeldDisk(devices, name, consent) as claim:
                    run_remaining_levels(claim, journal, state, waiter, args)
    return print_result(state, json=args.json)


def _resume_experiment(args: argparse.Namespace) -> int:
    """Resume an experiment on filesystems. Destroys no user data, so no confirmation is needed."""
    given = ["destroy", "confirm", "allow_virtual", "max_write", "max_life", "max_temperature"]
    refuse_inapplicable(args, given, "a sweep of a drive")
    journal, state = reopen_experiment(args.journals or FOLDER, args.name)
    with journal:
        answer = finish_experiment(state, journal, quiet=args.quiet)
    return print_experiment(answer, args)


def list_possible_sizes(state: SweepState) -> set[int]:
    """Return the possible current sizes of the drive: the size at the start, and the size of the level at
    which a sweep was killed."""
    undone = [parse_undo(text) for text in state.undo]
    lowered = {undo.shown_bytes for undo in undone if isinstance(undo, HighestUndo)}
    return {state.disk_identity.size_bytes} | lowered


def find_present_drive(devices: Devices, planned: DiskIdentity, sizes: Collection[int]) -> str:
    """Return the drive's present name. Raise RefusedError if no drive matches, or more than one."""
    alike = [
        disk.name
        for disk in devices.iter_disks()
        if (size := disk.size_bytes) in sizes
        and not disk.is_hidden
        and not list_differences(replace(planned, size_bytes=size), read_disk_identity(devices, disk))
    ]
    if len(alike) != 1:
        which = f"each of {', '.join(alike)} could be" if alike else "no device here is"
        raise RefusedError(
            f"{which} the drive of this sweep (serial number {planned.serial}, formerly {planned.name})"
        )
    return alike[0]
