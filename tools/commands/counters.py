"""`opwatch counters`: every firmware counter of a drive in bytes, with the proof of the unit, or the reason
why the value is missing."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TextIO

from opwatch.collectors.firmware.counting import CounterPoller, read_smartctl_output
from opwatch.counters.catalogue.families import Catalogue, load_catalogue
from opwatch.counters.evidence import Evidence
from opwatch.counters.looks.smartctl import parse_output
from opwatch.counters.prove.health import compute_rated_pace
from opwatch.counters.prove.report import make_report
from opwatch.counters.reading import CounterReading, Proof, Report
from opwatch.counters.reports.numbers import parse_fixed_point
from opwatch.errors import OpwatchError, UsageError
from opwatch.host.device import SECTOR, Devices
from opwatch.sinks.counters import build_counters_document, format_counters
from opwatch.sinks.terminal import Writer, open_stdout
from opwatch.tools.arguments import add_catalogue_argument, time_between

# An exabyte, more than any drive's rating.
_MAX_RATED_GB = 10**9
_KIND = re.compile(r"(?:sat\+|scsi\+)?[a-z0-9]{2,12}(?:,[0-9]{1,4}(?:/[0-9]{1,3})?){0,3}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "opwatch counters (--dev D... [--type T] | --from FILE...) [--counters FILE] [--tbw TB] [--json]\n"
        "       opwatch counters --latency (--dev D [--for T] | --from FILE...) [--json]"
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--dev",
        metavar="D",
        action="append",
        help="read this drive (a name, node or link); may be given several times",
    )
    source.add_argument(
        "--from",
        dest="files",
        metavar="FILE",
        type=Path,
        nargs="+",
        help="read other tools' output for one drive: smartctl --json or -x, nvme-cli JSON, log pages, or a "
        "folder of these (- is standard input); two reports, the older first, add write amplification, pace "
        "and a prediction; or read a recording with polls of one drive",
    )
    parser.add_argument(
        "--type",
        dest="kind",
        metavar="T",
        type=_parse_drive_kind,
        help="read a drive behind the RAID controller of --dev: a type of smartctl -d, e.g. megaraid,3",
    )
    add_catalogue_argument(parser)
    _add_forms(parser)


def _add_forms(parser: argparse.ArgumentParser) -> None:
    """Add the options for the kind of report and its format."""
    parser.add_argument(
        "--tbw",
        metavar="TB",
        type=parse_rated_bytes,
        help="the drive's rating in terabytes written: show the used share and, from two reports or a "
        "recording, when the rest is used",
    )
    parser.add_argument(
        "--latency",
        action="store_true",
        help="show the drive's own latency statistics instead: log D0h of Amazon's volumes, C3h of OCP",
    )
    parser.add_argument(
        "--for",
        dest="seconds",
        metavar="T",
        type=time_between(0.1, 86400.0),
        help="with --latency: measure for this time, also from the host, and show the path between both",
    )
    parser.add_argument("--json", action="store_true", help='print one JSON document, "schema":"opwatch/1"')


def _parse_drive_kind(text: str) -> str:
    """Parse smartctl's -d argument: a type, and the drive's address."""
    if not _KIND.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a type of smartctl -d, e.g. megaraid,3")
    return text


def read_behind_controller(devices: Devices, name: str, kind: str, catalogue: Catalogue) -> Report:
    """Return the report of a drive behind a controller. The kernel has no counters for such a drive."""
    disk = devices.resolve(name).disk
    output = read_smartctl_output(Path("/dev") / disk.name, kind)
    evidence = parse_output(output.status, output.text)
    return make_report(
        replace(evidence, drive=replace(evidence.drive, name=f"{disk.name} {kind}")), catalogue
    )


def parse_rated_bytes(text: str) -> int:
    """Parse terabytes (10^12 bytes), the unit of drive ratings, into bytes."""
    value = parse_fixed_point(text, 3)
    if not value or value > _MAX_RATED_GB:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of terabytes above 0, e.g. 600 or 1.2")
    return value * 10**9


def add_rating_pace(drive_report: Report, rated: int) -> Report:
    """Return the report with an additional pace: host writes as a share of the drive's rating."""
    readings = drive_report.readings
    pace = compute_rated_pace(readings["host_written"], readings["power_on_hours"], rated)
    return replace(drive_report, paces=(*drive_report.paces, pace)) if pace else drive_report


