"""`opwatch sweep resume NAME --destroy --confirm SERIAL`: run the remaining levels of a sweep. An experiment
on filesystems needs only its name."""

from __future__ import annotations

import argparse
from collections.abc import Collection
from contextlib import closing
from dataclasses import replace

from opwatch.collectors.addresses.lowering import undo_highest
from opwatch.collectors.erasing.password import undo_passwords
from opwatch.collectors.guard.held_disk import HeldDisk
from opwatch.collectors.guard.looking import identity_of_disk
from opwatch.collectors.namespaces.sanitizing import wait_for_sanitize
from opwatch.collectors.sweep.files import undo_files
from opwatch.collectors.sweep.namespace import undo_namespaces
from opwatch.collectors.sweep.partition import undo_partitions
from opwatch.errors import RefusedError
from opwatch.guard.identity import DiskIdentity, differences
from opwatch.host import privilege
from opwatch.host.device import Devices
from opwatch.scenarios.experiment_file import experiment_again, has_experiment
from opwatch.sweep.journal.file import FOLDER, again
from opwatch.sweep.journal.state import SweepState
from opwatch.sweep.journal.undo import HighestUndo, parse_undo
from opwatch.sweep.purges import SANITIZE
from opwatch.tools.commands.sweep.arguments.drive_arguments import (
    add_consent_arguments,
    add_wear_arguments,
    consent_from,
)
from opwatch.tools.commands.sweep.arguments.file_arguments import claim_again
from opwatch.tools.commands.sweep.arguments.level_arguments import refuse_others
from opwatch.tools.commands.sweep.running import add_recording_argument, perform, require_new, tell
from opwatch.tools.commands.sweep.scenarios.carrying_out import carry_out
from opwatch.tools.commands.sweep.virtual import tell_experiment
from opwatch.tools.talk import ProgressTalk
from opwatch.tools.waiting import Waiter


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "opwatch sweep resume NAME --destroy --confirm SERIAL [options]\n"
        "       opwatch sweep resume NAME [options]   (an experiment on file systems)"
    )
    parser.add_argument("name", metavar="NAME", help="of the sweep, as it was told when it stopped")
    add_consent_arguments(parser)
    add_recording_argument(parser, "keep a recording of what is left, in a new file")
    add_wear_arguments(parser, "as before", "as before")


def run(args: argparse.Namespace) -> int:
    require_new(args.output)
    if has_experiment(args.journals or FOLDER, args.name):
        return _resume_experiment(args)
    privilege.require_root("opwatch sweep resume", "it writes to a drive", "sweep resume ...")
    journal, state = again(args.journals or FOLDER, args.name)
    with journal:
        if not state.left and state.is_ended:
            return tell(state, json=args.json)
        devices = Devices()
        if state.request.purge == SANITIZE.name:
            # Until sanitize ends, the drive's identity cannot be read.
            with closing(ProgressTalk(quiet=args.quiet)) as talk:
                wait_for_sanitize(state.identity, talk.show, journal.resume_words)
        # This must come first: without the namespace the drive has no disk for identification.
        undo_namespaces(devices, consent_from(args), journal, state)
        consent = replace(consent_from(args), planned=state.identity)
        name = drive_now(devices, state.identity, sizes_of(state))
        budget = state.allowed(args.max_write, args.max_life, args.max_temperature)
        state.request = replace(state.request, budget=budget)
        with Waiter() as waiter:
            if state.request.place:
                with claim_again(devices, name, state.request, consent) as mount:
                    undo_files(mount, journal, state)
                    perform(mount, journal, state, waiter, args)
            else:
                # Do this first, because a locked drive cannot be read.
                undo_passwords(devices, name, journal, state)
                undo_highest(devices, name, consent, journal, state)
                undo_partitions(devices, name, consent, journal, state)
                with HeldDisk(devices, name, consent) as claim:
                    perform(claim, journal, state, waiter, args)
    return tell(state, json=args.json)


def _resume_experiment(args: argparse.Namespace) -> int:
    """Resume an experiment on filesystems. Destroys no user data, so no confirmation is needed."""
    given = ["destroy", "confirm", "allow_virtual", "max_write", "max_life", "max_temperature"]
    refuse_others(args, given, "a sweep of a drive")
    journal, state = experiment_again(args.journals or FOLDER, args.name)
    with journal:
        answer = carry_out(state, journal, quiet=args.quiet)
    return tell_experiment(answer, args)


def sizes_of(state: SweepState) -> set[int]:
    """Return the possible current sizes of the drive: the size at the start, and the size of the level at
    which a sweep was killed."""
    undone = [parse_undo(text) for text in state.undo]
    lowered = {undo.shown_bytes for undo in undone if isinstance(undo, HighestUndo)}
    return {state.identity.size_bytes} | lowered


def drive_now(devices: Devices, planned: DiskIdentity, sizes: Collection[int]) -> str:
    """Return the drive's present name. Raise RefusedError if no drive matches, or more than one."""
    alike = [
        disk.name
        for disk in devices.disks()
        if (size := disk.size_bytes) in sizes
        and not disk.is_hidden
        and not differences(replace(planned, size_bytes=size), identity_of_disk(devices, disk))
    ]
    if len(alike) != 1:
        which = f"{', '.join(alike)} all are" if alike else "nothing here is"
        raise RefusedError(
            f"{which} the drive of this sweep (serial number {planned.serial}, it was {planned.name})"
        )
    return alike[0]
