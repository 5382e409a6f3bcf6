"""`opwatch writes [MOUNT | --dev D] [--for T | -- CMD...]`: where written bytes are amplified."""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from opwatch.collectors.owners.cgroups import find_io_hierarchy
from opwatch.collectors.writes.reader import WritesReader
from opwatch.collectors.writes.stacks import read_device_stack, read_mount_stack
from opwatch.counters.catalogue.families import load_catalogue
from opwatch.errors import UsageError
from opwatch.host.device import Devices
from opwatch.host.usage import Mount, find_mount, read_usage
from opwatch.samples.end import End
from opwatch.sinks.terminal import open_stdout
from opwatch.sinks.writes import WritesOutcome, build_writes_document, format_writes
from opwatch.tools.arguments import Once, add_catalogue_argument, time_between
from opwatch.tools.runs.blaming import add_blame_arguments, run_blame
from opwatch.tools.runs.nand_polls import NandPolls
from opwatch.tools.runs.progress import ProgressReporter
from opwatch.tools.runs.waiting import Waiter
from opwatch.writes.accounting import find_disagreements
from opwatch.writes.groups import compute_group_writes
from opwatch.writes.processes import compute_process_writes
from opwatch.writes.reading import DriveAmplification, WritesReading
from opwatch.writes.waterfall import compute_waterfall

_DEFAULT_S = 60.0
_MAX_S = 30 * 86400.0
_SETTLE_S = 60.0
_TICK_S = 1.0


class _Measured(NamedTuple):
    """The readings at both ends, the write amplification of the drives, and the command's exit status."""

    begin: WritesReading
    end: WritesReading
    drives: Mapping[str, DriveAmplification]
    status: int


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "opwatch writes ([MOUNT | --dev D] [--for T] [--sync] [--by WHAT] [options] [-- CMD...] | "
        "--blame FILE --waf R [--physical SIZE] [--absent A] [--json])"
    )
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
        "--by",
        choices=["cgroup", "process"],
        help="also show the bytes of each control group, as the kernel accounts them, or of each process",
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
    parser.add_argument(
        "--settle",
        metavar="T",
        type=time_between(0.01, _MAX_S, none=True),
        default=_SETTLE_S,
        help="at the end, wait at most this long for what the drives' pages do not show yet (1m)",
    )
    add_blame_arguments(parser)
    add_catalogue_argument(parser)
    parser.add_argument("--json", action="store_true", help='print one JSON document, "schema":"opwatch/1"')
    parser.add_argument("-q", "--quiet", action="store_true", help="print no progress")


def _find_mount(text: str) -> Mount:
    """Return the mount that a path is on."""
    path = os.path.realpath(text)
    if not Path(path).exists():
        raise UsageError(f"{text}: no such file or directory; name a mount point, or a path on it")
    mount = find_mount(path, read_usage().mounts)
    if mount is None:
        raise UsageError(f"{text} is on no mounted file system that this process sees")
    return mount


def _open_reader(devices: Devices, args: argparse.Namespace) -> WritesReader:
    by_cgroup, by_process = args.by == "cgroup", args.by == "process"
    if bool(args.path) == bool(args.dev):
        raise UsageError("name either a mount point or a device: opwatch writes MOUNT, or --dev D")
    if args.split_shared and not by_cgroup:
        raise UsageError("--split-shared needs --by cgroup")
    if args.dev:
        if args.sync:
            raise UsageError("--sync needs a mount point: a device has no file system to sync")
        return WritesReader(
            devices,
            read_device_stack(devices, devices.resolve(args.dev)),
            by_cgroup=by_cgroup,
            by_process=by_process,
        )
    mount = _find_mount(args.path)
    return WritesReader(
        devices, read_mount_stack(devices, mount), mount, by_cgroup=by_cgroup, by_process=by_process
    )


