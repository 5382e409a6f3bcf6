"""`opwatch waf --dev D [--for T | --until-error P | -- CMD...]`: write amplification of an interval."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace

from opwatch.collectors.firmware.counting import Counting
from opwatch.counters.catalogue.families import load_catalogue
from opwatch.counters.reading import DriveFacts
from opwatch.errors import NotEnoughData, OpwatchError, Unsupported, UsageError
from opwatch.host.device import BlockDevice, Devices, Presence
from opwatch.samples.course import Course, CoursePlan
from opwatch.samples.end import End
from opwatch.sinks.terminal import Progress, data, say
from opwatch.sinks.waf import Outcome, document, lines
from opwatch.tools.arguments import Once, percentage_between, time_between
from opwatch.tools.commands.counters import add_catalogue_argument
from opwatch.tools.waiting import Waiter
from opwatch.waf.measure import Measured
from opwatch.waf.trail import LONGEST_NS, Trail

_DEFAULT_S = 60.0
_POLL_S, _SMARTCTL_POLL_S = 1.0, 10.0
_LONGEST_S = 30 * 86400.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "opwatch waf --dev D [--for T | --until-error P] [options] [-- CMD...]"
    parser.add_argument(
        "--dev",
        action=Once,
        metavar="D",
        required=True,
        help="a drive, or a partition or dm device on one: name or node",
    )
    _add_ends(parser)
    _add_looks(parser)
    add_catalogue_argument(parser)
    parser.add_argument("--json", action="store_true", help='one document, "schema":"opwatch/1"')
    parser.add_argument("-q", "--quiet", action="store_true", help="say nothing while it runs")


def _add_ends(parser: argparse.ArgumentParser) -> None:
    """How long to measure."""
    span = parser.add_mutually_exclusive_group()
    span.add_argument(
        "--for",
        dest="seconds",
        metavar="T",
        type=time_between(0.01, _LONGEST_S),
        help="measure for so long (60; 90s, 10m, 1.5h)",
    )
    span.add_argument(
        "--until-error",
        metavar="P",
        type=percentage_between(0.001, 100),
        help="measure until the error is at most this (1%%)",
    )


def _add_looks(parser: argparse.ArgumentParser) -> None:
    """When to look at the drive's pages, and how far to trust them."""
    parser.add_argument(
        "--refresh",
        metavar="T",
        type=time_between(0.01, _LONGEST_S, none=True),
        help="the drive's pages are at most this old; without it that is learned, and 11m until then",
    )
    parser.add_argument(
        "--settle",
        metavar="T",
        type=time_between(0.01, _LONGEST_S, none=True),
        default=LONGEST_NS / 1e9,
        help="wait at most so long at the end for what the pages do not show yet (11m)",
    )
    parser.add_argument(
        "--poll",
        metavar="T",
        type=time_between(0.01, 3600),
        help="time between two looks (1s; SATA and SAS: 10s)",
    )


def drive_of(devices: Devices, device: BlockDevice) -> BlockDevice:
    """The one drive that does the I/O of a device. UsageError when there are several."""
    disks = {
        leaf.device.disk.name: leaf.device.disk
        for leaf in ([] if device.name.startswith("nvme") else devices.leaves(device))
    }
    disks = disks or {device.disk.name: device.disk}
    if len(disks) > 1:
        raise UsageError(
            f"{device.name} stands on {', '.join(disks)}: each has its own NAND. Name one of them"
        )
    return next(iter(disks.values()))


class _Talk:
    """Talks on standard error. While a command runs the terminal is its own: nothing is written over."""

    def __init__(self, *, quiet: bool, has_command: bool) -> None:
        self._is_quiet = quiet
        self._progress = Progress(quiet=quiet or has_command)

    def say(self, text: str) -> None:
        if not self._is_quiet:
            self._progress.clear()
            say(text)

    def show(self, text: str) -> None:
        self._progress.show(text)

    def close(self) -> None:
        self._progress.clear()