def read_kernel_written(counting: CounterPoller) -> CounterReading | None:
    """Return the bytes that the kernel sent to the disk since boot, or None if sysfs lacks the disk."""
    name = counting.disk.name
    written = counting.read_written().get(name)
    if written is None:
        return None
    return CounterReading(written, "bytes", SECTOR, f"/sys/block/{name}/stat, since boot", Proof.SPEC)


def read_device(devices: Devices, name: str, catalogue: Catalogue) -> tuple[Report, OpwatchError | None]:
    """Return the report, and the error that prevented reading the drive's own counters. Sysfs is read in any
    case."""
    with closing(CounterPoller(devices, devices.resolve(name).disk, catalogue)) as counting:
        drive_report = counting.read_report()
        witness = read_kernel_written(counting)
        with_kernel = (
            replace(drive_report, readings={**drive_report.readings, "kernel_written": witness})
            if witness
            else drive_report
        )
        return with_kernel, counting.denied


def show_report(drive_report: Report, age_s: float | None, args: argparse.Namespace, stream: TextIO) -> None:
    """Write the report in the requested format."""
    if args.tbw and drive_report.interval is None:
        drive_report = add_rating_pace(drive_report, args.tbw)
    if args.json:
        # A single document is indented; several have one line each.
        several = args.dev and len(args.dev) > 1
        Writer(stream).write_json(build_counters_document(drive_report, age_s), indent=None if several else 2)
        return
    Writer(stream).write_lines(format_counters(drive_report))


def _drop_failure(drive_report: Report, failed: OpwatchError | None) -> Report:
    """Return the report without the failure that ends the command, which is printed separately."""
    return replace(
        drive_report, failures=tuple(failure for failure in drive_report.failures if failure != str(failed))
    )


def _build_poll_report(polls: Sequence[Evidence], catalogue: Catalogue, rated: int | None) -> Report:
    """Return the report of a poll; with two polls, of the later poll with the changes since the earlier."""
    reports = [make_report(poll, catalogue) for poll in polls]
    if len(polls) == 1:
        return reports[0]
    # Imported here because only two polls need it.
    from opwatch.counters.prove.two_polls import make_interval_report

    return make_interval_report((polls[0], polls[1]), (reports[0], reports[1]), rated)


def _run_files(args: argparse.Namespace, catalogue: Catalogue) -> int:
    """Show the output of other tools, or a recording."""
    # Imported here because it brings the readers of six formats, which only --from needs.
    from opwatch.collectors.firmware.recorded import read_polls
    from opwatch.collectors.firmware.recorded_polls import is_recording, make_recorded_report

    if not any(is_recording(path) for path in args.files):
        show_report(_build_poll_report(read_polls(args.files), catalogue, args.tbw), None, args, sys.stdout)
        return 0
    if len(args.files) > 1:
        raise UsageError("give a recording alone: it has everything about its drive")
    show_report(make_recorded_report(args.files[0], catalogue, args.tbw), None, args, sys.stdout)
    return 0


def run(args: argparse.Namespace) -> int:
    if args.latency:
        # Imported here because only --latency needs it.
        from opwatch.tools.latency.command import run_latency

        return run_latency(args)
    if args.seconds:
        raise UsageError("--for works only with --latency")
    for path in args.counters:
        if not path.is_file():
            raise UsageError(f"{path}: no such file")
    catalogue = load_catalogue(args.counters)
    if args.files and args.kind:
        raise UsageError("--type works only with --dev: a file of smartctl is about one drive already")
    if args.files:
        return _run_files(args, catalogue)
    devices, first = Devices(), None
    if args.kind:
        if len(args.dev) > 1:
            raise UsageError(
                "--type works with one --dev only: each drive behind a controller has its own number"
            )
        show_report(read_behind_controller(devices, args.dev[0], args.kind, catalogue), 0.0, args, sys.stdout)
        return 0
    # Resolve all names before any read, so that a wrong name does not wake a drive.
    for name in args.dev:
        devices.resolve(name)
    for number, name in enumerate(args.dev):
        if number and not args.json:
            open_stdout().write_line()
        drive_report, failed = read_device(devices, name, catalogue)
        show_report(
            drive_report if args.json or first else _drop_failure(drive_report, failed), 0.0, args, sys.stdout
        )
        first = first or failed
    if first:
        raise first
    return 0
