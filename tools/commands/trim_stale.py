"""`opwatch trim stale`: how much space is free for the file system but still data for the drive."""

from __future__ import annotations

import argparse
import re
import secrets
from collections.abc import Sequence
from pathlib import Path

from opwatch import units
from opwatch.collectors.history.stale import Comparison, Part
from opwatch.collectors.space.fitrim import mounted_at
from opwatch.collectors.stack.layers import LayerReader
from opwatch.collectors.stale.signature import signature
from opwatch.collectors.stale.stale import (
    StaleJudgement,
    StaleMeasurement,
    StaleQuestion,
    simulated_physical_bytes,
)
from opwatch.drive.spec import parse_size
from opwatch.errors import NotEnoughData, RefusedError, Unsupported, UsageError
from opwatch.host.device import BlockDevice, Devices
from opwatch.host.privilege import require_root
from opwatch.host.usage import Mount, Usage, read_usage
from opwatch.sinks.terminal import data
from opwatch.sinks.trim_history import HistoryReport, history_document, history_lines
from opwatch.sinks.trim_stale import StaleReport, document, lines
from opwatch.tools.arguments import Once, time_between
from opwatch.trim.space.remap import Landing
from opwatch.trim.stack.layers import Stack
from opwatch.trim.stale.sentinel import Seen
from opwatch.trim.stale.stale import Bounds, Spare, disputed, spare, spare_by_history, stale_bytes


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
        "--physical", metavar="SIZE", help="the flash of the drive that may hold data, for OP and WAF"
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
    """How many blocks are read, and which."""
    parser.add_argument("--confidence", metavar="P%", default="95%", help="of the interval (95%%)")
    parser.add_argument(
        "--precision",
        metavar="P%",
        default="0.5%",
        help="stop when the interval is this narrow: half of its width, of the free space (0.5%%)",
    )
    parser.add_argument(
        "--seconds",
        metavar="T",
        type=time_between(0.1, 3600),
        default=5.0,
        help="stop reading after so long in any case (5s)",
    )
    parser.add_argument("--seed", metavar="N", type=int, help="draw the same blocks again")


def _ratio(text: str, option: str, least: float, most: float) -> float:
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*%", text.strip())
    ratio = float(found[1]) / 100 if found else -1.0
    if not least <= ratio <= most:
        raise UsageError(f"{option} {text}: write a percentage from {100 * least:g}% to {100 * most:g}%")
    return ratio


def _asked(args: argparse.Namespace) -> StaleQuestion:
    return StaleQuestion(
        confidence=_ratio(args.confidence, "--confidence", 0.5, 0.9999),
        half_width=_ratio(args.precision, "--precision", 0.0001, 0.5),
        seconds=args.seconds,
        seed=secrets.randbelow(1 << 32) if args.seed is None else args.seed,
        sentinel=args.sentinel,
    )


def _mounts_on(device: BlockDevice, reader: LayerReader, usage: Usage) -> list[Mount]:
    """One mount of each file system that stands on a device."""
    found: dict[tuple[str, str], Mount] = {}
    for mount in usage.mounts:
        if (mount.dev, mount.source) not in found and reader.mount(mount).layer(device.name):
            found[mount.dev, mount.source] = mount
    return list(found.values())


def _require_nothing_on(device: BlockDevice, devices: Devices, usage: Usage) -> None:
    """A device without a mount is free as a whole only when nothing at all is on it."""
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
    elif found := signature(name):
        why = f"it holds {found}, which is not mounted"
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


def _lower_bound(found: StaleJudgement) -> str | None:
    """What a read cannot tell."""
    open_ones = [drive for drive in found.drives if drive.judged and not drive.landing.encrypted]
    if not open_ones:
        return None
    reads = {open_one.calibration.reads for open_one in open_ones}
    name = "ones" if reads == {Seen.ONES} else "zeros"
    return f"data that is all {name} looks like what was trimmed"


def _disputed(found: StaleJudgement, devices: Devices) -> str | None:
    """What the drive's own count has against it, if there is one drive and it counts."""
    if len(found.drives) != 1 or not found.count:
        return None
    device = devices.by_name(found.drives[0].landing.device)
    if device is None:
        return None
    stale = stale_bytes(found.share, found.judged_bytes)
    return disputed(stale, found.free_bytes, device.disk.size_bytes, found.count.after_bytes)


def _flash(args: argparse.Namespace, device: BlockDevice) -> tuple[int | None, str | None]:
    """(the flash that may hold data, where that is known from)."""
    if args.physical:
        return parse_size(args.physical), "as given"
    return simulated_physical_bytes(device), "the simulated drive's own figure"


