"""Poll the counters of one drive and of the kernel together."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from opwatch.collectors.firmware.simulated import find_simulated
from opwatch.collectors.firmware.transports import KernelTransport
from opwatch.counters.catalogue.families import Catalogue
from opwatch.counters.decode import amazon
from opwatch.counters.latency.drive_latency import AMAZON_VENDOR
from opwatch.counters.looks.nvme import collect_nvme
from opwatch.counters.looks.reading import PollReport, make_poll_report
from opwatch.counters.looks.sample import (
    DriveAnswer,
    FirmwareSample,
    Refusal,
    SmartctlOutput,
    make_refusal,
)
from opwatch.counters.looks.transport import CachedIdentify, RecordingTransport, Transport
from opwatch.counters.reading import DriveFacts, Report
from opwatch.errors import OpwatchError, PermissionMissing, Unsupported
from opwatch.host.details import read_identity
from opwatch.host.device import SECTOR, BlockDevice, Devices

if TYPE_CHECKING:
    from opwatch.waf.trail import Poll


_READ_SECTORS, _WRITE_SECTORS = 2, 6
# Interval between polls of an idle drive, or of one with log pages.
POLL_S, _SMARTCTL_POLL_S = 1.0, 10.0
# Maximum delay until the kernel counts a completed write.
_COUNTED_S = 0.002
_NAMESPACE = re.compile(r"(nvme\d+)n\d+")


def find_namespaces(devices: Devices, disk: BlockDevice) -> list[BlockDevice]:
    """Return the disks that share the drive's NAND: all visible namespaces of the drive."""
    name = _NAMESPACE.fullmatch(disk.name)
    if not name:
        return [disk]
    return [disk for disk in devices.iter_disks() if re.fullmatch(rf"{name[1]}n\d+", disk.name)]


def find_counting_devices(devices: Devices, disk: BlockDevice) -> tuple[str, ...]:
    """Return the devices that count the host's writes.

    With another path or another drive under the same name, the counts restart.
    """
    registered = devices.list_inodes()
    paths = [
        path
        for namespace in find_namespaces(devices, disk)
        for path in devices.list_paths(namespace) or [namespace]
    ]
    return tuple(
        f"{path.name} {registered.get(path.name)} {path.read_attribute('diskseq')}" for path in paths
    )


def _count_writes_in_flight(disk: BlockDevice) -> int:
    fields = (disk.read_attribute("inflight") or "").split()
    return int(fields[1]) if len(fields) > 1 else 0


def _no_firmware(disk: BlockDevice) -> str | None:
    """Return the reason why no drive can be queried, or None if one may exist."""
    device = disk.sysfs / "device"
    if not device.exists():
        return f"{disk.name} ({disk.read_kind()}) is not a drive: it has no firmware and no counters"
    bus = (device / "subsystem").resolve().name
    if bus in ("virtio", "xen"):
        return f"{disk.name} is a virtual disk ({bus}): only its host can read the drive's counters"
    return None


def read_smartctl_output(node: Path, kind: str | None = None) -> SmartctlOutput:
    """Return smartctl's output for a drive, with its device type if behind a controller."""
    # Imported only for such drives, because the import doubles the startup time of others.
    from opwatch.collectors.firmware.smart import ask_smartctl

    return ask_smartctl(node, kind)


class PageReader(Transport, Protocol):
    """The log pages and Identify structures of one drive, from construction to close()."""

    def close(self) -> None: ...


class _VolumePages(CachedIdentify):
    """Pages of a drive, including log D0h of one namespace."""

    def __init__(self, pages: PageReader, nsid: int) -> None:
        super().__init__(pages)
        self._pages, self._nsid = pages, nsid

    def get_log(self, lid: int, length: int, lsi: int = 0, uuid_index: int = 0) -> bytes:
        if lid == amazon.LID and isinstance(self._pages, KernelTransport):
            return self._pages.get_namespace_log(lid, length, self._nsid)
        return super().get_log(lid, length, lsi, uuid_index)


