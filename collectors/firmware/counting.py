"""The counters of one drive and of the kernel, read together, again and again."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from opwatch.collectors.firmware.nvme import collect_nvme
from opwatch.collectors.firmware.simulated import find_simulated
from opwatch.collectors.firmware.transports import KernelTransport, Transport
from opwatch.counters.catalogue.families import Catalogue
from opwatch.counters.evidence import Evidence
from opwatch.counters.prove.report import report
from opwatch.counters.reading import CounterReading, DriveFacts, Report
from opwatch.errors import OpwatchError, Unsupported
from opwatch.host.details import read_identity
from opwatch.host.device import SECTOR, BlockDevice, Devices

if TYPE_CHECKING:
    from opwatch.waf.trail import Poll

_WRITE_SECTORS = 6
_SHUTDOWNS = ("unsafe_shutdowns", "incomplete_shutdowns")
_NAMESPACE = re.compile(r"(nvme\d+)n\d+")


class IdentifyOnce:
    """A transport that asks for each Identify structure once: what is read from them does not change."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._known: dict[tuple[int, int], bytes] = {}

    def get_log(self, lid: int, length: int, lsi: int = 0, uuid_index: int = 0) -> bytes:
        return self._transport.get_log(lid, length, lsi, uuid_index)

    def identify(self, cns: int, nsid: int) -> bytes:
        if (cns, nsid) not in self._known:
            self._known[cns, nsid] = self._transport.identify(cns, nsid)
        return self._known[cns, nsid]


def namespaces(devices: Devices, disk: BlockDevice) -> list[BlockDevice]:
    """All disks that share the drive's NAND, as far as this kernel shows them: the namespaces of a drive."""
    name = _NAMESPACE.fullmatch(disk.name)
    if not name:
        return [disk]
    return [disk for disk in devices.disks() if re.fullmatch(rf"{name[1]}n\d+", disk.name)]


def _writes_in_flight(disk: BlockDevice) -> int:
    fields = (disk.attribute("inflight") or "").split()
    return int(fields[1]) if len(fields) > 1 else 0


def _no_firmware(disk: BlockDevice) -> str | None:
    """Why there is no drive to ask, None when there may be one."""
    device = disk.sysfs / "device"
    if not device.exists():
        return f"{disk.name} ({disk.kind()}) is no drive: it has no firmware, and no counters of its own"
    bus = (device / "subsystem").resolve().name
    if bus in ("virtio", "xen"):
        return f"{disk.name} is a virtual disk ({bus}): the counters are those of a drive of its host"
    return None


def _refuse(error: OpwatchError) -> Callable[[], Evidence]:
    """A source that has nothing to give, for this reason."""

    def collect() -> Evidence:
        raise error

    return collect


