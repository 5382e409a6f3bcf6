"""Levels on a mounted filesystem, from the arguments to bytes: --dir, --file-size."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from opwatch.errors import RefusedError, UsageError
from opwatch.guard.obstacles import Consent, drop_consent_obstacles, require_no_obstacles
from opwatch.host.device import BlockDevice, Devices
from opwatch.journal.request import SweepRequest
from opwatch.sweep.levels import OpLevel
from opwatch.sweep.methods import FILE_METHODS
from opwatch.sweep.plan import SweepRefusal
from opwatch.sweep.room import FilesystemRoom, make_file_levels, make_fill_levels
from opwatch.tools.acting.guard.held_mount import HeldMount, list_mount_objections, read_room
from opwatch.tools.acting.trim.fitrim import check_mount
from opwatch.tools.arguments import Once, parse_byte_size
from opwatch.tools.commands.sweep.arguments.level_arguments import refuse_inapplicable

# The filesystem's metadata and root's reserve take space, so that a 0 % level is impossible.
FILE_LEVELS = "10,20,28,50%"
FILE_OPTIONS = ("dir", "file_size")


def add_file_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--dir",
        action=Once,
        metavar="MOUNT",
        help=f"with --method {' or '.join(FILE_METHODS)}: the mount point; only the sweep's own files are "
        "written there, and deleted again",
    )
    parser.add_argument(
        "--file-size",
        metavar="SIZE",
        type=parse_byte_size,
        help="with --method fill: the size of the written file (half of what the smallest level leaves)",
    )


def refuse_file_options(args: argparse.Namespace) -> None:
    """Raise UsageError for options that do not match the method."""
    if args.method not in FILE_METHODS:
        refuse_inapplicable(args, FILE_OPTIONS, f"--method {' or '.join(FILE_METHODS)}")
    elif args.dir is None:
        raise UsageError(f"--method {args.method} needs --dir MOUNT, the mount point of a filesystem")
    else:
        refuse_inapplicable(args, ["sprandom", "purge"], "--method window or partition")
        if args.method != "fill":
            refuse_inapplicable(args, ["file_size"], "--method fill")


def choose_file_levels(
    args: argparse.Namespace, levels: Sequence[OpLevel], room: FilesystemRoom
) -> tuple[OpLevel, ...]:
    if args.method == "fill":
        return make_fill_levels(levels, room, args.file_size)
    return make_file_levels(levels, room)


def inspect_mount(
    args: argparse.Namespace, devices: Devices, device: BlockDevice
) -> tuple[FilesystemRoom, list[SweepRefusal]]:
    """Return (the available space, all obstacles) for a plan.

    Raise RefusedError if the path is not a mount point of the device, because nothing can be planned then.
    """
    mount = check_mount(args.dir)
    consent = Consent(destroy=True, allow_virtual=args.allow_virtual)
    _, reasons = list_mount_objections(devices, device, mount, consent)
    if mount.dev != f"{device.dev[0]}:{device.dev[1]}":
        require_no_obstacles(reasons)
    listed = [
        SweepRefusal("guard", f"{reason.where}: {reason.what}", reason.remedy)
        for reason in drop_consent_obstacles(reasons)
    ]
    return read_room(device.disk, mount.point), listed


def reclaim_mount(devices: Devices, name: str, request: SweepRequest, consent: Consent) -> HeldMount:
    """Return a new claim to a sweep's mount. Raise RefusedError if something else is mounted there by now."""
    place = request.place
    if place is None:
        raise RefusedError(f"{request.name} is a sweep of a whole drive")
    mount = check_mount(place.point)
    major, _, minor = mount.dev.partition(":")
    device = devices.by_number(int(major), int(minor))
    if device is None or device.disk.name != name:
        raise RefusedError(
            f"{place.point}: the filesystem mounted there is not on {name}, the drive of this sweep"
        )
    claim = HeldMount(devices, device.name, place.point, consent)
    if claim.place != place:
        raise RefusedError(
            f"{place.point}: another part of {name} is mounted there than at the start; start a new sweep"
        )
    return claim
