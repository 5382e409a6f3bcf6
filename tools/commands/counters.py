"""`opwatch counters`: every firmware counter of a drive in bytes, with its unit's proof, or why not."""

from __future__ import annotations

import argparse
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TextIO

from opwatch.collectors.firmware.counting import Counting
from opwatch.counters.catalogue.families import Catalogue, load_catalogue
from opwatch.counters.prove.report import report
from opwatch.counters.reading import CounterReading, Proof, Report
from opwatch.errors import OpwatchError, UsageError
from opwatch.host.device import SECTOR, Devices
from opwatch.sinks.counters import document, lines
from opwatch.sinks.terminal import Writer, data


def add_catalogue_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--counters",
        metavar="FILE",
        type=Path,
        action="append",
        default=[],
        help="entries of your own for the catalogue (TOML), before those of /etc/opwatch/counters.d",
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "opwatch counters (--dev D... | --from FILE...) [--counters FILE] [--json]"
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--dev",
        metavar="D",
        action="append",
        help="read this drive: a name, a node or a link; several times for several",
    )
    source.add_argument(
        "--from",
        dest="files",
        metavar="FILE",
        type=Path,
        nargs="+",
        help="read what tools wrote of one drive: smartctl --json or -x, nvme-cli JSON, log pages, or a "
        "folder of these; - is standard input",
    )
    add_catalogue_argument(parser)
    parser.add_argument("--json", action="store_true", help='one document, "schema":"opwatch/1"')


def kernel_written(counting: Counting) -> CounterReading | None:
    """What the kernel sent to the disk since it appeared; None when sysfs does not tell."""
    name = counting.disk.name
    written = counting.written().get(name)
    if written is None:
        return None
    return CounterReading(written, "bytes", SECTOR, f"/sys/block/{name}/stat, since boot", Proof.SPEC)


def read_device(devices: Devices, name: str, catalogue: Catalogue) -> tuple[Report, OpwatchError | None]:
    """The report, and the error that kept the drive's own counters from it. Sysfs is read in any case."""
    with closing(Counting(devices, devices.resolve(name).disk, catalogue)) as counting:
        drive_report = counting.read()
        witness = kernel_written(counting)
        with_kernel = (
            replace(drive_report, readings={**drive_report.readings, "kernel_written": witness})
            if witness
            else drive_report
        )
        return with_kernel, counting.denied


def show(drive_report: Report, age_s: float | None, args: argparse.Namespace, stream: TextIO) -> None:
    """Write the report as it was asked for."""
    if args.json:
        # One document for people to read, or one on each line.
        several = args.dev and len(args.dev) > 1
        Writer(stream).json(document(drive_report, age_s), indent=None if several else 2)
        return
    Writer(stream).lines(lines(drive_report))


def _without(drive_report: Report, failed: OpwatchError | None) -> Report:
    """The report without the failure that ends the command: it is said then."""
    return replace(
        drive_report, failures=tuple(failure for failure in drive_report.failures if failure != str(failed))
    )


def run(args: argparse.Namespace) -> int:
    for path in args.counters:
        if not path.is_file():
            raise UsageError(f"{path}: there is no such file")
    catalogue = load_catalogue(args.counters)
    if args.files:
        # For --from alone: it brings the readers of six forms.
        from opwatch.collectors.firmware.recorded import read_recorded

        show(report(read_recorded(args.files), catalogue), None, args, sys.stdout)
        return 0
    devices, first = Devices(), None
    # All are looked for before any is read: a name that is wrong is no reason to wake a drive.
    for name in args.dev:
        devices.resolve(name)
    for number, name in enumerate(args.dev):
        if number and not args.json:
            data().line()
        drive_report, failed = read_device(devices, name, catalogue)
        show(drive_report if args.json or first else _without(drive_report, failed), 0.0, args, sys.stdout)
        first = first or failed
    if first:
        raise first
    return 0