class DriveAccess(Protocol):
    """How a drive's own counters are read. Calls block for as long as the drive does.

    They raise OpwatchError on failure, and TimeoutError if the access itself gave up waiting.
    """

    def open_pages(self, disk: BlockDevice) -> PageReader:
        """Return a reader of an NVMe namespace. Raise PermissionMissing or Unsupported."""

    def read_smartctl(self, disk: BlockDevice) -> SmartctlOutput:
        """Return a report in smartctl's format of another drive, without waking it."""


class OwnAccess:
    """Reads drives by the node in /dev, with the privileges of this process."""

    def open_pages(self, disk: BlockDevice) -> PageReader:
        return KernelTransport(Path("/dev") / disk.name)

    def read_smartctl(self, disk: BlockDevice) -> SmartctlOutput:
        return read_smartctl_output(Path("/dev") / disk.name)


class CounterPoller:
    """One drive whose counters are polled.

    `denied` is the reason why the last poll could not read the drive's own counters, or None. `reads_pages`:
    the counters come from log pages instead of smartctl. `counted_on` names the devices that count the host's
    writes.
    """

    def __init__(
        self, devices: Devices, disk: BlockDevice, catalogue: Catalogue, access: DriveAccess | None = None
    ) -> None:
        """`access` reads the drive, by default this process itself."""
        self.disk = disk
        self._access: DriveAccess = access or OwnAccess()
        self.denied: OpwatchError | None = None
        self.reads_pages = True
        self.counted_on = find_counting_devices(devices, disk)
        self._catalogue = catalogue
        # On older kernels the NVMe multipath head has no statistics, but its paths always do.
        self._disks = {
            namespace.name: devices.list_paths(namespace) or [namespace]
            for namespace in find_namespaces(devices, disk)
        }
        identity = read_identity(devices, disk)
        self._drive = DriveFacts(
            name=disk.name,
            model=identity.model,
            firmware=identity.firmware,
            serial=identity.serial,
            capacity_bytes=disk.size_bytes or None,
            lba_bytes=disk.read_number("queue/logical_block_size"),
            protocol="nvme" if disk.name.startswith("nvme") else None,
        )
        self._close: Callable[[], None] = lambda: None
        self._nsid = 1
        self._transport: CachedIdentify | None = None
        self._is_simulated = False
        self._last: RecordingTransport | None = None
        # The reason why the drive cannot be queried, if known in advance.
        self._refused: OpwatchError | None = None
        try:
            self._find_source()
        except OpwatchError as error:
            self._refused = error
        self.latest: Report | None = None

    def _find_source(self) -> None:
        """Choose the source for this drive's counters."""
        disk = self.disk
        beside = find_simulated(disk)
        if beside:
            self._transport, self._is_simulated = CachedIdentify(beside), True
            return
        if not disk.name.startswith("nvme"):
            if why := _no_firmware(disk):
                raise Unsupported(why)
            self.reads_pages = False
            return
        transport = self._access.open_pages(disk)
        self._close = transport.close
        self._nsid = disk.read_number("nsid") or int(re.sub(r".*n", "", disk.name))
        self._transport = _VolumePages(transport, self._nsid)

    @property
    def busy_poll_s(self) -> float:
        """Return the poll interval under load. smartctl's commands stall a SATA drive's queue."""
        return POLL_S if self.reads_pages else _SMARTCTL_POLL_S

    def read_report(self) -> Report:
        """Return all current counters. The report lists failures."""
        return self.derive_poll_report(self.read_sample()).report

    def read_written(self) -> dict[str, int]:
        """Return the bytes written since boot by the kernel's count, for disks with statistics."""
        return self._read_bytes(_WRITE_SECTORS)

    def sum_read_bytes(self) -> int | None:
        """Return the bytes read from the drive since boot by the kernel's count, or None if unknown."""
        return self._sum_disks(self._read_bytes(_READ_SECTORS))

    def _read_bytes(self, sectors_field: int) -> dict[str, int]:
        moved = {}
        for name, disks in self._disks.items():
            if any(disk.read_number("queue/iostats") == 0 for disk in disks):
                continue  # Does not advance with iostats off
            fields = [(disk.read_attribute("stat") or "").split() for disk in disks]
            if all(len(field) > sectors_field for field in fields):
                moved[name] = sum(int(field[sectors_field]) for field in fields) * SECTOR
        return moved

    def _sum_disks(self, parts: dict[str, int]) -> int | None:
        return sum(parts.values()) if len(parts) == len(self._disks) else None

    def _bound_in_flight_bytes(self) -> int:
        """Return the maximum number of bytes in in-flight writes."""
        return sum(
            _count_writes_in_flight(disk) * (disk.read_number("queue/max_sectors_kb") or 0) * 1024
            for disks in self._disks.values()
            for disk in disks
        )

    def read_sample(self) -> FirmwareSample:
        """Read the kernel's counters, the drive's, and the kernel's again, without evaluation."""
        begin_ns = time.monotonic_ns()
        before = self.read_written()
        answers, smartctl, refused = self._read_drive()
        flying = self._bound_in_flight_bytes()
        # A completed write leaves the in-flight count shortly before the kernel counts the bytes, and after
        # the drive has counted them.
        time.sleep(_COUNTED_S)
        after = self.read_written()
        return FirmwareSample(
            disk=self.disk.name,
            drive=self._drive,
            begin_ns=begin_ns,
            end_ns=time.monotonic_ns(),
            before=self._sum_disks(before),
            after=self._sum_disks(after),
            flying=flying,
            parts=after,
            counted_on=self.counted_on,
            nsid=self._nsid,
            answers=answers,
            smartctl=smartctl,
            refused=refused,
        )

    def _read_drive(self) -> tuple[tuple[DriveAnswer, ...], SmartctlOutput | None, Refusal | None]:
        """Return the drive's answers, or smartctl's output, or the reason why there is neither."""
        try:
            if self._refused:
                raise self._refused
            if self._transport:
                return self._ask_pages(self._transport), None, None
            return (), self._access.read_smartctl(self.disk), None
        except OpwatchError as error:
            return (), None, make_refusal(error)
        except ImportError as error:
            return (), None, make_refusal(OpwatchError(f"the native extension cannot be loaded: {error}"))

    def _ask_pages(self, transport: CachedIdentify) -> tuple[DriveAnswer, ...]:
        """Request all pages. The list of pages is determined once, because it depends on Identify alone."""
        if self._last and self._last.is_complete:
            self._last = self._last.repeat_commands()
        else:
            self._last = RecordingTransport(transport)
            # The answers also show that access was denied.
            with contextlib.suppress(PermissionMissing):
                found = collect_nvme(self._last, self._catalogue, self._nsid)
                self._ask_drive_times(self._last, found.drive.vendor_id)
        return self._last.recorded_answers

    def _ask_drive_times(self, pages: RecordingTransport, vendor_id: int | None) -> None:
        """Keep the drive's own latency too, if it has that page. The page belongs to one namespace."""
        if self._is_simulated or vendor_id == AMAZON_VENDOR:
            with contextlib.suppress(OpwatchError):
                pages.get_log(amazon.LID, amazon.LENGTH)

    def derive_poll_report(self, sample: FirmwareSample) -> PollReport:
        """Return all counters of a poll of this drive."""
        derived = make_poll_report(sample, self._catalogue)
        self.latest, self.denied = derived.report, derived.denied
        return derived

    def poll_counters(self, keep: Callable[[FirmwareSample], None] = lambda _: None) -> Poll:
        """Poll and return the result in the form of a trail. `keep` receives the raw sample."""
        # Imported only for trails, because it pulls in the interval code.
        from opwatch.waf.polls import make_poll_from_sample

        sample = self.read_sample()
        keep(sample)
        return make_poll_from_sample(sample, self.derive_poll_report(sample).report)

    def close(self) -> None:
        self._close()
