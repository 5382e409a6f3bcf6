"""Options of SNIA tests, and their conversion into requests."""

from __future__ import annotations

import argparse
from dataclasses import replace

from opwatch.errors import Unsupported, UsageError
from opwatch.guard.identity import DiskIdentity
from opwatch.host.device import BlockDevice, Devices
from opwatch.journal.request import SweepRequest
from opwatch.load.workload import LoadJob, LoadPattern
from opwatch.pts.order import NAMES, PTS_CLASSES, PtsOrder, find_parts
from opwatch.pts.planning import bound_test_bytes, make_part_levels
from opwatch.sweep.levels import LevelScale, OpLevel
from opwatch.sweep.plan import SweepPace
from opwatch.sweep.purges import DISCARD, find_purge
from opwatch.tools.acting.pts.header import read_header
from opwatch.tools.acting.sweep.offers import find_purge_refusal
from opwatch.tools.arguments import percentage_between
from opwatch.tools.commands.sweep.arguments.drive_arguments import make_budget, make_sweep_identity
from opwatch.tools.commands.sweep.arguments.level_arguments import LEVEL_DEFAULTS, refuse_inapplicable

_MIN_PERCENT = 0.01


def add_test_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the SNIA test to run instead of levels, and its options."""
    parser.add_argument(
        "--test",
        metavar="NAME",
        help=f"run a test of SNIA's PTS 2.0.2 instead of levels: {', '.join(NAMES)}",
    )
    parser.add_argument(
        "--class",
        dest="drive_class",
        choices=[one.name for one in PTS_CLASSES],
        help="with --test: the settings that SNIA recommends for such drives (enterprise)",
    )
    parser.add_argument(
        "--scale",
        metavar="P%",
        type=percentage_between(_MIN_PERCENT, 100),
        help="with --test: multiply all its times by this, for a trial; the report then does not conform",
    )


def add_sponsor_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--sponsor", metavar="TEXT", help="with --test: the test sponsor, for the report")


def refuse_level_options(args: argparse.Namespace) -> None:
    """Raise UsageError for options on levels, because a test has predefined levels."""
    given = [name for name, usual in LEVEL_DEFAULTS.items() if getattr(args, name) != usual]
    if given:
        options = ", ".join(f"--{name}" for name in given)
        raise UsageError(f"{options}: not with --test, which sets the load itself")


def refuse_test_options(args: argparse.Namespace) -> None:
    """Raise UsageError for an unknown test, and for test options without a test."""
    if args.test is not None:
        find_parts(args.test)
    else:
        refuse_inapplicable(args, ["scale", *(["sponsor"] if "sponsor" in args else [])], "--test")
        if args.drive_class is not None:
            raise UsageError("--class: only with --test")


def make_order(args: argparse.Namespace, disk: BlockDevice) -> PtsOrder:
    """Return the requested test."""
    return PtsOrder(
        name=args.test,
        class_name=args.drive_class or PTS_CLASSES[0].name,
        scale=args.scale or 1.0,
        rounds=args.rounds,
        sponsor=getattr(args, "sponsor", None),
        header=read_header(Devices(), disk),
    )


def make_test_levels(order: PtsOrder, disk: BlockDevice) -> tuple[OpLevel, ...]:
    whole = OpLevel("all", disk.size_bytes, LevelScale(disk.size_bytes))
    return make_part_levels(order, whole)


def make_test_pace(args: argparse.Namespace) -> SweepPace:
    """Return the pace of a test. Only the idle time after a purge can be set; the test defines the rest."""
    settle = getattr(args, "settle", None)
    return SweepPace() if settle is None else replace(SweepPace(), settle_s=settle)


def make_test_request(args: argparse.Namespace, disk: BlockDevice, identity: DiskIdentity) -> SweepRequest:
    """Return the request, in bytes. Writes nothing."""
    refuse_level_options(args)
    refuse_inapplicable(args, ["refresh"], "levels (--op)")
    order = make_order(args, disk)
    purge = find_purge(args.purge or DISCARD.name).name
    if refused := find_purge_refusal(disk, purge):
        raise Unsupported(f"--purge {purge}: {refused}; --purge discard works on every drive here")
    planned = [bound_test_bytes(part, disk.size_bytes) for part in order.parts]
    if args.max_write is None and None in planned:
        raise UsageError(
            f"--test {order.name} writes for as long as SNIA requires, so the bytes depend on the drive's "
            "speed: set a limit with --max-write SIZE; opwatch sweep plan with --speed SIZE predicts them"
        )
    return SweepRequest(
        **make_sweep_identity(identity),
        levels=make_test_levels(order, disk),
        method="window",
        pattern=_make_placeholder(order),
        pace=make_test_pace(args),
        budget=make_budget(args, args.max_write or sum(one or 0 for one in planned)),
        allow_virtual=args.allow_virtual,
        purge=purge,
        test=order,
    )


def _make_placeholder(order: PtsOrder) -> LoadPattern:
    """Return a placeholder workload for the journal; the real loads depend on the test points."""
    name = f"pts {order.name}"
    return LoadPattern(name, order.parts[0].title, (LoadJob({"rw": "randwrite"}),))