def _wait_for_end(waiter: Waiter, polls: NandPolls, talk: ProgressReporter, seconds: float | None) -> End:
    """Wait for this time, or without a time for the command; a signal ends either."""
    begun = waiter.now()
    until = math.inf if seconds is None else begun + seconds
    while True:
        reason = waiter.wait_until(min(until, polls.next_due, waiter.now() + _TICK_S))
        if reason is not End.TICK or waiter.now() >= until:
            return reason
        polls.poll_if_due(waiter.now())
        talk.show_progress(f"{waiter.now() - begun:.0f} of {seconds:g} s" if seconds else "")


def _measure_interval(reader: WritesReader, polls: NandPolls, args: argparse.Namespace) -> _Measured:
    """Return the readings around the command or the time, and the drives' write amplification."""
    with Waiter() as waiter, closing(ProgressReporter(quiet=args.quiet, shows=not args.command)) as talk:
        if args.sync:
            reader.sync()
        goes_on = polls.begin_work(waiter)
        begin = reader.read()
        if goes_on:
            waiter.start_command(args.command, quiet_stdout=args.json)
        seconds = None if args.command else args.seconds or _DEFAULT_S
        reason = _wait_for_end(waiter, polls, talk, seconds) if goes_on else End.SIGNAL
        status = waiter.finish_command(stop=reason is End.SIGNAL)
        waiter.reap()
        if args.sync:
            reader.sync()
        end = reader.read()
        polls.end_work()
        if reason is not End.SIGNAL:
            polls.wait_for_pages(waiter, talk, args.settle)
    return _Measured(begin, end, polls.measure(), status)


def _list_notes(reader: WritesReader) -> list[str]:
    """Return sentences about what is less certain."""
    classes, application = reader.count_missed_runs()
    notes = [*reader.tracer.notes]
    if classes:
        notes.append(f"the kernel skipped {classes} runs of the tracer; their bytes are in the row `other`")
    if application:
        notes.append(f"the kernel skipped {application} runs of the tracer of what programs write")
    if reader.accounting_reason:
        notes.append(f"io.stat of the control groups is not compared: {reader.accounting_reason}")
    return notes


def _blame_history(args: argparse.Namespace) -> int:
    """Answer from a history, for which nothing is measured."""
    given = {"--dev": args.dev, "--for": args.seconds, "--by": args.by, "--sync": args.sync}
    given |= {"MOUNT": args.path, "--split-shared": args.split_shared, "--": args.command}
    for name, value in given.items():
        if value:
            raise UsageError(f"--blame answers from its file, and nothing is measured: leave out {name}")
    return run_blame(args)


def run(args: argparse.Namespace) -> int:
    if args.blame is not None:
        return _blame_history(args)
    for name in ("waf", "physical", "absent"):
        if getattr(args, name) is not None:
            raise UsageError(f"--{name} needs --blame, the history that it is about")
    if args.command and args.seconds:
        raise UsageError("the command after -- ends the interval: leave out --for")
    devices = Devices()
    with closing(_open_reader(devices, args)) as reader:
        with closing(NandPolls(devices, reader.stack.bottoms, load_catalogue(args.counters))) as polls:
            measured = _measure_interval(reader, polls, args)
        notes = _list_notes(reader)
    begin, end = measured.begin, measured.end
    groups = processes = None
    if args.by == "cgroup":
        names = find_io_hierarchy().read_names()
        groups = compute_group_writes(begin, end, names, splits_shared=args.split_shared)
        notes += find_disagreements(begin, end, names)
    elif args.by:
        processes = compute_process_writes(begin, end)
    waterfall = compute_waterfall(reader.stack, begin, end, is_closed=args.sync, drives=measured.drives)
    outcome = WritesOutcome(waterfall, groups, notes, synced=args.sync, processes=processes)
    if args.json:
        open_stdout().write_json(build_writes_document(outcome), indent=2)
    else:
        open_stdout().write_lines(format_writes(outcome))
    return measured.status
