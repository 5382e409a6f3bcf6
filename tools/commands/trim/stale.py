"""`opwatch trim stale`: measure the space that is free for the filesystem but still data for the drive."""

from __future__ import annotations

import argparse
import secrets
from pathlib import Path

from opwatch.collectors.history.stale import Comparison
from opwatch.collectors.space.fitrim import mounted_at
from opwatch.collectors.stack.layers import LayerReader
from opwatch.collectors.stale.signature import signature
from opwatch.collectors.stale.stale import StaleMeasurement, simulated_physical_bytes
from opwatch.errors import NotEnoughData, RefusedError, Unsupported, UsageError
from opwatch.host.device import BlockDevice, Devices
from opwatch.host.privilege import require_root
from opwatch.host.usage import Mount, Usage, read_usage
from opwatch.sinks.terminal import data
from opwatch.sinks.trim_history import history_document, history_lines
from opwatch.sinks.trim_stale import document, lines
from opwatch.tools.arguments import Once, byte_size, count_between, percentage_between, time_between
from opwatch.trim.space.remap import Landing
from opwatch.trim.stack.layers import Stack
from opwatch.trim.stale.judgement import StaleQuestion
from opwatch.trim.stale.report import Flash, report_of_histories, report_of_reading


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
        help="the one file system on this device, or a device that nothing is on",
    )
    _add_sampling_arguments(parser)
    parser.add_argument(
        "--physical",
        type=byte_size,
        metavar="SIZE",
        help="the flash of the drive that may hold data, for OP and WAF",
    )
    parser.add_argument(
        "--sentinel",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="write, delete and trim a small file to see how the drive reads then (the default but on btrfs, "
        "which would trim more than that); without it, what the drive promises must do",
    )
    parser.add_argument(
        "--history",
        metavar="FILE",
        type=Path,
        action="append",
        help="read nothing: what opwatch trim record wrote of the disk tells exactly; once for each disk",
    )
    parser.add_argument("--json", action="store_true", help='one document, "schema":"opwatch/1"')


def _add_sampling_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options for the number and choice of sampled blocks."""
    parser.add_argument(
        "--confidence",
        metavar="P%",
        type=percentage_between(50, 99.99),
        default=0.95,
        help="of the interval (95%%)",
    )
    parser.add_argument(
        "--precision",
        metavar="P%",
        type=percentage_between(0.01, 50),
        default=0.005,
        help="stop when the interval is this narrow: half of its width, of the free space (0.5%%)",
    )
    parser.add_argument(
        "--seconds",
        metavar="T",
        type=time_between(0.1, 3600),
        default=5.0,
        help="stop reading after so long in any case (5s)",
    )
    parser.add_argument(
        "--seed", metavar="N", type=count_between(0, 2**64 - 1), help="draw the same blocks again"
    )


def _asked(args: argparse.Namespace) -> StaleQuestion:
    return StaleQuestion(
        confidence=args.confidence,
        half_width=args.precision,
        seconds=args.seconds,
        seed=secrets.randbelow(1 << 32) if args.seed is None else args.seed,
        sentinel=args.sentinel,
    )


def _mounts_on(device: BlockDevice, reader: LayerReader, usage: Usage) -> list[Mount]:
    """Return one mount of each filesystem on a device."""
    mounts: dict[tuple[str, str], Mount] = {}
    for mount in usage.mounts:
        if (mount.dev, mount.source) not in mounts and reader.mount(mount).layer(device.name):
            mounts[mount.dev, mount.source] = mount
    return list(mounts.values())


def _require_nothing_on(device: BlockDevice, devices: Devices, usage: Usage) -> None:
    """Refuse a device in use: an unmounted device counts as entirely free only if empty."""
    name = device.name
    parts = [partition.name for partition in devices.partitions(device)]
    why = None
    if parts:
        why = f"it has partitions, none of them mounted: {', '.join(parts)}"
    elif usage.is_swap(device):
        why = "it is swap, which tells nobody what of it is free"
    elif device.holders():
        why = f"it is a part of {', '.join(device.holders())}, which is not mounted"
    elif usage.member_of(device):
        why = f"it belongs to a {usage.member_of(device)} that is not mounted here"
    elif contents := signature(name):
        why = f"it holds {contents}, which is not mounted"
    if why:
        raise NotEnoughData(f"{name}: {why}. Only a mounted file system tells what of it is free: mount it")


def _subject(args: argparse.Namespace, devices: Devices) -> tuple[str, Stack, Mount | None]:
    if (args.path is None) == (args.dev is None):
        raise UsageError("name a mount point, or a device with --dev")
    usage = read_usage()
    reader = LayerReader(devices, usage)
    if args.path is not None:
        mount = mounted_at(args.path)
    else:
        device = devices.resolve(args.dev)
        mounts = _mounts_on(device, reader, usage)
        if len(mounts) > 1:
            points = ", ".join(mount.point for mount in mounts)
            raise UsageError(f"{device.name}: several file systems stand on it; name one: {points}")
        if not mounts:
            _require_root()
            _require_nothing_on(device, devices, usage)
            return device.name, reader.device(device), None
        mount = mounts[0]
    stack = reader.mount(mount)
    if not stack.tops():
        raise RefusedError(f"{mount.point}: {mount.filesystem} is on no block device of this machine")
    return mount.point, stack, mount


def _require_root() -> None:
    require_root("opwatch trim stale", "it reads the drive raw and trims a file of its own", "trim stale ...")


def _flash(args: argparse.Namespace, landing: Landing, devices: Devices) -> Flash | None:
    """Return the flash behind free space, as given or as a simulated drive reports it, or None if the drive
    is gone."""
    device = devices.by_name(landing.device)
    if device is None:
        return None
    sizes = device.size_bytes, device.disk.size_bytes
    if args.physical is not None:
        return Flash(*sizes, args.physical, "as given")
    return Flash(*sizes, simulated_physical_bytes(device), "the simulated drive's own figure")


def run(args: argparse.Namespace) -> int:
    asked, devices = _asked(args), Devices()
    subject, stack, mount = _subject(args, devices)
    _require_root()
    filesystem = mount.filesystem if mount else None
    if args.history:
        space = Comparison(stack, mount, args.history, devices).run()
        flash = _flash(args, space.parts[0].landing, devices)
        history = report_of_histories(subject, filesystem, space, flash)
        if args.json:
            data().json(history_document(history), indent=2)
        else:
            data().lines(history_lines(history))
        return 0
    judgement = StaleMeasurement(stack, mount, asked, devices).run()
    flash = _flash(args, judgement.drives[0].landing, devices)
    report = report_of_reading(subject, filesystem, asked, judgement, flash)
    if args.json:
        data().json(document(report), indent=2)
    else:
        data().lines(lines(report))
    if report.reason:
        raise Unsupported(f"{subject}: how much of it is stale is not known: {report.reason}")
    return 0
