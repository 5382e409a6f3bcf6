"""Options of sweeps on a drive, and their conversion into requests."""

from __future__ import annotations

import argparse
import secrets
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TypedDict

from opwatch.collectors.firmware.drive_folder import find_drive_folder
from opwatch.drive import life
from opwatch.drive.place import DriveFolder
from opwatch.errors import OpwatchError, RefusedError, Unsupported
from opwatch.guard.budget import MAX_CELSIUS, MAX_LIFE_PERCENT, Budget
from opwatch.guard.identity import DiskIdentity
from opwatch.guard.obstacles import Consent
from opwatch.host.device import BlockDevice, Devices
from opwatch.journal.file import FOLDER
from opwatch.journal.request import SweepRequest, bound_level_bytes
from opwatch.load.workload import LoadPattern, find_workload, require_data_only_writes, require_reach
from opwatch.sweep.levels import LevelScale, OpLevel, OpShare, parse_levels
from opwatch.sweep.methods import FILE_METHODS, find_method
from opwatch.sweep.namespace.offer import find_level_refusal
from opwatch.sweep.plan import SweepPace, compute_min_bytes
from opwatch.sweep.purges import DISCARD, find_purge
from opwatch.tools.acting.fio.options import find_sprandom_refusal
from opwatch.tools.acting.guard.held_mount import HeldMount, read_room
from opwatch.tools.acting.namespaces.controller import find_namespace_offer
from opwatch.tools.acting.sweep.namespace import require_namespaces
from opwatch.tools.acting.sweep.offers import find_method_refusal, find_purge_refusal
from opwatch.tools.arguments import Once, count_between, parse_byte_size, time_between
from opwatch.tools.commands.sweep.arguments.file_arguments import (
    FILE_LEVELS,
    FILE_OPTIONS,
    add_file_arguments,
    choose_file_levels,
)
from opwatch.tools.commands.sweep.arguments.level_arguments import (
    DEFAULT_LEVELS,
    DEFAULT_METHOD,
    DEFAULT_WORKLOAD,
    add_level_arguments,
    add_load_arguments,
    make_pace,
)
from opwatch.waf.trail import LONGEST_NS

_MAX_S = 86400.0
# Options that do not apply to a simulated drive.
DRIVE_OPTIONS = (
    *("dev", "destroy", "confirm", "allow_virtual", "journals", "purge"),
    "sprandom",
    *FILE_OPTIONS,
    *("test", "settle", "refresh", "max_write", "max_life", "max_temperature"),
)


def add_drive_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the drive, and the options for confirming the destruction of the data."""
    add_device_argument(parser)
    add_consent_arguments(parser)


def add_device_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dev", action=Once, metavar="D", help="the whole drive (a name, node or link)")


def add_allowance_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--allow-virtual", action="store_true", help="also accept loop devices, simulated and virtual drives"
    )


def add_consent_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--destroy", action="store_true", help="allow everything on the drive to be destroyed"
    )
    parser.add_argument(
        "--confirm",
        action=Once,
        metavar="SERIAL",
        help="the drive's serial number, exactly as the drive reports it",
    )
    add_allowance_argument(parser)
    parser.add_argument("--journals", metavar="DIR", type=Path, help=f"the folder of the journals ({FOLDER})")
    parser.add_argument(
        "--max-write",
        metavar="SIZE",
        type=parse_byte_size,
        help="write at most this in total (the plan's maximum)",
    )
    parser.add_argument("--json", action="store_true", help='print one JSON document, "schema":"opwatch/1"')
    parser.add_argument("-q", "--quiet", action="store_true", help="print no progress")


def make_consent(args: argparse.Namespace) -> Consent:
    return Consent(destroy=args.destroy, serial=args.confirm, allow_virtual=args.allow_virtual)


def add_sweep_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the levels, the load and the limits."""
    add_level_arguments(parser)
    add_load_arguments(parser)
    add_file_arguments(parser)
    parser.add_argument(
        "--settle",
        metavar="T",
        type=time_between(0.01, _MAX_S, none=True),
        help="leave the drive idle for this time after its purge (1m)",
    )
    _add_limits(parser)


def _add_limits(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--refresh",
        metavar="T",
        type=time_between(0.01, _MAX_S, none=True),
        help="the maximum age of the drive's pages (learned)",
    )
    add_wear_arguments(parser, str(MAX_LIFE_PERCENT), str(MAX_CELSIUS))


def add_wear_arguments(parser: argparse.ArgumentParser, life: str, celsius: str) -> None:
    """Add limits of wear and temperature. `life` and `celsius` are the defaults shown in the help."""
    parser.add_argument(
        "--max-life",
        metavar="N",
        type=count_between(0, 100),
        help=f"stop after using N %% of the rated life ({life})",
    )
    parser.add_argument(
        "--max-temperature",
        metavar="C",
        type=count_between(1, 150),
        help=f"stop at this temperature in degrees Celsius ({celsius})",
    )


