"""`opwatch writes [MOUNT | --dev D] [--for T | -- CMD...]`: where written bytes are amplified."""

from __future__ import annotations

import argparse
import os
from contextlib import closing
from pathlib import Path

from opwatch.collectors.owners.cgroups import find_io_hierarchy
from opwatch.collectors.writes.reader import WritesReader
from opwatch.collectors.writes.stacks import read_device_stack, read_mount_stack
from opwatch.errors import UsageError
from opwatch.host.device import Devices
from opwatch.host.usage import Mount, find_mount, read_usage
from opwatch.samples.end import End
from opwatch.sinks.terminal import open_stdout
from opwatch.sinks.writes import WritesOutcome, build_writes_document, format_writes
from opwatch.tools.arguments import Once, time_between
from opwatch.tools.runs.waiting import Waiter
from opwatch.writes.groups import compute_group_writes
from opwatch.writes.waterfall import compute_waterfall

_DEFAULT_S = 60.0
_MAX_S = 30 * 86400.0
_LONGEST_WAIT_S = 3600.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "opwatch writes [MOUNT | --dev D] [--for T] [--by cgroup] [--sync] [--json] [-- CMD...]"
    parser.add_argument(
        "path", nargs="?", metavar="MOUNT", help="a mount point, or any path on the file system"
    )
    parser.add_argument(
        "--dev", action=Once, metavar="D", help="a device: what is written to it by any program"
    )
    parser.add_argument(
        "--for",
        dest="seconds",
        metavar="T",
        type=time_between(0.01, _MAX_S),
        help="measure for this time (1m)",
    )
    parser.add_argument(
        "--by", choices=["cgroup"], help="also show the bytes of each control group, as the kernel accounts"
    )
    parser.add_argument(
        "--split-shared",
        action="store_true",
        help="with --by: count journal and metadata for the groups of their submitters",
    )
    parser.add_argument(
        "--sync",
        action="store_true",
        help="sync the file system at both ends, so that the interval is closed",
    )
    parser.add_argument("--json", action="store_true", help='print one JSON document, "schema":"opwatch/1"')


def _find_mount(text: str) -> Mount:
    """Return the mount that a path is on."""
    path = os.path.realpath(text)
    if not Path(path).exists():
        raise UsageError(f"{text}: no such file or directory; name a mount point, or a path on it")
    mount = find_mount(path, read_usage().mounts)
    if mount is None:
        raise UsageError(f"{text} is on no mounted file system that this process sees")
    return mount


def _open_reader(args: argparse.Namespace) -> WritesReader:
    devices, by_cgroup = Devices(), args.by == "cgroup"
    if bool(args.path) == bool(args.dev):
        raise UsageError("name either a mount point or a device: opwatch writes MOUNT, or --dev D")
    if args.split_shared and not by_cgroup:
        raise UsageError("--split-shared needs --by cgroup")
    if args.dev:
        if args.sync:
            raise UsageError("--sync needs a mount point: a device has no file system to sync")
        return WritesReader(
            devices, read_device_stack(devices, devices.resolve(args.dev)), by_cgroup=by_cgroup
        )
    mount = _find_mount(args.path)
    return WritesReader(devices, read_mount_stack(devices, mount), mount, by_cgroup=by_cgroup)


def _wait_for_end(waiter: Waiter, seconds: float | None) -> End:
    """Wait for this time, or without a time for the command; a signal ends either."""
    until = None if seconds is None else waiter.now() + seconds
    while True:
        step = waiter.now() + _LONGEST_WAIT_S
        reason = waiter.wait_until(step if until is None else min(step, until))
        if reason is not End.TICK or (until is not None and waiter.now() >= until):
            return reason


def run(args: argparse.Namespace) -> int:
    if args.command and args.seconds:
        raise UsageError("the command after -- ends the interval: leave out --for")
    with closing(_open_reader(args)) as reader, Waiter() as waiter:
        if args.sync:
            reader.sync()
        begin = reader.read()
        waiter.start_command(args.command, quiet_stdout=args.json)
        reason = _wait_for_end(waiter, None if args.command else args.seconds or _DEFAULT_S)
        status = waiter.finish_command(stop=reason is End.SIGNAL)
        if args.sync:
            reader.sync()
        end = reader.read()
        names = find_io_hierarchy().read_names() if args.by else {}
        missed = reader.tracer.count_missed_runs()
        notes = [*reader.tracer.notes]
    if missed:
        notes.append(f"the kernel skipped {missed} runs of the tracer; their bytes are in the row `other`")
    groups = compute_group_writes(begin, end, names, splits_shared=args.split_shared) if args.by else None
    waterfall = compute_waterfall(reader.stack, begin, end, is_closed=args.sync)
    outcome = WritesOutcome(waterfall, groups, notes, synced=args.sync)
    if args.json:
        open_stdout().write_json(build_writes_document(outcome), indent=2)
    else:
        open_stdout().write_lines(format_writes(outcome))
    return status
