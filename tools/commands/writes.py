"""`opwatch writes [MOUNT | --dev D] [INTERVAL] [--for T | -- CMD...]`: where written bytes are amplified."""

from __future__ import annotations

import argparse
import contextlib
import os
from contextlib import ExitStack, closing
from pathlib import Path

from opwatch.clock import read_anchor
from opwatch.collectors.writes.reader import WritesReader
from opwatch.collectors.writes.stacks import read_device_stack, read_mount_stack
from opwatch.counters.catalogue.families import load_catalogue
from opwatch.errors import UsageError
from opwatch.host.device import Devices
from opwatch.host.usage import Mount, find_mount, read_usage
from opwatch.sinks.writes import WritesPrinter
from opwatch.tools.arguments import Once, add_catalogue_argument, parse_file_name, time_between
from opwatch.tools.runs.blaming import add_blame_arguments, run_blame
from opwatch.tools.runs.nand_polls import NandPolls
from opwatch.tools.runs.progress import ProgressReporter
from opwatch.tools.runs.replay import interval
from opwatch.tools.runs.waiting import Waiter
from opwatch.tools.runs.writes_recorder import WritesRecorder
from opwatch.tools.runs.writes_run import WritesPlan, WritesRun
from opwatch.writes.series import WritesQuestion

_MAX_S = 30 * 86400.0
_SETTLE_S = 60.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "opwatch writes ([MOUNT | --dev D] [INTERVAL] [--for T] [--sync] [-o FILE] [options] [-- CMD...] | "
        "--blame FILE --waf R [--physical SIZE] [--absent A] [--json])"
    )
    parser.add_argument(
        "path", nargs="?", metavar="MOUNT", help="a mount point, or any path on the file system"
    )
    parser.add_argument(
        "interval",
        nargs="?",
        type=interval,
        metavar="INTERVAL",
        help="print the rows of each interval of this length until Ctrl-C, and then those of all",
    )
    parser.add_argument(
        "--dev", action=Once, metavar="D", help="a device: what is written to it by any program"
    )
    parser.add_argument(
        "--for",
        dest="seconds",
        metavar="T",
        type=time_between(0.01, _MAX_S),
        help="measure for this time (1m; with INTERVAL, until Ctrl-C)",
    )
    _add_detail_arguments(parser)
    parser.add_argument(
        "-o",
        "--output",
        type=parse_file_name,
        metavar="FILE",
        help="record into this new file; opwatch replay FILE shows the same output",
    )
    add_blame_arguments(parser)
    add_catalogue_argument(parser)
    parser.add_argument(
        "--json",
        action="store_true",
        help='print a JSON document, with INTERVAL JSON lines, "schema":"opwatch/1"',
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="print no progress")


def _add_detail_arguments(parser: argparse.ArgumentParser) -> None:
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


def _blame_history(args: argparse.Namespace) -> int:
    """Answer from a history, for which nothing is measured."""
    given = {"--dev": args.dev, "--for": args.seconds, "--by": args.by, "--sync": args.sync}
    given |= {
        "MOUNT": args.path,
        "INTERVAL": args.interval,
        "-o": args.output,
        "--split-shared": args.split_shared,
        "--": args.command,
    }
    for name, value in given.items():
        if value:
            raise UsageError(f"--blame answers from its file, and nothing is measured: leave out {name}")
    return run_blame(args)


def _check_options(args: argparse.Namespace) -> None:
    """Refuse contradictions. With --dev, the only argument is the interval."""
    if args.dev and args.path and args.interval is None:
        with contextlib.suppress(argparse.ArgumentTypeError):
            args.path, args.interval = None, interval(args.path)
    if args.command and args.seconds:
        raise UsageError("the command after -- ends the measurement: leave out --for")
    if args.seconds and args.interval and args.interval > args.seconds:
        raise UsageError("the INTERVAL is longer than --for: leave it out")


def run(args: argparse.Namespace) -> int:
    if args.blame is not None:
        return _blame_history(args)
    for name in ("waf", "physical", "absent"):
        if getattr(args, name) is not None:
            raise UsageError(f"--{name} needs --blame, the history that it is about")
    _check_options(args)
    devices = Devices()
    with (
        closing(_open_reader(devices, args)) as reader,
        closing(NandPolls(devices, reader.stack.bottoms, load_catalogue(args.counters))) as polls,
    ):
        return _measure_writes(devices, reader, polls, args)


def _measure_writes(
    devices: Devices, reader: WritesReader, polls: NandPolls, args: argparse.Namespace
) -> int:
    question = WritesQuestion(
        reader.stack,
        args.interval,
        synced=args.sync,
        by_cgroup=args.by == "cgroup",
        splits_shared=args.split_shared,
        by_process=args.by == "process",
    )
    plan = WritesPlan(question, args.command, args.seconds, args.settle, quiet_stdout=args.json)
    clocks, printer = read_anchor(), WritesPrinter(as_json=args.json)
    shows_progress = not (args.command or args.interval)
    with (
        ExitStack() as stack,
        Waiter() as waiter,
        closing(ProgressReporter(quiet=args.quiet, shows=shows_progress)) as talk,
    ):
        recorder = None
        if args.output:
            bottoms = [device for name in reader.stack.bottoms if (device := devices.by_name(name))]
            disks = {device.disk.name for device in bottoms}
            recorder = stack.enter_context(WritesRecorder(args.output, args.interval, clocks, disks))
        run = WritesRun(plan, reader, polls, recorder, clocks)
        for outcome in run.iter_outcomes(waiter, talk):
            talk.close()
            printer.print_outcome(outcome)
    failed = 1 if recorder and recorder.problem else 0
    return run.status or failed
