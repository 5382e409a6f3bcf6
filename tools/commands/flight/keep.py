"""`opwatch flight`: watch without end, and keep the last few minutes."""

from __future__ import annotations

import argparse
from contextlib import ExitStack, closing
from pathlib import Path

from opwatch import units
from opwatch.errors import OpwatchError, UsageError
from opwatch.host.privilege import keep_recorder_privileges
from opwatch.quantities import parse_size
from opwatch.recording.ring.caught import CaughtRecordings
from opwatch.recording.ring.folder import RingFolder
from opwatch.recording.ring.ring import Ring, RingBounds
from opwatch.rules.watch import RuleWatch
from opwatch.sinks.terminal import say
from opwatch.times import spell
from opwatch.tools.arguments import byte_size, count_between, time_between
from opwatch.tools.commands.flight.catching import Catcher
from opwatch.tools.commands.record import add_every_argument, add_unseen_watch_arguments
from opwatch.tools.commands.watch import add_device_argument, attached
from opwatch.tools.kept_run import KeptRun, header

DEFAULT_RING = Path("/var/lib/opwatch/flight")
_KEEP_S = 900.0
_AFTER_S = 30.0
_MOST_BYTES = parse_size("64M")
# A segment needs room for its first samples and for SQLite's own files.
_LEAST_BYTES = parse_size("9M")
_MOST_SAMPLES = 1 << 20
_MOST_CAUGHT = 20


def add_ring_argument(parser: argparse.ArgumentParser, *, is_verb: bool = True) -> None:
    """Add --ring. With `is_verb` there is no default, so that a value given before the verb is kept."""
    parser.add_argument(
        "--ring",
        type=Path,
        default=argparse.SUPPRESS if is_verb else DEFAULT_RING,
        metavar="DIR",
        help=f"the folder of the ring ({DEFAULT_RING})",
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_device_argument(parser)
    parser.add_argument(
        "--keep", type=time_between(1, 86400 * 7), default=_KEEP_S, metavar="T", help="how long (15m)"
    )
    parser.add_argument(
        "--most", type=byte_size, default=_MOST_BYTES, metavar="BYTES", help="in how many bytes (64M)"
    )
    add_every_argument(parser)
    add_ring_argument(parser, is_verb=False)
    parser.add_argument(
        "--when",
        action="append",
        default=[],
        metavar="RULE",
        help="write a recording by itself: 'read.p99>20ms for 10s', 'waf>3', error, gone; several times for "
        "several",
    )
    parser.add_argument(
        "--after",
        type=time_between(0, 86400, none=True),
        default=_AFTER_S,
        metavar="T",
        help="with --when: so long after it, before the recording is written (30s)",
    )
    parser.add_argument(
        "--into", type=Path, metavar="DIR", help="with --when: the folder of these recordings (RING/caught)"
    )
    parser.add_argument(
        "--caught",
        type=count_between(1, 10_000),
        default=_MOST_CAUGHT,
        metavar="N",
        help="with --when: keep the newest N recordings and remove older ones (20)",
    )
    add_unseen_watch_arguments(parser)


def _bounds(args: argparse.Namespace) -> RingBounds:
    if args.most < _LEAST_BYTES:
        raise UsageError(f"--most must be {units.capacity(_LEAST_BYTES)} or more")
    if args.keep < args.interval:
        raise UsageError("--keep is shorter than the time between two samples (--every)")
    if args.keep / args.interval > _MOST_SAMPLES:
        raise UsageError(f"--keep has more than {_MOST_SAMPLES} times of --every: make one longer")
    return RingBounds(args.keep, args.most)


def run(args: argparse.Namespace) -> int:
    bounds, rules = _bounds(args), RuleWatch.of(args.when)
    args.count, catcher = None, None
    if rules.needs_drives and (args.waf == 0 or not (args.dev or args.waf)):
        raise UsageError("a rule about waf needs a drive that is read: name it by --dev, or give --waf T")
    keep_recorder_privileges()
    with ExitStack() as stack:
        folder = stack.enter_context(closing(_own(args.ring)))
        live = attached(args, stack)
        kept = stack.enter_context(KeptRun(live, Ring(folder, header(args.interval), bounds)))
        if args.when:
            into = CaughtRecordings(args.into or args.ring / "caught", args.caught)
            catcher = Catcher(rules, kept, into, args.after, args.keep)
        if not args.quiet:
            say(
                f"keeping the last {spell(args.keep)} in {args.ring}; opwatch flight dump -o FILE writes "
                "them into a recording"
            )
        live.start(quiet_stdout=False)
        for entry in kept.entries():
            if catcher:
                catcher.take(entry)
            if kept.problem:
                break
    if catcher:
        catcher.finish()
    if live.gone:
        say(f"{live.gone} has gone; the ring has what came before")
    return 1 if live.gone or kept.problem else 0


def _own(path: Path) -> RingFolder:
    try:
        folder = RingFolder(path, make=True)
    except OSError as error:
        raise OpwatchError(
            f"{path} cannot be made: {error.strerror}; name a folder by --ring that can be written to"
        ) from error
    try:
        folder.own()
    except BaseException:
        folder.close()
        raise
    return folder