def _spare(
    landings: Sequence[Landing],
    stale: Bounds,
    untrimmable_bytes: int,
    counted_bytes: int | None,
    args: argparse.Namespace,
    devices: Devices,
) -> tuple[Spare | None, str | None, str | None]:
    """(the figures, why there are none, where the size of the flash comes from)."""
    device = devices.by_name(landings[0].device)
    if len(landings) != 1 or device is None or landings[0].stopped:
        return None, "the free space does not lie on one drive that can be told", None
    physical, source = _flash(args, device)
    if physical is None:
        return None, "no drive tells how much flash it has; --physical SIZE does", None
    used = device.size_bytes - landings[0].extents.total
    figures = spare(physical, used, stale, untrimmable_bytes, counted_bytes)
    return (None, figures, source) if isinstance(figures, str) else (figures, None, source)


def _why_not(found: StaleJudgement) -> str | None:
    """Why nothing can be said by reading, None when something can."""
    if not found.judged_bytes:
        return "this drive cannot be judged by reading: " + "; ".join(found.drives[0].calibration.words)
    if not found.share.samples:
        return "no block could be read and was still free afterwards"
    return None


def _notes(found: StaleJudgement) -> tuple[str, ...]:
    if not found.judged_bytes or found.judged_bytes == found.free_bytes:
        return tuple(found.notes)
    left = units.capacity(found.free_bytes - found.judged_bytes)
    return (*found.notes, f"{left} of the free space lie on drives that cannot be judged, and are left out")


def _spare_by_reading(
    found: StaleJudgement, args: argparse.Namespace, devices: Devices
) -> tuple[Spare | None, str | None, str | None]:
    return _spare(
        [drive.landing for drive in found.drives],
        stale_bytes(found.share, found.judged_bytes),
        found.drives[0].untrimmable_bytes,
        found.count.after_bytes if found.count and found.count.follows else None,
        args,
        devices,
    )


def _report(
    subject: str,
    mount: Mount | None,
    asked: StaleQuestion,
    found: StaleJudgement,
    args: argparse.Namespace,
    devices: Devices,
) -> StaleReport:
    reason = _why_not(found) or _disputed(found, devices)
    stale = None if reason else stale_bytes(found.share, found.judged_bytes)
    figures, why_not, source = None, reason and "what is stale is not known", None
    if not reason:
        figures, why_not, source = _spare_by_reading(found, args, devices)
    return StaleReport(
        subject=subject,
        filesystem=mount.filesystem if mount else None,
        confidence=asked.confidence,
        seed=asked.seed,
        seconds=found.seconds,
        unit_bytes=found.unit_bytes,
        free_bytes=found.free_bytes,
        judged_bytes=found.judged_bytes,
        drives=found.drives,
        share=found.share,
        taken=found.taken,
        unreadable=found.unreadable,
        stale=stale,
        reason=reason,
        lower_bound=None if reason else _lower_bound(found),
        count=found.count,
        mapped=found.mapped,
        spare=figures,
        spare_reason=why_not,
        physical_source=source,
        notes=_notes(found),
    )


def _spare_by_history(
    parts: Sequence[Part], stale: Bounds, args: argparse.Namespace, devices: Devices
) -> tuple[Spare | None, str | None, str | None]:
    """The same, from what the history knows of all of the drive."""
    landing, held = parts[0].landing, parts[0].on_drive
    device = devices.by_name(landing.device)
    if len(parts) != 1 or device is None or landing.stopped or held is None:
        return None, "the free space does not lie on one drive that can be told", None
    physical, source = _flash(args, device)
    if physical is None:
        return None, "no drive tells how much flash it has; --physical SIZE does", None
    unknown = parts[0].unknown_in_use_bytes
    figures = spare_by_history(physical, held, stale, unknown, parts[0].untrimmable_bytes)
    return (None, figures, source) if isinstance(figures, str) else (figures, None, source)


def _by_history(
    subject: str, stack: Stack, mount: Mount | None, args: argparse.Namespace, devices: Devices
) -> HistoryReport:
    found = Comparison(stack, mount, args.history, devices).run()
    low, unknown = found.held_bytes, found.unknown_bytes
    stale = Bounds(None if unknown else low, low, low + unknown)
    figures, why_not, source = _spare_by_history(found.parts, stale, args, devices)
    told = [note for part in found.parts if part.remembered for note in part.remembered.notes]
    return HistoryReport(
        subject=subject,
        filesystem=mount.filesystem if mount else None,
        seconds=found.seconds,
        parts=found.parts,
        stale=stale,
        spare=figures,
        spare_reason=why_not,
        physical_source=source,
        notes=tuple(dict.fromkeys((*found.notes, *told))),
    )


def run(args: argparse.Namespace) -> int:
    asked, devices = _asked(args), Devices()
    subject, stack, mount = _subject(args, devices)
    _require_root()
    if args.history:
        told = _by_history(subject, stack, mount, args, devices)
        if args.json:
            data().json(history_document(told), indent=2)
        else:
            data().lines(history_lines(told))
        return 0
    found = StaleMeasurement(stack, mount, asked, devices).run()
    report = _report(subject, mount, asked, found, args, devices)
    if args.json:
        data().json(document(report), indent=2)
    else:
        data().lines(lines(report))
    if report.reason:
        raise Unsupported(f"{subject}: how much of it is stale is not known: {report.reason}")
    return 0
