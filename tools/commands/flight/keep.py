"""`opwatch flight`: watch without end, and keep the last few minutes."""

from __future__ import annotations

import argparse
from contextlib import ExitStack, closing
from pathlib import Path

from opwatch import units
from opwatch.errors import OpwatchError, UsageError
from opwatch.host.privilege import drop_privileges
from opwatch.quantities import parse_size
from opwatch.recording.ring.folder import RingFolder
from opwatch.recording.ring.incidents import IncidentFolder
from opwatch.recording.ring.ring import Ring, RingBounds
from opwatch.rules.watch import RuleWatch
from opwatch.sinks.export.archive import make_archive_folder
from opwatch.sinks.export.duckdb_writer import require_duckdb
from opwatch.sinks.export.table import read_origin
from opwatch.sinks.terminal import print_message
from opwatch.times import format_duration
from opwatch.tools.arguments import count_between, parse_byte_size, time_between
from opwatch.tools.commands.flight.archiving import SPOOL, Archiver
from opwatch.tools.commands.flight.catching import Catcher
from opwatch.tools.runs.live_watch import (
    add_device_argument,
    add_every_argument,
    add_unseen_watch_arguments,
    attach_watch,
)
from opwatch.tools.runs.run_recorder import RunRecorder, make_header

DEFAULT_RING = Path("/var/lib/opwatch/flight")
_KEEP_S = 900.0
_AFTER_S = 30.0
_MAX_BYTES = parse_size("64M")
# A segment needs room for its first samples and for SQLite's own files.
_MIN_BYTES = parse_size("9M")
_MAX_SAMPLES = 1 << 20
_MAX_CAUGHT = 20
# Drives need not be polled as often as in a live view, because their counters are absolute.
_ARCHIVE_WAF_S = 600.0


def add_ring_argument(parser: argparse.ArgumentParser, *, is_verb: bool = True) -> None:
    """Add --ring. With `is_verb` there is no default, so that a value given before the verb is kept."""
    parser.add_argument(
        "--ring",
        type=Path,
        default=argparse.SUPPRESS if is_verb else DEFAULT_RING,
        metavar="DIR",
        help=f"the ring's folder ({DEFAULT_RING})",
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_device_argument(parser)
    parser.add_argument(
        "--keep", type=time_between(1, 86400 * 7), default=_KEEP_S, metavar="T", help="the time to keep (15m)"
    )
    parser.add_argument(
        "--most", type=parse_byte_size, default=_MAX_BYTES, metavar="BYTES", help="disk space limit (64M)"
    )
    add_every_argument(parser)
    add_ring_argument(parser, is_verb=False)
    parser.add_argument(
        "--when",
        action="append",
        default=[],
        metavar="RULE",
        help="write a recording automatically when this becomes true: 'read.p99>20ms for 10s', 'waf>3', "
        "error, gone; may be given several times",
    )
    parser.add_argument(
        "--after",
        type=time_between(0, 86400, none=True),
        default=_AFTER_S,
        metavar="T",
        help="with --when: time from the event to the end of its recording (30s)",
    )
    parser.add_argument(
        "--why",
        action="store_true",
        help="with --when: also write what made requests slow beside each recording (opwatch why)",
    )
    parser.add_argument(
        "--into", type=Path, metavar="DIR", help="with --when: the folder of these recordings (RING/caught)"
    )
    parser.add_argument(
        "--caught",
        type=count_between(1, 10_000),
        default=_MAX_CAUGHT,
        metavar="N",
        help="with --when: keep the newest N recordings and remove older ones (20)",
    )
    parser.add_argument(
        "--archive",
        type=Path,
        metavar="DIR",
        help="also write a row per minute and operation into Parquet files below this folder, for the "
        "history of a fleet (needs DuckDB; polls drives every 10m unless --waf is given)",
    )
    parser.add_argument(
        "--archive-every",
        choices=("hour", "day"),
        default=None,
        help="with --archive: write a file per hour (the default) or per day, in UTC",
    )
    add_unseen_watch_arguments(parser)


def _prepare_archive(args: argparse.Namespace) -> None:
    """Check at the start that the archive can be written, and set how often drives are polled."""
    if args.archive is None:
        if args.archive_every:
            raise UsageError("--archive-every needs --archive DIR")
        return
    require_duckdb()
    make_archive_folder(args.archive)
    if args.waf is None:
        args.waf = max(_ARCHIVE_WAF_S, args.interval)


def _make_archiver(args: argparse.Namespace) -> Archiver | None:
    if args.archive is None:
        return None
    return Archiver(
        read_origin("flight", make_header(args.interval)),
        round(args.interval * 1e9),
        spool=args.ring / SPOOL,
        archive=args.archive,
        period=args.archive_every or "hour",
    )


def _make_bounds(args: argparse.Namespace) -> RingBounds:
    if args.most < _MIN_BYTES:
        raise UsageError(f"--most must be at least {units.format_capacity(_MIN_BYTES)}")
    if args.keep < args.interval:
        raise UsageError("--keep is shorter than the time between samples (--every)")
    if args.keep / args.interval > _MAX_SAMPLES:
        raise UsageError(f"--keep needs more than {_MAX_SAMPLES} samples: shorten --keep or lengthen --every")
    return RingBounds(args.keep, args.most)


def run(args: argparse.Namespace) -> int:
    bounds, rules = _make_bounds(args), RuleWatch.from_texts(args.when)
    args.count, catcher = None, None
    if args.why and not args.when:
        raise UsageError("--why needs --when RULE; opwatch flight dump --why explains the ring now")
    _prepare_archive(args)
    if rules.needs_drives and (args.waf == 0 or not (args.dev or args.waf)):
        raise UsageError(
            "a rule about waf needs the drive's counters: name the drive with --dev, or add --waf T"
        )
    drop_privileges()
    with ExitStack() as stack:
        folder = stack.enter_context(closing(_open_ring(args.ring)))
        archiver = _make_archiver(args)
        live = attach_watch(args, stack)
        kept = stack.enter_context(RunRecorder(live, Ring(folder, make_header(args.interval), bounds)))
        if args.when:
            into = IncidentFolder(args.into or args.ring / "caught", args.caught)
            catcher = Catcher(rules, kept, into, args.after, args.keep, explains=args.why)
        if not args.quiet:
            print_message(
                f"keeping the last {format_duration(args.keep)} in {args.ring}; opwatch flight dump -o FILE "
                "writes them into a recording"
            )
        live.start_command(quiet_stdout=False)
        for entry in kept.iter_entries():
            if catcher:
                catcher.process_entry(entry)
            if archiver:
                archiver.process_entry(entry)
            if kept.problem:
                break
        if archiver:
            archiver.finish()
    if catcher:
        catcher.write_pending()
    if live.gone:
        print_message(f"{live.gone} is gone; the ring has everything up to then")
    return 1 if live.gone or kept.problem else 0


def _open_ring(path: Path) -> RingFolder:
    try:
        folder = RingFolder(path, make=True)
    except OSError as error:
        raise OpwatchError(
            f"cannot create {path}: {error.strerror}; name a writable folder with --ring"
        ) from error
    try:
        folder.lock_as_recorder()
    except BaseException:
        folder.close()
        raise
    return folder
