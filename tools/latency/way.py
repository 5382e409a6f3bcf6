"""`opwatch counters --latency --for T`: a drive's own latency beside the latency that the host measures."""

from __future__ import annotations

import argparse
import time
from contextlib import closing

from opwatch.collectors.firmware.own_latency import LatencyReader
from opwatch.collectors.firmware.way import WayWatch, ways
from opwatch.errors import UsageError
from opwatch.host.device import BlockDevice, Devices
from opwatch.samples.selection import Selection
from opwatch.sinks.latency.way import way_document, way_lines
from opwatch.sinks.terminal import data
from opwatch.tools.backends import attach
from opwatch.tools.waiting import Waiter


def run_way(disk: BlockDevice, args: argparse.Namespace) -> int:
    """Read the latencies, wait, read them again, and print the difference; return the exit status."""
    leaves = Selection(Devices(), [disk.name]).leaves()
    if len(leaves) > 1:
        paths = ", ".join(leaf.device.name for leaf in leaves)
        raise UsageError(f"{disk.name} has several paths ({paths}): the drive counts all of them as one")
    with (
        closing(LatencyReader(disk)) as reader,
        closing(attach("libbpf", leaves)) as tracer,
        Waiter() as waiter,
    ):
        watch = WayWatch(leaves[0].device.disk, tracer, reader)
        begin, first = time.monotonic(), watch.look()
        waiter.wait(begin + args.seconds)
        last, seconds = watch.look(), time.monotonic() - begin
    directions = ways(first, last)
    if args.json:
        data().json(way_document(reader.drive, seconds, directions), indent=2)
    else:
        data().lines(way_lines(reader.drive, seconds, directions))
    return 0
