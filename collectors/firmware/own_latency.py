"""Read a drive's latency pages, from a real or a simulated drive."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Protocol

from opwatch.collectors.firmware.simulated import find_simulated
from opwatch.collectors.firmware.transports import KernelTransport
from opwatch.counters.decode import amazon, identify, monitor, ocp
from opwatch.counters.latency.drive_latency import (
    NO_PAGE,
    DriveLatency,
    LatencyPages,
    select_pages,
    try_decode,
)
from opwatch.counters.reading import DriveFacts
from opwatch.errors import OpwatchError, PermissionMissing, Unsupported
from opwatch.host.device import BlockDevice

# A simulated drive has both pages, regardless of its emulated vendor.
_SIMULATED = LatencyPages(amazon.DETAILED_LENGTH, has_monitor=True)


class _Pages(Protocol):
    """Transport that can also read a page of one namespace."""

    def get_log(self, lid: int, length: int, lsi: int = 0, uuid_index: int = 0) -> bytes: ...
    def get_namespace_log(self, lid: int, length: int, nsid: int) -> bytes: ...
    def identify(self, cns: int, nsid: int) -> bytes: ...


class LatencyReader:
    """Drive whose latency pages are polled.

    Raises Unsupported if there are none. To find out, it reads only Identify and log C0h.
    """

    def __init__(self, disk: BlockDevice) -> None:
        self._close: Callable[[], None] = lambda: None
        self._nsid = 1
        simulated = find_simulated(disk)
        if simulated:
            self._pages: _Pages = simulated
        elif disk.name.startswith("nvme"):
            kernel = KernelTransport(Path("/dev") / disk.name)
            self._close, self._pages = kernel.close, kernel
            self._nsid = disk.read_number("nsid") or int(re.sub(r".*n", "", disk.name))
        else:
            raise Unsupported(f"{disk.name} has {NO_PAGE}: both are NVMe logs")
        try:
            self._identify_drive(disk, is_simulated=simulated is not None)
        except BaseException:
            self._close()
            raise

    def _identify_drive(self, disk: BlockDevice, *, is_simulated: bool) -> None:
        controller = identify.decode_controller(self._pages.identify(identify.CONTROLLER, 0))
        self.drive = DriveFacts(
            name=disk.name,
            protocol="nvme",
            model=controller.model,
            firmware=controller.firmware,
            serial=controller.serial,
            vendor_id=controller.vendor_id,
        )
        self._uuid = self._find_uuid_index(controller)
        self._has = _SIMULATED if is_simulated else select_pages(controller, self._read_cloud_log())
        if self._has.amazon_bytes is None and not self._has.has_monitor:
            raise Unsupported(f"{disk.name} has {NO_PAGE}")

    def _find_uuid_index(self, controller: identify.Controller) -> int:
        with suppress(OpwatchError):
            if controller.has_uuid_list:
                return identify.find_uuid_index(
                    self._pages.identify(identify.UUID_LIST, 0), identify.OCP_UUID
                )
        return 0

    def _read_cloud_log(self) -> bytes | None:
        # A drive without C0h is fine, but missing privileges are an error.
        try:
            return self._pages.get_log(ocp.LID, ocp.LENGTH, uuid_index=self._uuid)
        except PermissionMissing:
            raise
        except OpwatchError:
            return None

    def read_latency(self) -> DriveLatency:
        """Read each page with one command, so each is consistent. Raise OpwatchError if all fail."""
        failures: list[str] = []
        length = self._has.amazon_bytes
        own = try_decode(
            amazon.decode_amazon,
            (lambda: self._pages.get_namespace_log(amazon.LID, length, self._nsid)) if length else None,
            failures,
        )
        slow = try_decode(
            monitor.decode_monitor,
            (lambda: self._pages.get_log(monitor.LID, monitor.LENGTH, 0, self._uuid))
            if self._has.has_monitor
            else None,
            failures,
        )
        drive_latency = DriveLatency(self.drive, own, slow, tuple(failures))
        if not drive_latency.has_pages:
            raise OpwatchError("; ".join(failures))
        return drive_latency

    def close(self) -> None:
        self._close()


def read_latency(disk: BlockDevice) -> DriveLatency:
    """Read a drive's latency pages once."""
    with closing(LatencyReader(disk)) as reader:
        return reader.read_latency()
