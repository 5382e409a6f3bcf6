"""`opwatch trim stale`: measure the space that is free for the filesystem but still data for the drive."""

from __future__ import annotations

import argparse
import secrets
from pathlib import Path

from opwatch.collectors.history.stale import Comparison
from opwatch.collectors.stack.layers import LayerReader
from opwatch.collectors.stale.signature import read_signature
from opwatch.errors import NotEnoughData, RefusedError, Unsupported, UsageError
from opwatch.host.device import BlockDevice, Devices
from opwatch.host.privilege import require_root
from opwatch.host.usage import Mount, Usage, read_usage
from opwatch.sinks.terminal import open_stdout
from opwatch.sinks.trim_history import build_history_document, format_history
from opwatch.sinks.trim_stale import build_stale_document, format_stale_report
from opwatch.tools.acting.stale.stale import StaleMeasurement, read_physical_bytes
from opwatch.tools.acting.trim.fitrim import require_mount
from opwatch.tools.arguments import Once, count_between, parse_byte_size, percentage_between, time_between
from opwatch.trim.layers.remap import Landing
from opwatch.trim.stack.layers import Stack
from opwatch.trim.stale.judgement import StaleOptions
from opwatch.trim.stale.report import Flash, build_history_report, build_reading_report


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "opwatch trim stale (MOUNT | --dev D) [--confidence P%%] [--precision P%%] [--seconds T] "
        "[--physical SIZE] [--[no-]sentinel] [--seed N] [--history FILE]... [--json]"
    )
    parser.add_argument("path", nargs="?", metavar="MOUNT", help="a mount point")
    parser.add_argument(
        "--dev",
        action=Once,
        metavar="D",
        help="the filesystem on this device, or the whole of an unused device",
    )
    _add_sampling_arguments(parser)
    parser.add_argument(
        "--physical",
        type=parse_byte_size,
        metavar="SIZE",
        help="the drive's flash capacity for data; needed for over-provisioning and write amplification",
    )
    parser.add_argument(
        "--sentinel",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="write, delete and trim a small file, to test how the drive reads trimmed blocks (the default, "
        "except on btrfs, where this trims more); without it the drive's documented behaviour is used",
    )
    parser.add_argument(
        "--history",
        metavar="FILE",
        type=Path,
        action="append",
        help="read no blocks: take the exact figure from the history of opwatch trim record; once per disk",
    )
    parser.add_argument("--json", action="store_true", help='print one JSON document, "schema":"opwatch/1"')


def _add_sampling_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options for the number and choice of sampled blocks."""
    parser.add_argument(
        "--confidence",
        metavar="P%",
        type=percentage_between(50, 99.99),
        default=0.95,
        help="confidence level (95%%)",
    )
    parser.add_argument(
        "--precision",
        metavar="P%",
        type=percentage_between(0.01, 50),
        default=0.005,
        help="stop when half of the interval's width is at most this share of the free space (0.5%%)",
    )
    parser.add_argument(
        "--seconds",
        metavar="T",
        type=time_between(0.1, 3600),
        default=5.0,
        help="stop reading after this time in any case (5s)",
    )
    parser.add_argument(
        "--seed",
        metavar="N",
        type=count_between(0, 2**64 - 1),
        help="draw the same blocks as a run that printed this seed",
    )


def _make_question(args: argparse.Namespace) -> StaleOptions:
    return StaleOptions(
        confidence=args.confidence,
        half_width=args.precision,
        seconds=args.seconds,
        seed=secrets.randbelow(1 << 32) if args.seed is None else args.seed,
        sentinel=args.sentinel,
    )


def _find_mounts(device: BlockDevice, reader: LayerReader, usage: Usage) -> list[Mount]:
    """Return one mount of each filesystem on a device."""
    mounts: dict[tuple[str, str], Mount] = {}
    for mount in usage.mounts:
        if (mount.dev, mount.source) not in mounts and reader.read_mount(mount).find_layer(device.name):
            mounts[mount.dev, mount.source] = mount
    return list(mounts.values())


def _require_unused(device: BlockDevice, devices: Devices, usage: Usage) -> None:
    """Refuse a device in use: an unmounted device counts as entirely free only if empty."""
    name = device.name
    parts = [partition.name for partition in devices.list_partitions(device)]
    why = None
    if parts:
        why = f"none of its partitions ({', '.join(parts)}) is mounted"
    elif usage.is_swap(device):
        why = "it is swap, which does not report its free space"
    elif device.list_holders():
        why = f"it is part of {', '.join(device.list_holders())}, which is not mounted"
    elif usage.find_btrfs(device):
        why = f"it belongs to a {usage.find_btrfs(device)} that is not mounted here"
    elif contents := read_signature(name):
        why = f"it contains {contents}, which is not mounted"
    if why:
        raise NotEnoughData(f"{name}: {why}. Only a mounted filesystem reports its free space: mount it")


def _resolve_subject(args: argparse.Namespace, devices: Devices) -> tuple[str, Stack, Mount | None]:
    if (args.path is None) == (args.dev is None):
        raise UsageError("name a mount point, or a device with --dev")
    usage = read_usage()
    reader = LayerReader(devices, usage)
    if args.path is not None:
        mount = require_mount(args.path)
    else:
        device = devices.resolve(args.dev)
        mounts = _find_mounts(device, reader, usage)
        if len(mounts) > 1:
            points = ", ".join(mount.point for mount in mounts)
            raise UsageError(f"{device.name} has several filesystems; name one: {points}")
        if not mounts:
            _require_root()
            _require_unused(device, devices, usage)
            return device.name, reader.read_device(device), None
        mount = mounts[0]
    stack = reader.read_mount(mount)
    if not stack.find_tops():
        raise RefusedError(f"{mount.point}: {mount.filesystem} is not on a block device of this machine")
    return mount.point, stack, mount


def _require_root() -> None:
    require_root(
        "opwatch trim stale", "it reads the drive raw and trims a file that it creates", "trim stale ..."
    )


def _find_flash(args: argparse.Namespace, landing: Landing, devices: Devices) -> Flash | None:
    """Return the flash behind free space, as given or as a simulated drive reports it, or None if the drive
    is gone."""
    device = devices.by_name(landing.device)
    if device is None:
        return None
    sizes = device.size_bytes, device.disk.size_bytes
    if args.physical is not None:
        return Flash(*sizes, args.physical, "as given")
    return Flash(*sizes, read_physical_bytes(device), "the simulated drive's own figure")


def run(args: argparse.Namespace) -> int:
    asked, devices = _make_question(args), Devices()
    subject, stack, mount = _resolve_subject(args, devices)
    _require_root()
    filesystem = mount.filesystem if mount else None
    if args.history:
        space = Comparison(stack, mount, args.history, devices).compare_space()
        flash = _find_flash(args, space.parts[0].landing, devices)
        history = build_history_report(subject, filesystem, space, flash)
        if args.json:
            open_stdout().write_json(build_history_document(history), indent=2)
        else:
            open_stdout().write_lines(format_history(history))
        return 0
    judgement = StaleMeasurement(stack, mount, asked, devices).run()
    flash = _find_flash(args, judgement.drives[0].landing, devices)
    report = build_reading_report(subject, filesystem, asked, judgement, flash)
    if args.json:
        open_stdout().write_json(build_stale_document(report), indent=2)
    else:
        open_stdout().write_lines(format_stale_report(report))
    if report.reason:
        raise Unsupported(f"{subject}: the stale share is unknown: {report.reason}")
    return 0
