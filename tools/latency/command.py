"""`opwatch counters --latency`: the latency that a drive measured itself."""

from __future__ import annotations

import argparse

from opwatch.collectors.firmware.own_latency import read_latency
from opwatch.collectors.firmware.recorded import read_recorded
from opwatch.counters.latency.looked import DriveLatency, latency_of
from opwatch.errors import UsageError
from opwatch.host.device import Devices
from opwatch.sinks.latency.own import document, lines
from opwatch.sinks.terminal import data
from opwatch.tools.latency.way import run_way


def run_latency(args: argparse.Namespace) -> int:
    if args.kind or args.tbw or args.counters:
        raise UsageError("--latency goes with --dev, --from and --json: counters of bytes have the others")
    if args.files:
        if args.seconds:
            raise UsageError("--for is for a drive that is read now, not for files")
        _show(latency_of(read_recorded(args.files)), args)
        return 0
    if len(args.dev) > 1:
        raise UsageError("--latency is for one --dev at a time")
    disk = Devices().resolve(args.dev[0]).disk
    if args.seconds:
        return run_way(disk, args)
    _show(read_latency(disk), args)
    return 0


def _show(drive_latency: DriveLatency, args: argparse.Namespace) -> None:
    if args.json:
        data().json(document(drive_latency), indent=2)
    else:
        data().lines(lines(drive_latency))
