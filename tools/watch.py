"""`opwatch [--dev D]... [INTERVAL [COUNT]] [-- CMD...]`: trace and show, interval by interval."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from contextlib import closing

from opwatch.clock import read_anchor
from opwatch.collectors.live import LiveWaf, drives_of
from opwatch.collectors.live_discards import LiveDiscards, offers_discards
from opwatch.derive import derive
from opwatch.device import BlockDevice, Devices, Leaf, Presence
from opwatch.errors import OpwatchError, UsageError
from opwatch.observation import Observation, Sink
from opwatch.sinks.jsonl import JsonLines
from opwatch.sinks.lines import Lines
from opwatch.tools.backends import BACKENDS, attach
from opwatch.tools.waiting import End, Waiter
from opwatch.tracing import Tracer
from opwatch.trust import Reading, trust

_WAF_S = 5.0


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no number; a device goes behind --dev") from None
    if not 0.01 <= value <= 86400:
        raise argparse.ArgumentTypeError("must be between 0.01 and 86400 seconds")
    return value


def _look(text: str) -> float:
    return 0.0 if text.strip() in ("0", "0s") else _positive(text)


def _count(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number") from None
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "opwatch [--dev D]... [options] [INTERVAL [COUNT]] [-- CMD...]"
    parser.add_argument(
        "--dev",
        action="append",
        metavar="D",
        help="a disk, partition, dm or md "
        "device, by name, node or link; several times for several. Default: all disks",
    )
    parser.add_argument(
        "interval",
        nargs="?",
        type=_positive,
        default=1.0,
        metavar="INTERVAL",
        help="seconds between lines (1)",
    )
    parser.add_argument("count", nargs="?", type=_count, metavar="COUNT", help="stop after so many intervals")
    parser.add_argument(
        "--queue",
        action="store_true",
        help="time in the queue before issue, beside the time in the device",
    )
    parser.add_argument(
        "--discards",
        action=argparse.BooleanOptionalAction,
        help="who discards how much, how it is split, what lies in whole granules, and what waits behind it "
        "(for disks that --dev names and that take discards)",
    )
    parser.add_argument(
        "--waf",
        type=_look,
        metavar="T",
        help="seconds between two looks at firmware counters, 0 for none (5 for NVMe drives that --dev "
        "names, none for others)",
    )
    parser.add_argument("--json", action="store_true", help='JSON lines, "schema":"opwatch/1"')
    parser.add_argument("--plain", action="store_true", help="lines of at most 80 columns (the default)")
    parser.add_argument("-q", "--quiet", action="store_true", help="only the summary")
    parser.add_argument("-v", "--verbose", action="store_true", help="say which hooks are attached")
    _add_tracing_arguments(parser)


def _add_tracing_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--strict",
        action="store_true",
        help="exit with 1 when the trust line leaves anything unexplained",
    )
    parser.add_argument(
        "--backend",
        choices=BACKENDS,
        default="libbpf",
        help="what traces: our BPF object (libbpf), the same compiled here for kernels without BTF (bcc), "
        "or a bpftrace script; docs/backends.md tells them apart",
    )
    parser.add_argument(
        "--hooks",
        choices=("auto", "raw_tp"),
        default="auto",
        help="attach typed programs (auto) or always their raw_tp twins",
    )


def choose_leaves(devices: Devices, names: Sequence[str] | None) -> tuple[list[Leaf], list[str]]:
    """What to trace for the names given, and what to tell the user about it."""
    if not names:
        disks = [d for d in devices.disks() if d.is_request_based and d.size_bytes]
        visible = [d for d in disks if not d.is_hidden]
        heads = [d for d in devices.disks() if not d.is_request_based and d.size_bytes]
        paths = [leaf for head in heads if head.name.startswith("nvme") for leaf in devices.leaves(head)]
        leaves = [Leaf(disk, disk) for disk in visible] + paths
        if not leaves:
            raise UsageError("there is no disk to watch; opwatch devices lists what there is")
        return leaves, []
    leaves, notes = [], []
    for name in names:
        device = devices.resolve(name)
        found = devices.leaves(device)
        if not device.size_bytes:
            raise UsageError(f"{device.name} has no medium (its size is 0)")
        leaves += [leaf for leaf in found if leaf.device not in [x.device for x in leaves]]
        notes += _notes(device, found)
    return leaves, notes


def _notes(device: BlockDevice, leaves: list[Leaf]) -> list[str]:
    """What is not obvious about where a device's I/O is counted."""
    names = ", ".join(leaf.device.name for leaf in leaves)
    if names != device.name:
        return [
            f"{device.name} is {device.kind()}: its I/O is traced on {names}, each on its own rows. "
            "Other users of these disks are counted too."
        ]
    if device.is_partition:
        first, last = device.sectors
        return [
            f"{device.name}: only sectors {first} to {last} of {device.disk.name} are counted; flushes "
            "belong to the whole disk and are not."
        ]
    if not device.is_request_based:
        return [f"{device.name}: its driver has no requests; traced bio by bio, from submission to end."]
    return []


