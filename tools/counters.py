"""`opwatch counters`: every firmware counter of a drive in bytes, with its unit's proof, or why not."""

from __future__ import annotations

import argparse
import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import TextIO

from opwatch.collectors.nvme import KernelTransport, collect_nvme
from opwatch.collectors.recorded import read_recorded
from opwatch.collectors.simulated import find_simulated
from opwatch.collectors.smart import collect_smart
from opwatch.counters.catalogue import Catalogue, load_catalogue
from opwatch.counters.evidence import Evidence
from opwatch.counters.reading import Drive, Proof, Reading, Report
from opwatch.counters.report import report
from opwatch.details import read_identity
from opwatch.device import SECTOR, BlockDevice, Devices
from opwatch.errors import OpwatchError, UsageError
from opwatch.sinks.counters import document, lines
from opwatch.sinks.devices import encodable

_WRITE_SECTORS = 6


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "opwatch counters (--dev D | --from FILE...) [--counters FILE] [--json]"
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--dev", metavar="D", help="read this drive: a name, a node or a link")
    source.add_argument(
        "--from",
        dest="files",
        metavar="FILE",
        type=Path,
        nargs="+",
        help="read what tools wrote of one drive: smartctl --json or -x, nvme-cli JSON, log pages, or a "
        "folder of these; - is standard input",
    )
    parser.add_argument(
        "--counters",
        metavar="FILE",
        type=Path,
        action="append",
        default=[],
        help="entries of your own for the catalogue (TOML), before those of /etc/opwatch/counters.d",
    )
    parser.add_argument("--json", action="store_true", help='one document, "schema":"opwatch/1"')


def _identity(devices: Devices, device: BlockDevice) -> Drive:
    told = read_identity(devices, device)
    return Drive(
        name=device.name,
        model=told.model,
        firmware=told.firmware,
        serial=told.serial,
        capacity_bytes=device.size_bytes or None,
        lba_bytes=device.number("queue/logical_block_size"),
        protocol="nvme" if device.name.startswith("nvme") else None,
    )


def _collect(device: BlockDevice, catalogue: Catalogue) -> Evidence:
    beside = find_simulated(device)
    if beside:
        return collect_nvme(beside, catalogue)
    node = Path("/dev") / device.name
    if not device.name.startswith("nvme"):
        return collect_smart(node)
    transport = KernelTransport(node)
    try:
        nsid = device.number("nsid") or int(re.sub(r".*n", "", device.name))
        return collect_nvme(transport, catalogue, nsid)
    finally:
        transport.close()


def _sectors_written(device: BlockDevice) -> int | None:
    fields = (device.attribute("stat") or "").split()
    return int(fields[_WRITE_SECTORS]) if len(fields) > _WRITE_SECTORS else None


def kernel_written(devices: Devices, device: BlockDevice) -> Reading | None:
    """What the kernel sent to the disk since it appeared; None when sysfs does not tell."""
    # The head of NVMe paths keeps no statistics on older kernels; the paths always do.
    disks = devices.paths(device) or [device]
    sectors = [_sectors_written(disk) for disk in disks]
    known = [each for each in sectors if each is not None]
    if len(known) != len(sectors):
        return None
    source = " + ".join(f"/sys/block/{disk.name}/stat" for disk in disks)
    return Reading(sum(known) * SECTOR, "bytes", SECTOR, f"{source}, since boot", Proof.SPEC)


def read_device(devices: Devices, name: str, catalogue: Catalogue) -> tuple[Report, OpwatchError | None]:
    """The report, and the error that kept the drive's own counters from it. Sysfs is read in any case."""
    device = devices.resolve(name).disk
    told = _identity(devices, device)
    failed: OpwatchError | None = None
    try:
        evidence = _collect(device, catalogue)
    except OpwatchError as error:
        evidence, failed = Evidence(failures=(str(error),)), error
    except ImportError as error:
        failed = OpwatchError(f"the extension is not built: {error}")
        evidence = Evidence(failures=(str(failed),))
    if evidence.asleep:
        failed = OpwatchError(f"{device.name} is asleep and was left so")
        evidence = replace(evidence, failures=(*evidence.failures, str(failed)))
    drive = evidence.drive
    missing = {
        name: getattr(told, name)
        for name in ("name", "model", "firmware", "serial", "capacity_bytes", "lba_bytes", "protocol")
        if getattr(drive, name) is None
    }
    found = report(replace(evidence, drive=replace(drive, **missing)), catalogue)
    witness = kernel_written(devices, device)
    return (
        replace(found, readings={**found.readings, "kernel_written": witness}) if witness else found
    ), failed


def show(found: Report, age_s: float | None, args: argparse.Namespace, stream: TextIO) -> None:
    """Write the report as it was asked for."""
    if args.json:
        print(json.dumps(document(found, age_s), indent=2), file=stream)
        return
    for line in lines(found):
        print(encodable(line, stream.encoding or "utf-8"), file=stream)


def run(args: argparse.Namespace) -> int:
    for path in args.counters:
        if not path.is_file():
            raise UsageError(f"{path}: there is no such file")
    catalogue = load_catalogue(args.counters)
    if args.files:
        show(report(read_recorded(args.files), catalogue), None, args, sys.stdout)
        return 0
    found, failed = read_device(Devices(), args.dev, catalogue)
    show(found, 0.0, args, sys.stdout)
    if failed:
        raise failed
    return 0
