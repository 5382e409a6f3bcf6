"""`opwatch [--dev D]... [INTERVAL [COUNT]] [-o FILE] [-- CMD...]`: trace and show, interval by interval."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING

from opwatch.collectors.audit.live_discards import LiveDiscards, offers_discards
from opwatch.collectors.block.contexts import ContextProbe
from opwatch.collectors.block.owners import make_group_notes
from opwatch.collectors.block.uevents import BlockEvents
from opwatch.collectors.firmware.live import LiveWaf, find_drives
from opwatch.errors import UsageError
from opwatch.host.device import BlockDevice, Devices, Leaf
from opwatch.owners.cells import OwnerGrouping
from opwatch.samples.membership import Membership
from opwatch.samples.observation import Sink
from opwatch.samples.presenter import RunPresenter
from opwatch.samples.sample import MAX_DISKS
from opwatch.samples.selection import Selection
from opwatch.samples.source import present_run
from opwatch.sinks.jsonl import JsonLines
from opwatch.sinks.lines import TextLines
from opwatch.sinks.terminal import open_stdout, print_message
from opwatch.sinks.tones import is_colour_wanted
from opwatch.tools.arguments import Options, add_color_argument, count_between, parse_file_name, time_between
from opwatch.tools.backends import BACKENDS, Attribution, attach_tracer
from opwatch.tools.dashboard.choice import add_screen_arguments, is_dashboard_chosen
from opwatch.tools.waiting import LiveRun, Waiter
from opwatch.tools.watching import DiskWatcher
from opwatch.trace.tracer_set import TracerSet
from opwatch.trace.unavailable import OWNERS, list_unavailable

if TYPE_CHECKING:
    from opwatch.tools.run_recorder import RunRecorder


_WAF_S = 5.0
# A controller reset or a firmware update takes less time than this.
_RETURN_S = 60.0
_NO_DISK = "no disk to watch: no device in /sys/block has a medium; opwatch devices lists the devices"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "opwatch [--dev D]... [options] [INTERVAL [COUNT]] [-- CMD...]"
    what = parser.add_argument_group("what to watch, and for how long")
    add_device_argument(what)
    add_interval_arguments(what, 1.0, between="lines", counted="intervals")
    add_measuring_arguments(parser.add_argument_group("what else to measure"))
    _add_form_arguments(parser.add_argument_group("output"))
    kept = parser.add_argument_group("recording")
    kept.add_argument(
        "-o",
        "--output",
        type=parse_file_name,
        metavar="FILE",
        help="also record into a new file; opwatch replay FILE shows the same output",
    )
    add_keeping_arguments(kept)
    add_tracing_arguments(parser.add_argument_group("tracing"))


def add_device_argument(parser: Options) -> None:
    parser.add_argument(
        "--dev",
        action="append",
        metavar="D",
        help="watch this disk, partition, dm or md device (a name, node or link); may be given several times "
        "(default: all disks)",
    )
    parser.add_argument(
        "--return-within",
        type=time_between(1, 86400 * 366, none=True),
        default=_RETURN_S,
        metavar="T",
        help="if a device named by --dev disappears, wait this long for the same drive (1m; 0: end at once)",
    )


def add_interval_arguments(parser: Options, default_s: float, *, between: str, counted: str) -> None:
    """Add the interval and the count. `between` and `counted` name the repeated and the counted items in the
    help."""
    parser.add_argument(
        "interval",
        nargs="?",
        type=time_between(0.01, 86400),
        default=default_s,
        metavar="INTERVAL",
        help=f"time between {between} ({default_s:g}s)",
    )
    parser.add_argument(
        "count",
        nargs="?",
        type=count_between(1, 10**9),
        metavar="COUNT",
        help=f"stop after this many {counted}",
    )


def add_keeping_arguments(parser: Options) -> None:
    """Add the options for additional contents of a recording."""
    parser.add_argument(
        "--note",
        action="append",
        default=[],
        metavar="TEXT",
        help="keep this text in the recording; may be given several times",
    )
    parser.add_argument(
        "--fio-as-is",
        action="store_true",
        help="do not add options to a fio after --; its figures, logs and phases are then not kept",
    )


def add_measuring_arguments(parser: Options) -> None:
    """Add the options for additional measurements."""
    parser.add_argument(
        "--queue",
        action="store_true",
        help="also measure how long requests wait in the block layer before they are issued",
    )
    parser.add_argument(
        "--slow",
        type=time_between(1e-6, 3600, none=True, needs_unit=True),
        default=0.0,
        metavar="T",
        help="report each request that takes longer than this in the device, with its process (e.g. 10ms)",
    )
    parser.add_argument(
        "--by",
        choices=(*(by.value for by in OwnerGrouping), "none"),
        help="also count requests by owner, including write-back: the control group that the kernel charges "
        "(the default of the dashboard), or the process that issued them (none)",
    )
    parser.add_argument(
        "--discards",
        action=argparse.BooleanOptionalAction,
        help="report who discards how much, how it is split, the share in whole granules, and the requests "
        "that wait behind discards (on for disks named by --dev that accept discards)",
    )
    parser.add_argument(
        "--waf",
        type=time_between(0.01, 86400, none=True),
        metavar="T",
        help="time between polls of the drive's firmware counters, 0 for none (5s for NVMe drives named by "
        "--dev, none for others)",
    )


def _add_form_arguments(parser: Options) -> None:
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help='print JSON lines, "schema":"opwatch/1"')
    add_screen_arguments(form)
    add_color_argument(parser)
    parser.add_argument("-q", "--quiet", action="store_true", help="print the summary only")
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="print which programs are attached, and how"
    )
    parser.add_argument(
        "--strict",
        action="store_true",
        help="exit with status 1 if the trust line reports anything unexplained",
    )


def add_tracing_arguments(parser: Options) -> None:
    """Add the options for attaching."""
    parser.add_argument(
        "--backend",
        choices=BACKENDS,
        default="libbpf",
        help="the tracer: our BPF programs (libbpf, the default), the same compiled here for kernels without "
        "BTF (bcc), or a bpftrace script; docs/backends.md compares them",
    )
    parser.add_argument(
        "--hooks",
        choices=("auto", "raw_tp"),
        default="auto",
        help="attach typed programs (auto, the default), or always the equivalent raw_tp programs",
    )


def choose_leaves(devices: Devices, names: Sequence[str] | None) -> tuple[list[Leaf], list[str]]:
    """Return the leaves to trace for these names, and notes for the user."""
    selection = Selection(devices, names)
    leaves = selection.find_leaves()
    if not leaves:
        raise UsageError(_NO_DISK)
    return leaves, selection.list_notes()


def choose_owner_kind(args: argparse.Namespace) -> OwnerGrouping | None:
    """Return the kind of owners to distinguish, or None if none was requested."""
    return OwnerGrouping(args.by) if args.by not in (None, "none") else None


def make_live_waf(devices: Devices, args: argparse.Namespace) -> LiveWaf:
    """Return the reader of firmware counters. By default, named drives with log pages are read."""
    wanted = args.waf != 0 and (args.dev or args.waf is not None)

    def select_drives(leaves: Sequence[Leaf]) -> dict[str, BlockDevice]:
        return find_drives(leaves, all_kinds=args.waf is not None) if wanted else {}

    return LiveWaf(devices, select_drives, args.waf or _WAF_S)


def make_live_discards(args: argparse.Namespace) -> LiveDiscards:
    """Return the tracer of discards. By default it traces named disks, and a failure to attach is not
    fatal."""

    def has_wanted_discards(leaves: Sequence[Leaf]) -> bool:
        if args.discards is not None:
            return bool(args.discards)
        return bool(args.dev) and args.backend == "libbpf" and offers_discards(leaves)

    is_chained = args.backend == "libbpf" and args.hooks == "auto"
    return LiveDiscards(has_wanted_discards, is_required=bool(args.discards), is_chained=is_chained)


def _list_notes(selection: Selection, tracers: TracerSet, *, verbose: bool) -> list[str]:
    notes = [*selection.list_notes(), *tracers.notes]
    notes += [f"{tracers.backend} cannot measure {what}" for what in tracers.lacks]
    if verbose:
        programs = ", ".join(dict.fromkeys(program[0] for program in tracers.list_programs()))
        notes.append(f"attached by {tracers.hooks}: {programs}")
    return notes


def attach_watch(
    args: argparse.Namespace,
    stack: ExitStack,
    offered: OwnerGrouping | None = None,
    for_s: float | None = None,
) -> LiveRun:
    """Return the requested watch, attached until the stack is closed. The command is not started yet.

    `offered` is the default kind of owners, used if supported by the kernel. `for_s` limits the run time.
    """
    devices = Devices()
    slow_ns, raw_tp = round(args.slow * 1e9), args.hooks == "raw_tp"
    is_offered = args.by is None and args.backend == "libbpf"
    by = offered if is_offered else choose_owner_kind(args)
    owners = Attribution(by, is_offered)
    tracers = TracerSet(
        lambda leaves: attach_tracer(
            args.backend, leaves, queue_time=args.queue, raw_tp=raw_tp, slow_ns=slow_ns, owners=owners
        ),
        MAX_DISKS,
    )
    # Subscribe before listing the disks, so that no later arrival is missed.
    events = stack.enter_context(closing(BlockEvents()))
    selection = Selection(devices, args.dev)
    membership = Membership(devices, selection, args.return_within)
    if not membership.members:
        raise UsageError(_NO_DISK)
    stack.callback(tracers.close)
    live, contexts = make_live_waf(devices, args), ContextProbe()
    watching = stack.enter_context(
        closing(
            DiskWatcher(membership, tracers, live, make_live_discards(args), contexts, slow_ns=slow_ns, by=by)
        )
    )
    told_apart = None if OWNERS in list_unavailable(tracers.lacks) else by
    for note in [*_list_notes(selection, tracers, verbose=args.verbose), *make_group_notes(told_apart)]:
        print_message(note)
    waiter = stack.enter_context(Waiter(events.fileno()))
    live.start()
    contexts.start()
    return LiveRun(watching, waiter, events, args, for_s)


def run(args: argparse.Namespace) -> int:
    inked = is_colour_wanted(args.color, sys.stdout)
    sink: Sink = TextLines(sys.stdout, quiet=args.quiet, every_s=args.interval, inked=inked)
    if args.json:
        sink = JsonLines(sys.stdout, quiet=args.quiet)
    kept: RunRecorder | None = None
    if args.note and not args.output:
        raise UsageError("--note needs a recording: add -o FILE")
    if is_dashboard_chosen(args, unless=_find_conflict(args)):
        return _run_dashboard(args, sink, inked=inked)
    with ExitStack() as stack:
        live, story = attach_watch(args, stack), RunPresenter()
        if args.output:
            kept = stack.enter_context(make_run_recorder(live, args, quiet_stdout=args.json))
        live.start_command(quiet_stdout=args.json)
        try:
            present_run(kept or live, story, sink, print_message)
        except BrokenPipeError:
            if live.end:
                raise
            # The reader is gone, but the command must not suffer.
            return live.wait_for_command()
    if kept:
        kept.show_notes_and_fio(open_stdout().write_lines, as_json=args.json)
    return _choose_exit_status(args, live, story, kept)


def _find_conflict(args: argparse.Namespace) -> str | None:
    """Return a reason against the dashboard, as a sentence, or None."""
    if args.command:
        return "the command after -- uses the terminal; record it with -o FILE, and replay the recording"
    return "COUNT works with lines only" if args.count else None


def _run_dashboard(args: argparse.Namespace, sink: Sink, *, inked: bool) -> int:
    # Imported here because it is slow.
    from opwatch.tools.dashboard.showing import LiveScreen

    story = RunPresenter()
    with ExitStack() as stack:
        screen = stack.enter_context(LiveScreen(is_coloured=inked))
        live = attach_watch(args, stack, OwnerGrouping.CGROUP)
        kept = stack.enter_context(make_run_recorder(live, args)) if args.output else None
        screen.show_run(live, kept, story, sink, args.interval)
    return _choose_exit_status(args, live, story, kept)


def _choose_exit_status(
    args: argparse.Namespace, live: LiveRun, story: RunPresenter, kept: RunRecorder | None
) -> int:
    if live.gone:
        print_message(f"{live.gone} is gone; the summary ends there")
        return 1
    failed = 1 if kept and kept.problem else 0
    if args.strict and story.unexplained:
        print_message("--strict: " + "; ".join(story.unexplained))
        failed = 1
    return live.status or failed


def make_run_recorder(live: LiveRun, args: argparse.Namespace, *, quiet_stdout: bool = False) -> RunRecorder:
    """Return the run with a recorder. If the command is fio, add options for more output."""
    # Imported here because it is slow.
    from opwatch.tools.run_recorder import RunRecorder, create_run_recording, make_recorded_fio

    target = create_run_recording(args)
    command = args.command
    fio = make_recorded_fio(command, as_it_is=args.fio_as_is, quiet_stdout=quiet_stdout)
    if fio:
        fio.print_missing()
        args.command = fio.command
    kept = RunRecorder(live, target, command, fio)
    kept.add_notes(args.note)
    return kept
