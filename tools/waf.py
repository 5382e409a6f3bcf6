"""`opwatch waf --dev D [--for T | --until-error P | -- CMD...]`: write amplification of an interval."""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Sequence
from contextlib import closing

from opwatch.collectors.counting import Counting
from opwatch.counters.catalogue import load_catalogue
from opwatch.counters.reading import Drive
from opwatch.device import BlockDevice, Devices, Presence
from opwatch.errors import NotEnoughData, OpwatchError, Unsupported, UsageError
from opwatch.measure import Measured, Measurement
from opwatch.sinks.devices import encodable
from opwatch.sinks.waf import Outcome, document, lines
from opwatch.tools.counters import add_catalogue_argument
from opwatch.tools.waiting import End, Waiter
from opwatch.trail import LONGEST_NS, Trail
from opwatch.waf import Amplification

_LEAD_POLLS = 3
_DEFAULT_S = 60.0
_POLL_S, _SMARTCTL_POLL_S = 1.0, 10.0
_TALK_S = 10.0
_UNITS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def duration(text: str) -> float:
    """Seconds of 90, 90s, 10m, 1.5h or 200ms."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d|)", text.strip())
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} is no time: write 90, 90s, 10m or 1.5h")
    return float(found[1]) * _UNITS[found[2]]


def _poll_time(text: str) -> float:
    seconds = duration(text)
    if not 0.01 <= seconds <= 3600:
        raise argparse.ArgumentTypeError("must be between 10ms and 1h")
    return seconds


def _positive(text: str) -> float:
    seconds = duration(text)
    if not seconds:
        raise argparse.ArgumentTypeError("must be more than 0")
    return seconds


def percentage(text: str) -> float:
    """0.01 of 1%. The % must be there: 1 could be either."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*%", text.strip())
    if not found or not 0.001 <= float(found[1]) <= 100:
        raise argparse.ArgumentTypeError(f"{text!r} is no error: write a percentage such as 1%")
    return float(found[1]) / 100


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "opwatch waf --dev D [--for T | --until-error P] [options] [-- CMD...]"
    parser.add_argument(
        "--dev", metavar="D", required=True, help="a drive, or a partition or dm device on one: name or node"
    )
    span = parser.add_mutually_exclusive_group()
    span.add_argument(
        "--for", dest="seconds", metavar="T", type=_positive, help="measure for so long (60; 90s, 10m, 1.5h)"
    )
    span.add_argument(
        "--until-error", metavar="P", type=percentage, help="measure until the error is at most this (1%%)"
    )
    parser.add_argument(
        "--refresh",
        metavar="T",
        type=duration,
        help="the drive's pages are at most this old; without it that is learned, and 11m until then",
    )
    parser.add_argument(
        "--settle",
        metavar="T",
        type=duration,
        default=LONGEST_NS / 1e9,
        help="wait at most so long at the end for what the pages do not show yet (11m)",
    )
    parser.add_argument(
        "--poll", metavar="T", type=_poll_time, help="time between two looks (1s; SATA and SAS: 10s)"
    )
    add_catalogue_argument(parser)
    parser.add_argument("--json", action="store_true", help='one document, "schema":"opwatch/1"')
    parser.add_argument("-q", "--quiet", action="store_true", help="say nothing while it runs")


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

    def close(self) -> None:
        self._presence.close()

    @property
    def newest(self) -> int:
        return len(self.trail.moments) - 1

    def say(self, text: str) -> None:
        if not self._args.quiet:
            print(f"opwatch: {text}", file=sys.stderr, flush=True)

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
        return self.looks(time.monotonic() + (self._args.seconds or _DEFAULT_S))

    def _until_error(self) -> End:
        while True:
            end = self.look()
            if end is not End.TICK:
                return end
            self.end = self.newest
            stretch = self.measurement().brief()
            if stretch and stretch.found.relative_error <= self._args.until_error:
                return End.COUNT
            self._progress(stretch.found if stretch else None)

    def _progress(self, found: Amplification | None) -> None:
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


def _show(outcome: Outcome, args: argparse.Namespace) -> None:
    if args.json:
        print(json.dumps(document(outcome), indent=2), flush=True)
        return
    for line in lines(outcome):
        print(encodable(line, sys.stdout.encoding or "utf-8"), flush=True)


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
        counting.disk.name,
        device.name,
        latest.drive if latest else Drive(name=counting.disk.name),
        measured,
        _parts(course.trail),
        failures,
        notes,
        args.refresh is not None,
        bool(args.command),
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
    _show(outcome, args)
    if status or outcome.measured.waf is not None:
        return status
    raise _why_none(counting, course, outcome.measured)


def _gone(counting: Counting, end: End) -> int:
    if end is End.VANISHED:
        raise OpwatchError(f"{counting.disk.name} has gone; its counters went with it")
    return 130