def make_request(
    args: argparse.Namespace, disk: BlockDevice, identity: DiskIdentity, mount: HeldMount | None = None
) -> SweepRequest:
    """Return the request, in bytes. Writes nothing."""
    levels = choose_levels(args, disk, mount)
    pace = make_pace(args)
    method = find_method(args.method).name
    if refused := find_method_refusal(disk, method):
        raise Unsupported(f"--method {method}: {refused}; opwatch sweep list shows the other methods")
    if method == "namespace":
        _require_namespaces(args, disk, identity, levels)
    if args.sprandom and (refused := find_sprandom_refusal()):
        raise Unsupported(f"--sprandom: {refused}; leave it out to fill in order")
    pattern = find_workload(args.workload or DEFAULT_WORKLOAD)
    require_reach(pattern, pace.round_ratio)
    if method in FILE_METHODS:
        require_data_only_writes(pattern)
    return make_level_request(
        args, disk, identity, levels=levels, pace=pace, pattern=pattern, method=method, mount=mount
    )


def _require_namespaces(
    args: argparse.Namespace, disk: BlockDevice, identity: DiskIdentity, levels: Sequence[OpLevel]
) -> None:
    """Raise Unsupported if the drive cannot create such namespaces, whatever it claims to support."""
    if args.confirm != identity.serial:
        raise Unsupported(
            f"--method namespace: {disk.name} is confirmed by its wwid, but a new namespace has another wwid"
        )
    if refused := find_level_refusal(levels, find_namespace_offer(disk)):
        raise Unsupported(f"--method namespace: {disk.name}: {refused}")
    require_namespaces(Devices(), disk)


def make_level_request(
    args: argparse.Namespace,
    disk: BlockDevice,
    identity: DiskIdentity,
    *,
    levels: tuple[OpLevel, ...],
    pace: SweepPace,
    pattern: LoadPattern,
    scenario: str | None = None,
    method: str = DEFAULT_METHOD,
    mount: HeldMount | None = None,
) -> SweepRequest:
    """Return the request for the levels and the load."""
    if args.settle is not None:
        pace = replace(pace, settle_s=args.settle)
    purge = find_purge(args.purge or DISCARD.name).name
    if refused := find_purge_refusal(disk, purge):
        raise Unsupported(f"--purge {purge}: {refused}; --purge discard works on every drive here")
    _require_write_limit(args.max_write, levels, method, pace)
    most = args.max_write or bound_level_bytes(levels, method, pace)
    return SweepRequest(
        **make_sweep_identity(identity),
        levels=levels,
        method=method,
        pattern=pattern,
        pace=pace,
        budget=make_budget(args, most),
        allow_virtual=args.allow_virtual,
        refresh_s=args.refresh,
        patience_s=LONGEST_NS / 1e9,
        purge=purge,
        place=mount.place if mount else None,
        scenario=scenario,
        superblock_pages=_find_superblock_pages(disk),
    )


def _require_write_limit(most: int | None, levels: Sequence[OpLevel], method: str, pace: SweepPace) -> None:
    """Raise RefusedError if the write limit is too small for any level's verdict, because the data would be
    destroyed for nothing."""
    least = min(compute_min_bytes(level, method, pace) for level in levels)
    if most is not None and most < least:
        raise RefusedError(
            f"nothing was written: with --max-write {most} no level reaches a verdict, which needs at least "
            f"{least} bytes; allow more, use smaller levels (--op) or fewer passes (--fill 1)"
        )


class _SweepIdentity(TypedDict):
    name: str
    created: str
    identity: DiskIdentity
    secret: str


def make_sweep_name() -> tuple[str, str]:
    """Return (a unique name for a sweep, its creation time)."""
    now = datetime.fromtimestamp(time.time(), UTC)
    return f"{now:%Y%m%d-%H%M%S}-{secrets.token_hex(2)}", now.isoformat()


def make_sweep_identity(identity: DiskIdentity) -> _SweepIdentity:
    """Return the fields that identify a new sweep."""
    name, created = make_sweep_name()
    return {
        "name": name,
        "created": created,
        "identity": identity,
        "secret": secrets.token_hex(8),
    }


def make_budget(args: argparse.Namespace, most: int) -> Budget:
    usual = Budget(most, is_of_plan=not args.max_write)
    life = usual.life_percent if args.max_life is None else args.max_life
    celsius = usual.celsius if args.max_temperature is None else args.max_temperature
    return replace(usual, life_percent=life, celsius=celsius)


def choose_levels(
    args: argparse.Namespace, disk: BlockDevice, mount: HeldMount | None
) -> tuple[OpLevel, ...]:
    scale = LevelScale(disk.size_bytes, OpShare(args.share))
    usual = FILE_LEVELS if mount else DEFAULT_LEVELS
    levels = parse_levels(args.op or usual, scale, find_flash_bytes(disk))
    return choose_file_levels(args, levels, read_room(disk, mount.mount.point)) if mount else levels


def find_flash_bytes(disk: BlockDevice) -> int | None:
    """Return the total flash size, which only a simulated drive reports, or None."""
    return _read_truth(disk, "physical_bytes")


def _find_superblock_pages(disk: BlockDevice) -> int | None:
    """Return the mapping units per superblock, which only a simulated drive reports, or None."""
    n_bytes, unit = _read_truth(disk, "superblock_bytes"), _read_truth(disk, "iu_bytes")
    return n_bytes // unit if n_bytes and unit else None


def _read_truth(disk: BlockDevice, name: str) -> int | None:
    """Return a number of a simulated drive, or None for other drives."""
    folder = find_drive_folder(disk)
    if not folder:
        return None
    try:
        truth = life.read_true_counters(DriveFolder(folder.parent.name, folder.parent.parent))
    except OpwatchError:
        return None
    value = truth.get(name)
    return value if isinstance(value, int) else None
