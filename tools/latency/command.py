"""`opwatch counters --latency`: the latency that a drive measured itself."""

from __future__ import annotations

import argparse

from opwatch.collectors.firmware.own_latency import read_latency
from opwatch.collectors.firmware.recorded import read_recorded
from opwatch.counters.latency.drive_latency import DriveLatency, decode_latency
from opwatch.errors import UsageError
from opwatch.host.device import Devices
from opwatch.sinks.latency.drive_log import build_latency_document, format_drive_latency
from opwatch.sinks.terminal import open_stdout
from opwatch.tools.latency.path import run_path_latency


def run_latency(args: argparse.Namespace) -> int:
    if args.kind or args.tbw or args.counters:
        raise UsageError("--latency works with --dev, --from, --for and --json only")
    if args.files:
        if args.seconds:
            raise UsageError("--for needs --dev: files cannot be traced")
        _show_latency(decode_latency(read_recorded(args.files)), args)
        return 0
    if len(args.dev) > 1:
        raise UsageError("--latency takes one --dev at a time")
    disk = Devices().resolve(args.dev[0]).disk
    if args.seconds:
        return run_path_latency(disk, args)
    _show_latency(read_latency(disk), args)
    return 0


def _show_latency(drive_latency: DriveLatency, args: argparse.Namespace) -> None:
    if args.json:
        open_stdout().write_json(build_latency_document(drive_latency), indent=2)
    else:
        open_stdout().write_lines(format_drive_latency(drive_latency))