class Counting:
    """One drive, whose counters are read by poll(). `denied` is why its own are not read, None when they
    are; `reads_pages`, whether they come from log pages and not from smartctl."""

    def __init__(self, devices: Devices, disk: BlockDevice, catalogue: Catalogue) -> None:
        self.disk = disk
        self.denied: OpwatchError | None = None
        self.reads_pages = True
        self._catalogue = catalogue
        # The head of NVMe paths keeps no statistics on older kernels; the paths always do.
        self._disks = {
            namespace.name: devices.paths(namespace) or [namespace] for namespace in namespaces(devices, disk)
        }
        told = read_identity(devices, disk)
        self._drive = DriveFacts(
            name=disk.name,
            model=told.model,
            firmware=told.firmware,
            serial=told.serial,
            capacity_bytes=disk.size_bytes or None,
            lba_bytes=disk.number("queue/logical_block_size"),
            protocol="nvme" if disk.name.startswith("nvme") else None,
        )
        self._close: Callable[[], None] = lambda: None
        self._collect = self._source()
        self.latest: Report | None = None

    def _source(self) -> Callable[[], Evidence]:
        """How this drive is read."""
        disk = self.disk
        beside = find_simulated(disk)
        if beside:
            folder = IdentifyOnce(beside)
            return lambda: collect_nvme(folder, self._catalogue)
        node = Path("/dev") / disk.name
        if not disk.name.startswith("nvme"):
            if why := _no_firmware(disk):
                return _refuse(Unsupported(why))
            # What only other drives need is not imported for this one: it would be half of the time it takes.
            from opwatch.collectors.firmware.smart import collect_smart

            self.reads_pages = False
            return lambda: collect_smart(node)
        try:
            transport = KernelTransport(node)
        except OpwatchError as error:
            return _refuse(error)
        self._close = transport.close
        nsid = disk.number("nsid") or int(re.sub(r".*n", "", disk.name))
        once = IdentifyOnce(transport)
        return lambda: collect_nvme(once, self._catalogue, nsid)

    def read(self) -> Report:
        """All counters now. What fails is in the report's failures."""
        try:
            evidence = self._collect()
            self.denied = None
        except (OpwatchError, ImportError) as error:
            failed = error if isinstance(error, OpwatchError) else OpwatchError(f"no extension: {error}")
            evidence, self.denied = Evidence(failures=(str(failed),)), failed
        if evidence.asleep:
            self.denied = OpwatchError(f"{self.disk.name} is asleep and was left so")
            evidence = replace(evidence, failures=(*evidence.failures, str(self.denied)))
        told = {name: getattr(evidence.drive, name) for name in DriveFacts.__slots__}
        known = {name: value for name, value in told.items() if value is not None}
        self.latest = report(replace(evidence, drive=replace(self._drive, **known)), self._catalogue)
        return self.latest

    def written(self) -> dict[str, int]:
        """Bytes that the kernel wrote since boot, by disk. A disk that does not tell is left out."""
        found = {}
        for name, disks in self._disks.items():
            if any(disk.number("queue/iostats") == 0 for disk in disks):
                continue  # it stands still, whatever is written
            fields = [(disk.attribute("stat") or "").split() for disk in disks]
            if all(len(field) > _WRITE_SECTORS for field in fields):
                found[name] = sum(int(field[_WRITE_SECTORS]) for field in fields) * SECTOR
        return found

    def _sum(self, parts: dict[str, int]) -> int | None:
        return sum(parts.values()) if len(parts) == len(self._disks) else None

    def _flying(self) -> int:
        """At most what writes under way carry."""
        return sum(
            _writes_in_flight(disk) * (disk.number("queue/max_sectors_kb") or 0) * 1024
            for disks in self._disks.values()
            for disk in disks
        )

    def poll(self) -> Poll:
        """One look at everything: the kernel's count, the drive's, the kernel's again."""
        begin_ns = time.monotonic_ns()
        before = self.written()
        found = self.read()
        flying = self._flying()
        after = self.written()
        return poll_of(
            found=found,
            begin_ns=begin_ns,
            end_ns=time.monotonic_ns(),
            before=self._sum(before),
            after=self._sum(after),
            flying=flying,
            parts=after,
        )

    def close(self) -> None:
        self._close()


def poll_of(
    found: Report,
    begin_ns: int,
    end_ns: int,
    before: int | None,
    after: int | None,
    flying: int = 0,
    parts: dict[str, int] | None = None,
) -> Poll:
    """What a poll keeps of a report."""
    from opwatch.waf.trail import Poll

    def side(name: str) -> tuple[CounterReading, ...]:
        return (found.readings[name], *found.others.get(name, []))

    shutdowns = {name: found.readings[name].value for name in _SHUTDOWNS if name in found.readings}
    return Poll(
        begin_ns=begin_ns,
        end_ns=end_ns,
        before=before,
        after=after,
        flying=flying,
        host=side("host_written"),
        nand=side("nand_written"),
        shutdowns={name: count for name, count in shutdowns.items() if count is not None},
        parts=parts or {},
    )
