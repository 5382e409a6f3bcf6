"""Drives' pages and reports, read by the broker."""

from __future__ import annotations

import errno
from contextlib import closing

from opwatch.collectors.broker.connection import BrokerConnection, BrokerError
from opwatch.collectors.broker.protocol import Reply, RequestKind, pack_drive
from opwatch.collectors.firmware.transports import make_command_error, make_status_error
from opwatch.counters.looks.sample import SmartctlOutput
from opwatch.errors import OpwatchError, PermissionMissing, Unsupported
from opwatch.host.device import BlockDevice

# Longer than the broker's own limits, after which it answers ETIMEDOUT.
_COMMAND_S, _REPORT_S = 20.0, 75.0


class BrokerDrives:
    """Reads drives by the broker at `path`. Each command has its own connection, so that no drive waits for
    another."""

    def __init__(self, path: str) -> None:
        self._path = path

    def open_pages(self, disk: BlockDevice) -> BrokerPages:
        return BrokerPages(self._path, disk.dev)

    def read_smartctl(self, disk: BlockDevice) -> SmartctlOutput:
        try:
            reply = _ask_broker(self._path, RequestKind.RUN_SMARTCTL, pack_drive(disk.dev), _REPORT_S)
        except BrokerError as error:
            raise _make_report_error(disk, error) from error
        return SmartctlOutput(reply.status, reply.data)


def _make_report_error(disk: BlockDevice, error: BrokerError) -> OpwatchError:
    if error.errno == errno.ENOENT:
        return Unsupported("smartctl is not installed; opwatch doctor names its package")
    if error.errno in (errno.EACCES, errno.EPERM):
        return PermissionMissing(f"{disk.name}: opwatch-broker may not read it; it needs CAP_SYS_RAWIO")
    if error.errno == errno.ENOTTY:
        return Unsupported(f"{disk.name} is neither a SATA nor a SAS drive: smartctl cannot read it")
    return OpwatchError(f"{disk.name}: smartctl by opwatch-broker: {error.strerror}")


def _ask_broker(path: str, kind: RequestKind, arguments: bytes, timeout_s: float) -> Reply:
    """Return the reply. Raise TimeoutError if the drive does not answer, or has not answered before."""
    with closing(BrokerConnection(path, timeout_s)) as connection:
        try:
            return connection.call(kind, arguments)
        except BrokerError as error:
            if error.errno == errno.EBUSY:
                raise TimeoutError(
                    errno.EBUSY, "the drive has not answered an earlier command yet"
                ) from error
            if error.errno == errno.ETIMEDOUT:
                raise TimeoutError(errno.ETIMEDOUT, "the drive does not answer") from error
            raise


class BrokerPages:
    """The pages of one NVMe namespace; has the interface of KernelTransport. Holds nothing open."""

    def __init__(self, path: str, dev: tuple[int, int]) -> None:
        self._path, self._dev = path, dev

    def _send(self, kind: RequestKind, arguments: bytes, what: str) -> bytes:
        try:
            reply = _ask_broker(self._path, kind, arguments, _COMMAND_S)
        except BrokerError as error:
            raise make_command_error(error, f"{what} by opwatch-broker") from error
        if reply.status:
            raise make_status_error(reply.status, what)
        return reply.data

    def get_log(self, lid: int, length: int, lsi: int = 0, uuid_index: int = 0) -> bytes:
        arguments = pack_drive(self._dev, lid, length, lsi=lsi, uuid_index=uuid_index)
        return self._send(RequestKind.GET_LOG, arguments, f"log page {lid:02X}h")

    def get_namespace_log(self, lid: int, length: int, nsid: int) -> bytes:
        """Read a page of one namespace. Allowed only for D0h, which Amazon provides per volume."""
        arguments = pack_drive(self._dev, lid, length, nsid=nsid)
        return self._send(RequestKind.GET_LOG, arguments, f"log page {lid:02X}h")

    def identify(self, cns: int, nsid: int) -> bytes:
        arguments = pack_drive(self._dev, cns, nsid=nsid)
        return self._send(RequestKind.IDENTIFY, arguments, f"Identify {cns:02X}h")

    def close(self) -> None:
        """Do nothing, because each command opens its own connection."""
