"""`opwatch counters --latency --for T`: a drive's own latency beside the latency that the host measures."""

from __future__ import annotations

import argparse
import time
from contextlib import closing

from opwatch.collectors.firmware.own_latency import LatencyReader
from opwatch.collectors.firmware.way import TransportWatch, compare_polls
from opwatch.errors import UsageError
from opwatch.host.device import BlockDevice, Devices
from opwatch.samples.selection import Selection
from opwatch.sinks.latency.path import build_path_document, format_path_latency
from opwatch.sinks.terminal import open_stdout
from opwatch.tools.runs.backends import attach_tracer
from opwatch.tools.runs.waiting import Waiter


def run_path_latency(disk: BlockDevice, args: argparse.Namespace) -> int:
    """Read the latencies, wait, read them again, and print the difference; return the exit status."""
    leaves = Selection(Devices(), [disk.name]).find_leaves()
    if len(leaves) > 1:
        paths = ", ".join(leaf.device.name for leaf in leaves)
        raise UsageError(f"{disk.name} has several paths ({paths}), and the drive counts them together")
    with (
        closing(LatencyReader(disk)) as reader,
        closing(attach_tracer("libbpf", leaves)) as tracer,
        Waiter() as waiter,
    ):
        watch = TransportWatch(leaves[0].device.disk, tracer, reader)
        begin, first = time.monotonic(), watch.poll_drive()
        waiter.wait_until(begin + args.seconds)
        last, seconds = watch.poll_drive(), time.monotonic() - begin
    directions = compare_polls(first, last)
    if args.json:
        open_stdout().write_json(build_path_document(reader.drive, seconds, directions), indent=2)
    else:
        open_stdout().write_lines(format_path_latency(reader.drive, seconds, directions))
    return 0
