"""`opwatch why FILE [--dev D...] | --dev D... [--for T]`: what made requests slow, with evidence, or unknown.

With --neighbours: what owners of requests cost each other."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from contextlib import ExitStack, closing
from datetime import datetime
from functools import partial

from opwatch.clock import read_anchor
from opwatch.counters.catalogue.families import load_catalogue
from opwatch.errors import NotEnoughData, UsageError
from opwatch.owners.cells import OwnerGrouping
from opwatch.samples.end import End
from opwatch.sinks.neighbours import build_neighbours_document, format_neighbours
from opwatch.sinks.terminal import open_stdout, print_message
from opwatch.sinks.why import build_why_document, format_answer
from opwatch.times import format_duration
from opwatch.tools.arguments import add_catalogue_argument, parse_file_name, time_between
from opwatch.tools.runs.explaining import examine_recording, select_disks
from opwatch.tools.runs.live_watch import add_device_argument, add_tracing_arguments, attach_watch
from opwatch.tools.runs.replay import Replay, add_bounds_arguments, list_notes, open_run
from opwatch.why.answer import Answer, answer_why
from opwatch.why.neighbours import compare_neighbours
from opwatch.why.witnessed import WitnessedRun, gather_witnesses

_DEFAULT_S = 300.0
_MAX_S = 86400.0
_NOTHING_SLOW, _INTERRUPTED = 6, 7

Clock = Callable[[int], datetime | None]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "opwatch why FILE [--dev D...] [--neighbours] [--from T] [--to T] [--json]\n"
        "       opwatch why --dev D... [--neighbours] [--for T] [--json]"
    )
    parser.add_argument("file", nargs="?", type=parse_file_name, metavar="FILE", help="the recording")
    add_device_argument(parser)
    parser.add_argument(
        "--for",
        dest="seconds",
        type=time_between(20, _MAX_S),
        metavar="T",
        help="with --dev, watch for this time (5m)",
    )
    parser.add_argument(
        "--neighbours",
        action="store_true",
        help="instead show what owners of requests (--by) cost each other: device times with and without "
        "another's requests",
    )
    add_bounds_arguments(parser)
    add_tracing_arguments(parser)
    add_catalogue_argument(parser)
    parser.add_argument("--json", action="store_true", help='print one JSON document, "schema":"opwatch/1"')
    parser.add_argument("-q", "--quiet", action="store_true", help="print no messages")
    parser.set_defaults(interval=None, at=None, speed=None, step=False)


def _check_options(args: argparse.Namespace) -> None:
    if not args.file and not args.dev:
        raise UsageError("name a recording, or the disks to watch: opwatch why FILE, or opwatch why --dev D")
    if args.file and args.seconds:
        raise UsageError("--for is for a watch with --dev; --from and --to select a part of a recording")
    if not args.file and (args.begin or args.end):
        raise UsageError("--from and --to are for a recording; --for limits a watch")


def _read_recording(args: argparse.Namespace, stack: ExitStack) -> tuple[WitnessedRun, Clock]:
    run = stack.enter_context(closing(open_run(args.file)))
    for note in [] if args.quiet else list_notes(run):
        print_message(note)
    if args.neighbours:
        witnessed = gather_witnesses(Replay(run, args).iter_entries())
        select_disks(witnessed, args.dev or (), run.name)
        return witnessed, run.to_wall_time
    return examine_recording(run, args, args.dev or ()), run.to_wall_time


def _watch_disks(args: argparse.Namespace, stack: ExitStack) -> tuple[WitnessedRun, Clock, int]:
    """Return what a watch witnessed, and its exit status."""
    args.interval, args.count, args.command = 1.0, None, []
    vars(args).update(queue=True, slow=0.0, by=None, discards=None, waf=None, verbose=False)
    live = attach_watch(args, stack, OwnerGrouping.CGROUP, for_s=args.seconds or _DEFAULT_S)
    if not args.quiet:
        print_message(f"watching for {format_duration(args.seconds or _DEFAULT_S)}; Ctrl-C ends it earlier")
    live.start_command(quiet_stdout=False)
    witnessed = gather_witnesses(live.iter_entries())
    if live.gone:
        print_message(f"{live.gone} is gone; the answer ends there")
    return witnessed, read_anchor().to_wall_time, _INTERRUPTED if live.end is End.SIGNAL else 0


def _print_answer(answer: Answer, clock: Clock, args: argparse.Namespace) -> int:
    for note in (*answer.not_examined, *answer.notes):
        print_message(note)
    if args.json:
        open_stdout().write_json(build_why_document(answer, clock))
    elif not answer.examined and not answer.before:
        raise NotEnoughData("no disk has enough intervals for an answer")
    else:
        open_stdout().write_lines(format_answer(answer, clock))
    return 0 if answer.slow or answer.before else _NOTHING_SLOW


def _print_neighbours(witnessed: WitnessedRun, args: argparse.Namespace) -> int:
    disks = [compare_neighbours(disk) for disk in witnessed.disks.values() if disk.owners]
    if not any(disk.effects for disk in disks):
        raise NotEnoughData(
            "no disk has two owners of requests: record with opwatch record --by cgroup (or --by process) "
            "while both work"
        )
    if args.json:
        open_stdout().write_json(build_neighbours_document(disks))
    else:
        open_stdout().write_lines(format_neighbours(disks))
    known = any(one.refusal is None for disk in disks for one in disk.effects)
    return 0 if known else NotEnoughData.exit_status


def run(args: argparse.Namespace) -> int:
    _check_options(args)
    catalogue = partial(load_catalogue, args.counters)
    with ExitStack() as stack:
        status = 0
        if args.file:
            witnessed, clock = _read_recording(args, stack)
        else:
            witnessed, clock, status = _watch_disks(args, stack)
        if args.neighbours:
            return _print_neighbours(witnessed, args) or status
        return _print_answer(answer_why(witnessed, catalogue), clock, args) or status
