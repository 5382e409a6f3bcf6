"""`opwatch waf --dev D [--for T | --until-error P | -- CMD...]`: write amplification of an interval."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace

from opwatch.collectors.firmware.counting import Counting
from opwatch.counters.catalogue.families import load_catalogue
from opwatch.counters.reading import DriveFacts
from opwatch.errors import NotEnoughData, OpwatchError, Unsupported, UsageError
from opwatch.host.device import BlockDevice, Devices, Presence
from opwatch.sinks.terminal import Progress, data, say
from opwatch.sinks.waf import Outcome, document, lines
from opwatch.tools.arguments import Once, percentage_between, time_between
from opwatch.tools.commands.counters import add_catalogue_argument
from opwatch.tools.waiting import End, Waiter
from opwatch.units import capacity
from opwatch.waf.measure import Measured, Measurement
from opwatch.waf.span import Amplification
from opwatch.waf.trail import LONGEST_NS, Trail

_LEAD_POLLS = 3
_DEFAULT_S = 60.0
_POLL_S, _SMARTCTL_POLL_S = 1.0, 10.0
_TALK_S = 10.0
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


class _Course:
    """One measurement: looks at the idle drive, the work, and the wait until the pages show all of it."""

    def __init__(self, counting: Counting, waiter: Waiter, args: argparse.Namespace) -> None:
        self.trail = Trail()
        self.begin = self.end = 0
        self._counting, self._waiter, self._args = counting, waiter, args
        self._presence = Presence(counting.disk)
        smartctl = not counting.reads_pages
        # smartctl's commands stop a SATA drive's queue: under load they are rarer.
        self._busy_s: float = args.poll or (_SMARTCTL_POLL_S if smartctl else _POLL_S)
        self.every_s: float = args.poll or _POLL_S
        self._due = time.monotonic()
        self._talked = time.monotonic()
        # The terminal is the command's while one runs.
        self._progress = Progress(quiet=args.quiet or bool(args.command))

    def close(self) -> None:
        self._progress.clear()
        self._presence.close()

    @property
    def newest(self) -> int:
        return len(self.trail.moments) - 1

    def say(self, text: str) -> None:
        if not self._args.quiet:
            self._progress.clear()
            say(text)

    def look(self) -> End:
        """Wait until a look is due, then poll. What ends the wait is told; there is a look after it all the
        same, at its time, unless the drive is gone."""
        end = self._waiter.wait(self._due)
        if end is End.SIGNAL:
            return end
        if end is End.COMMAND:
            self._waiter.reap()
            if self._waiter.wait(self._due) is End.SIGNAL:
                end = End.SIGNAL
        if not self._presence.holds():
            return End.VANISHED
        self.trail.add(self._counting.poll())
        # Not sooner than the time between two looks, however long this one took.
        self._due = max(self._due + self.every_s, time.monotonic() + min(self.every_s, 0.05))
        return end

    def looks(self, until: float) -> End:
        """Look again and again, until a moment of time.monotonic() or until something ends it."""
        while time.monotonic() < until:
            end = self.look()
            if end is not End.TICK:
                return end
        return End.COUNT

    def lead(self) -> End:
        """Looks at the drive before the command: it shows whether somebody else writes, and how old the
        pages are."""
        for _ in range(_LEAD_POLLS + 1):
            end = self.look()
            if end is not End.TICK:
                return end
        if self._args.refresh:
            return self.looks(time.monotonic() + self._args.refresh)
        return End.COUNT

    def _pace(self, every_s: float) -> None:
        self._due += every_s - self.every_s
        self.every_s = every_s

    def work(self) -> End:
        """The interval itself. Sets `begin` and `end`."""
        if self._args.command:
            end = self.lead()
            if end is not End.COUNT:
                return End.VANISHED if end is End.VANISHED else End.SIGNAL
            self.begin = self.newest
            self._waiter.start(self._args.command, quiet_stdout=self._args.json)
            self._pace(self._busy_s)
            end = self.looks(float("inf"))
        else:
            end = self._watch()
        self.end = max(self.newest, 0)
        return end

    def _watch(self) -> End:
        """What the drive does by itself, for a time or until the error is small."""
        end = self.look()
        self._pace(self._busy_s)
        if end is not End.TICK:
            return end
        if self._args.until_error:
            return self._until_error()
        return self._for_a_time(self._args.seconds or _DEFAULT_S)

    def _for_a_time(self, seconds: float) -> End:
        begun, end = time.monotonic(), End.TICK
        while end is End.TICK and time.monotonic() < begun + seconds:
            end = self.look()
            moments = self.trail.moments
            written = moments[-1].written.minus(moments[0].written)
            so_far = f", {capacity(written.middle)} written by the host" if written.known else ""
            self._progress.show(f"{min(time.monotonic() - begun, seconds):.0f} of {seconds:g} s{so_far}")
        return End.COUNT if end is End.TICK else end

    def _until_error(self) -> End:
        while True:
            end = self.look()
            if end is not End.TICK:
                return end
            self.end = self.newest
            stretch = self.measurement().brief()
            if stretch and stretch.found.relative_error <= self._args.until_error:
                return End.COUNT
            self._talk(stretch.found if stretch else None)

    def _talk(self, found: Amplification | None) -> None:
        if time.monotonic() - self._talked < _TALK_S:
            return
        self._talked = time.monotonic()
        if found and found.waf:
            self.say(f"WAF {found.waf:.3g} ± {100 * found.relative_error:.2g} % so far")
        else:
            self.say(found.reason if found and found.reason else "nothing yet")

    def settle(self) -> End:
        """Look until the pages show all of the work."""
        self._pace(self._args.poll or _POLL_S)
        until = time.monotonic() + self._args.settle
        told = False
        while time.monotonic() < until and not self._settled():
            if not told and time.monotonic() - until + self._args.settle > 3 * self.every_s:
                told = True
                self.say(
                    f"the pages may be up to {self._page_age_s():.0f} s old; waiting until they show it all "
                    "(Ctrl-C: what is known now; --refresh T: if you know how old they get)"
                )
            end = self.look()
            if end is not End.TICK:
                return end
        return End.COUNT

    def _page_age_s(self) -> float:
        return (self.measurement().result().period_ns or LONGEST_NS) / 1e9

    def _settled(self) -> bool:
        busy = self.trail.idle_since() > self.end
        if busy and not self._args.command:
            return True
        return self.measurement().settled()

    def measurement(self) -> Measurement:
        given = self._args.refresh
        return Measurement(
            self.trail,
            self.begin,
            max(self.end, self.begin),
            refresh_ns=None if given is None else int(given * 1e9),
            target=self._args.until_error or 0.01,
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
        failures = [each for each in outcome.failures if each != str(error)]
        outcome = replace(outcome, failures=failures)
    if args.json:
        data().json(document(outcome), indent=2)
    else:
        data().lines(lines(outcome))


def _why_none(counting: Counting, course: _Course, measured: Measured) -> OpwatchError:
    """The error that stands for a missing number."""
    if not course.trail.nand:
        if counting.denied:
            return counting.denied
        return Unsupported(f"{counting.disk.name}: {_no_nand(counting)}")
    return NotEnoughData(f"{counting.disk.name}: {measured.reason}")


def _no_nand(counting: Counting) -> str:
    reading = counting.latest.readings["nand_written"] if counting.latest else None
    return f"NAND writes: {reading.reason if reading else 'not read'}"


def _outcome(counting: Counting, course: _Course, device: BlockDevice, args: argparse.Namespace) -> Outcome:
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
    with Waiter() as waiter, closing(_Course(counting, waiter, args)) as course:
        end = course.work()
        status = waiter.finish(stop=end in (End.SIGNAL, End.VANISHED))
        if end is End.VANISHED or not course.trail.moments:
            return _gone(counting, end)
        if end is not End.SIGNAL and course.trail.nand:
            end = course.settle()
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
