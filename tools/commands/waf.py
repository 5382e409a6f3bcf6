"""`opwatch waf --dev D [--for T | --until-error P | -- CMD...]`: write amplification of an interval."""

from __future__ import annotations

import argparse
from contextlib import ExitStack, closing
from functools import partial

from opwatch.collectors.firmware.counting import POLL_S, CounterPoller
from opwatch.counters.catalogue.families import load_catalogue
from opwatch.errors import OpwatchError, UsageError
from opwatch.host.device import BlockDevice, Devices, Presence
from opwatch.samples.end import End
from opwatch.samples.measurement_run import MeasurementRun, RunPlan
from opwatch.tools.arguments import (
    Once,
    add_catalogue_argument,
    parse_file_name,
    percentage_between,
    time_between,
)
from opwatch.tools.runs.progress import ProgressReporter
from opwatch.tools.runs.waf_outcome import WafQuestion, WafRun, show_waf
from opwatch.tools.runs.waf_recorder import WafRecorder
from opwatch.tools.runs.waiting import Waiter
from opwatch.waf.trail import LONGEST_NS

_DEFAULT_S = 60.0
_MAX_S = 30 * 86400.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "opwatch waf --dev D [--for T | --until-error P] [-o FILE] [options] [-- CMD...]"
    parser.add_argument(
        "--dev",
        action=Once,
        metavar="D",
        required=True,
        help="the drive, or a partition or dm device on one (a name, node or link)",
    )
    _add_end_arguments(parser)
    _add_poll_arguments(parser)
    add_catalogue_argument(parser)
    parser.add_argument(
        "-o",
        "--output",
        type=parse_file_name,
        metavar="FILE",
        help="keep every poll of the drive in this new recording; opwatch replay FILE shows the same output",
    )
    parser.add_argument("--json", action="store_true", help='print one JSON document, "schema":"opwatch/1"')
    parser.add_argument("-q", "--quiet", action="store_true", help="print no progress")


def _add_end_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options for the end of the measurement."""
    span = parser.add_mutually_exclusive_group()
    span.add_argument(
        "--for",
        dest="seconds",
        metavar="T",
        type=time_between(0.01, _MAX_S),
        help="measure for this time (1m)",
    )
    span.add_argument(
        "--until-error",
        metavar="P",
        type=percentage_between(0.001, 100),
        help="measure until the error is at most this (e.g. 1%%)",
    )


def _add_poll_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options for the polling of the drive's pages, and their maximum age."""
    parser.add_argument(
        "--refresh",
        metavar="T",
        type=time_between(0.01, _MAX_S, none=True),
        help="the maximum age of the drive's pages (learned; assumed to be 11m until then)",
    )
    parser.add_argument(
        "--settle",
        metavar="T",
        type=time_between(0.01, _MAX_S, none=True),
        default=LONGEST_NS / 1e9,
        help="at the end, wait at most this long for what the pages do not show yet (11m)",
    )
    parser.add_argument(
        "--poll",
        metavar="T",
        type=time_between(0.01, 3600),
        help="time between polls (1s; SATA and SAS under load: 10s)",
    )


def find_drive(devices: Devices, device: BlockDevice) -> BlockDevice:
    """Return the single drive that does a device's I/O. Raise UsageError if there are several."""
    disks = {
        leaf.device.disk.name: leaf.device.disk
        for leaf in ([] if device.name.startswith("nvme") else devices.find_leaves(device))
    }
    disks = disks or {device.disk.name: device.disk}
    if len(disks) > 1:
        raise UsageError(f"{device.name} is on {', '.join(disks)}, each with its own NAND: name one of them")
    return next(iter(disks.values()))


def _make_plan(counting: CounterPoller, args: argparse.Namespace) -> RunPlan:
    return RunPlan(
        idle_poll_s=args.poll or POLL_S,
        busy_poll_s=args.poll or counting.busy_poll_s,
        settle_s=args.settle,
        seconds=args.seconds or _DEFAULT_S,
        refresh_s=args.refresh,
        until_error=args.until_error,
    )


def run(args: argparse.Namespace) -> int:
    if args.command and (args.seconds or args.until_error):
        raise UsageError("the command after -- ends the interval: leave out --for and --until-error")
    devices = Devices()
    device = devices.resolve(args.dev)
    with closing(
        CounterPoller(devices, find_drive(devices, device), load_catalogue(args.counters))
    ) as counting:
        return _measure_waf(counting, device, args)


def _make_question(device: BlockDevice, args: argparse.Namespace) -> WafQuestion:
    # Same default as during the measurement: without --until-error the target is 1 %.
    refresh_ns = None if args.refresh is None else int(args.refresh * 1e9)
    return WafQuestion(device.name, refresh_ns, args.until_error or 0.01, bool(args.command))


def _measure_waf(counting: CounterPoller, device: BlockDevice, args: argparse.Namespace) -> int:
    question = _make_question(device, args)

    def start_command() -> None:
        waiter.start_command(args.command, quiet_stdout=args.json)

    with (
        ExitStack() as stack,
        Waiter() as waiter,
        closing(Presence(counting.disk)) as presence,
        closing(ProgressReporter(quiet=args.quiet, shows=not args.command)) as talk,
    ):
        kept = stack.enter_context(_make_recorder(question, counting, args)) if args.output else None
        poll = partial(counting.poll_counters, kept.record_poll) if kept else counting.poll_counters
        course = MeasurementRun(poll, presence.is_same_device, waiter, talk, _make_plan(counting, args))
        end = course.measure_work(start_command if args.command else None)
        status = waiter.finish_command(stop=end in (End.SIGNAL, End.VANISHED))
        if end is End.VANISHED or not course.trail.moments:
            return _check_vanished(counting, end)
        if end is not End.SIGNAL and course.trail.nand:
            end = course.wait_for_pages(has_work=bool(args.command))
        if kept:
            kept.finish_recording(course.begin, max(course.end, course.begin), status)
        measured = course.build_measurement().make_result()
    failed = 1 if kept and kept.problem else 0
    latest, denied = counting.latest, counting.denied
    outcome = WafRun(counting.disk.name, question, course.trail, latest, denied, measured)
    show_waf(outcome, as_json=args.json, status=status)
    return status or failed


def _make_recorder(question: WafQuestion, counting: CounterPoller, args: argparse.Namespace) -> WafRecorder:
    """Return the recorder of the readings."""
    every_s = _make_plan(counting, args).busy_poll_s
    return WafRecorder(args.output, every_s, question, counting.disk, args.command)


def _check_vanished(counting: CounterPoller, end: End) -> int:
    if end is End.VANISHED:
        raise OpwatchError(f"{counting.disk.name} is gone, and its counters with it")
    return 130