class _Run:
    """One watching: from the baseline to the summary."""

    def __init__(self, tracer: Tracer, sink: Sink, live: LiveWaf, discards: LiveDiscards) -> None:
        self._tracer = tracer
        self._sink = sink
        self._live = live
        self._discards = discards
        self._presences = [Presence(leaf.device) for leaf in tracer.leaves]
        # Before the first reading: what ends between the two was in flight at the attachment as well.
        self._in_flight = [_in_flight(leaf.device) for leaf in tracer.leaves]
        self._flush_queues = [len(leaf.device.hardware_queues) for leaf in tracer.leaves]
        self._levels = [
            f"{'requests' if leaf.device.disk.is_request_based else 'bios'} by {tracer.hooks}"
            for leaf in tracer.leaves
        ]
        self._first = tracer.read_settled(0.05)
        self._last = self._first
        self._first_misses = self._last_misses = tracer.misses()

    def vanished(self) -> str | None:
        """The first disk that is no longer there, or is another one under the same name."""
        for leaf, presence in zip(self._tracer.leaves, self._presences, strict=True):
            if not presence.holds():
                return leaf.device.name
        return None

    def interval(self) -> None:
        now, misses = self._tracer.read(), self._tracer.misses()
        self._write(self._last, now, _grown(self._last_misses, misses), final=False)
        self._last, self._last_misses = now, misses

    def close(self) -> None:
        self._live.stop()
        self._discards.close()
        for presence in self._presences:
            presence.close()

    def summary(self, *, with_rest: bool) -> list[str]:
        """Write it; returns what stayed unexplained. `with_rest`: first what came after the last interval, if
        anything did, so that the intervals add up to the summary."""
        now, misses = self._tracer.read_settled(), self._tracer.misses()
        pairs = zip(self._last, now, strict=True)
        if with_rest and any(derive(then.sample, rest.sample).ops for then, rest in pairs):
            self._write(self._last, now, _grown(self._last_misses, misses), final=False)
        seen = self._write(self._first, now, _grown(self._first_misses, misses), final=True)
        return [line for observation in seen for line in observation.unexplained]

    def _write(
        self, begin: list[Reading], end: list[Reading], misses: int | None, *, final: bool
    ) -> list[Observation]:
        written = []
        # Read anew each time: the wall clock may be set, or the machine may sleep, in between.
        anchor = read_anchor()
        self._discards.look()
        leaves = zip(self._tracer.leaves, self._levels, self._in_flight, self._flush_queues, strict=True)
        for (leaf, level, in_flight, queues), then, now in zip(leaves, begin, end, strict=True):
            seen = Observation(
                leaf.device.name,
                leaf.origin.name,
                level,
                anchor.wall(now.sample.end_ns),
                final,
                derive(then.sample, now.sample),
                trust(then, now, misses),
                in_flight,
                queues,
                self._tracer.backend,
                tuple(self._tracer.lacks),
                self._live.get(leaf.device.name),
                self._discards.get(leaf.device.name, final=final),
            )
            self._sink.write(seen)
            written.append(seen)
        return written


