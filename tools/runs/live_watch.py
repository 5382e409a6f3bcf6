"""A live watch, as several commands make it: its options, and the run that they request."""

from __future__ import annotations

import argparse
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
from opwatch.samples.sample import MAX_DISKS
from opwatch.samples.selection import Selection
from opwatch.sinks.terminal import print_message
from opwatch.tools.arguments import Options, count_between, parse_file_name, time_between
from opwatch.tools.runs.backends import BACKENDS, Attribution, attach_tracer
from opwatch.tools.runs.waiting import LiveRun, Waiter
from opwatch.tools.runs.watching import DiskWatcher
from opwatch.trace.tracer_set import TracerSet
from opwatch.trace.unavailable import OWNERS, list_unavailable

if TYPE_CHECKING:
    from opwatch.tools.runs.run_recorder import RunRecorder


_WAF_S = 5.0
# A controller reset or a firmware update takes less time than this.
_RETURN_S = 60.0
_NO_DISK = "no disk to watch: no device in /sys/block has a medium; opwatch devices lists the devices"


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
        help="also measure how long requests wait before they are issued: in io.max, for admission, in the "
        "queue",
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


def add_recording_argument(parser: argparse.ArgumentParser) -> None:
    """Add the output file."""
    parser.add_argument(
        "-o",
        "--output",
        required=True,
        type=parse_file_name,
        metavar="FILE",
        help="the new recording; opwatch replay FILE shows it",
    )


def add_every_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--every",
        dest="interval",
        type=time_between(0.01, 86400),
        default=1.0,
        metavar="T",
        help="time between samples (1s)",
    )


def add_unseen_watch_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of a watch that is not shown."""
    add_measuring_arguments(parser)
    parser.add_argument("-q", "--quiet", action="store_true", help="print errors only")
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="print which programs are attached, and how"
    )
    add_tracing_arguments(parser)


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


def make_run_recorder(live: LiveRun, args: argparse.Namespace, *, quiet_stdout: bool = False) -> RunRecorder:
    """Return the run with a recorder. If the command is fio, add options for more output."""
    # Imported here because it is slow.
    from opwatch.tools.runs.run_recorder import RunRecorder, create_run_recording, make_recorded_fio

    target = create_run_recording(args)
    command = args.command
    fio = make_recorded_fio(command, as_it_is=args.fio_as_is, quiet_stdout=quiet_stdout)
    if fio:
        fio.print_missing()
        args.command = fio.command
    kept = RunRecorder(live, target, command, fio)
    kept.add_notes(args.note)
    return kept