def _plan(counting: Counting, args: argparse.Namespace) -> CoursePlan:
    # smartctl's commands stop a SATA drive's queue: under load they are rarer.
    busy_s = _POLL_S if counting.reads_pages else _SMARTCTL_POLL_S
    return CoursePlan(
        idle_poll_s=args.poll or _POLL_S,
        busy_poll_s=args.poll or busy_s,
        settle_s=args.settle,
        seconds=args.seconds or _DEFAULT_S,
        refresh_s=args.refresh,
        until_error=args.until_error,
    )


def _parts(trail: Trail) -> dict[str, int]:
    """Bytes written by device, from the first poll to the last."""
    first, last = (trail.first, trail.last)
    if not first or not last:
        return {}
    return {name: n - first.parts[name] for name, n in last.parts.items() if name in first.parts}


def _show(outcome: Outcome, error: OpwatchError | None, args: argparse.Namespace) -> None:
    """`error` is what is said at the end anyhow: people are told it once."""
    if not args.json:
        failures = [failure for failure in outcome.failures if failure != str(error)]
        outcome = replace(outcome, failures=failures)
    if args.json:
        data().json(document(outcome), indent=2)
    else:
        data().lines(lines(outcome))


def _why_none(counting: Counting, course: Course, measured: Measured) -> OpwatchError:
    """The error that stands for a missing number."""
    if not course.trail.nand:
        if counting.denied:
            return counting.denied
        return Unsupported(f"{counting.disk.name}: {_no_nand(counting)}")
    return NotEnoughData(f"{counting.disk.name}: {measured.reason}")


def _no_nand(counting: Counting) -> str:
    reading = counting.latest.readings["nand_written"] if counting.latest else None
    return f"NAND writes: {reading.reason if reading else 'not read'}"


def _outcome(counting: Counting, course: Course, device: BlockDevice, args: argparse.Namespace) -> Outcome:
    measured = course.measurement().result()
    latest = counting.latest
    notes = [] if course.trail.nand or counting.denied else [_no_nand(counting)]
    if device.name != counting.disk.name:
        notes.append(f"firmware counts for the whole of {counting.disk.name}, not for {device.name} alone")
    failures: Sequence[str] = latest.failures if latest else ()
    return Outcome(
        device=counting.disk.name,
        origin=device.name,
        drive=latest.drive if latest else DriveFacts(name=counting.disk.name),
        measured=measured,
        parts=_parts(course.trail),
        failures=failures,
        notes=notes,
        refresh_given=args.refresh is not None,
        with_command=bool(args.command),
    )


def run(args: argparse.Namespace) -> int:
    if args.command and (args.seconds or args.until_error):
        raise UsageError("a command behind -- ends the interval; take --for and --until-error away")
    devices = Devices()
    device = devices.resolve(args.dev)
    with closing(Counting(devices, drive_of(devices, device), load_catalogue(args.counters))) as counting:
        return _measure(counting, device, args)


def _measure(counting: Counting, device: BlockDevice, args: argparse.Namespace) -> int:
    def start() -> None:
        waiter.start(args.command, quiet_stdout=args.json)

    with (
        Waiter() as waiter,
        closing(Presence(counting.disk)) as presence,
        closing(_Talk(quiet=args.quiet, has_command=bool(args.command))) as talk,
    ):
        course = Course(counting.poll, presence.holds, waiter, talk, _plan(counting, args))
        end = course.work(start if args.command else None)
        status = waiter.finish(stop=end in (End.SIGNAL, End.VANISHED))
        if end is End.VANISHED or not course.trail.moments:
            return _gone(counting, end)
        if end is not End.SIGNAL and course.trail.nand:
            end = course.settle(has_work=bool(args.command))
        outcome = _outcome(counting, course, device, args)
    error = None
    if not status and outcome.measured.waf is None:
        error = _why_none(counting, course, outcome.measured)
    _show(outcome, error, args)
    if error:
        raise error
    return status


def _gone(counting: Counting, end: End) -> int:
    if end is End.VANISHED:
        raise OpwatchError(f"{counting.disk.name} has gone; its counters went with it")
    return 130