def _grown(then: int | None, now: int | None) -> int | None:
    return None if then is None or now is None else now - then


def _in_flight(device: BlockDevice) -> int:
    """Requests in flight now, by the kernel's count."""
    return sum(int(field) for field in (device.disk.attribute("inflight") or "").split())


def _watch(run: _Run, waiter: Waiter, args: argparse.Namespace) -> End:
    """Interval after interval, until something ends it."""
    due = time.monotonic() + args.interval
    done = 0
    while True:
        end = waiter.wait(due)
        if end is not End.TICK:
            return end
        if run.vanished():
            return End.VANISHED
        done += 1
        if not args.count or done <= args.count:
            run.interval()
        # On the grid of the start; what was missed while we were stopped is in this interval.
        due += args.interval * max(1, 1 + (time.monotonic() - due) // args.interval)
        if args.count and done >= args.count and not args.command:
            return End.COUNT


def live_waf(devices: Devices, leaves: Sequence[Leaf], args: argparse.Namespace) -> LiveWaf:
    """The reader of firmware counters: by default of the drives named, if they have log pages."""
    wanted = args.waf != 0 and (args.dev or args.waf is not None)
    drives = drives_of(devices, leaves, all_kinds=args.waf is not None) if wanted else {}
    return LiveWaf(devices, drives, args.waf or _WAF_S)


def live_discards(leaves: Sequence[Leaf], args: argparse.Namespace) -> LiveDiscards:
    """The tracer of discards: by default of the disks named, and then not worth failing for."""
    if args.discards is not None:
        return LiveDiscards(leaves, wanted=args.discards)
    wanted = bool(args.dev) and args.backend == "libbpf" and offers_discards(leaves)
    try:
        return LiveDiscards(leaves, wanted=wanted)
    except OpwatchError as error:
        print(f"opwatch: who discards is not known: {error}", file=sys.stderr)
        return LiveDiscards(leaves, wanted=False)


def run(args: argparse.Namespace) -> int:
    devices = Devices()
    leaves, notes = choose_leaves(devices, args.dev)
    sink: Sink = JsonLines(sys.stdout, quiet=args.quiet) if args.json else Lines(sys.stdout, quiet=args.quiet)
    tracer = attach(args.backend, leaves, queue_time=args.queue, raw_tp=args.hooks == "raw_tp")
    try:
        notes += [f"{tracer.backend} cannot tell {what}" for what in tracer.lacks]
        if args.verbose:
            notes.append(f"attached by {tracer.hooks}: " + ", ".join(p[0] for p in tracer.programs()))
        for note in notes:
            print(f"opwatch: {note}", file=sys.stderr)
        live = live_waf(devices, leaves, args)
        discards = live_discards(leaves, args)
        with Waiter() as waiter, closing(_Run(tracer, sink, live, discards)) as watching:
            live.start()
            waiter.start(args.command, quiet_stdout=args.json)
            try:
                end = _watch(watching, waiter, args)
            except BrokenPipeError:
                # Nobody reads us any more; the command is not to suffer for it.
                return waiter.finish(stop=False)
            gone = watching.vanished()
            status = waiter.finish(stop=end in (End.SIGNAL, End.VANISHED))
            unexplained = watching.summary(with_rest=not args.count)
    finally:
        tracer.close()
    if gone:
        print(f"opwatch: {gone} has gone; the summary ends there", file=sys.stderr)
        return 1
    if args.strict and unexplained:
        print("opwatch: --strict: " + "; ".join(unexplained), file=sys.stderr)
        return status or 1
    return status
