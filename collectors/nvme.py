"""Log pages and Identify of an NVMe drive, through any transport: the kernel, a folder of files, a test."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from opwatch.collectors.pages import controller_evidence, page_evidence
from opwatch.counters import endurance, fdp, identify, ocp, smart_log
from opwatch.counters.catalogue import Catalogue
from opwatch.counters.evidence import Evidence, merge
from opwatch.counters.identify import Controller, Namespace
from opwatch.errors import OpwatchError, PermissionMissing, Unsupported

# Asks for the pages of the OCP specification where several vendors' pages share their numbers.
_OCP_UUID = bytes.fromhex("c194d55be0944794a21d29998f56be6f")
_SOLIDIGM_UUID = bytes.fromhex("9619586ec11b43adaaaa654187f6bbb2")
_ALL = 0xFFFFFFFF
_VENDOR_LENGTH = 512
_STATUS = {
    0x001: "invalid opcode",
    0x002: "invalid field",
    0x006: "internal error",
    0x00B: "invalid namespace",
    0x029: "flexible data placement is disabled",
    0x109: "invalid log page",
}


class Transport(Protocol):
    """Where the bytes come from. Each call is one command; OpwatchError when it fails."""

    def get_log(self, lid: int, length: int, lsi: int = 0, uuid_index: int = 0) -> bytes: ...
    def identify(self, cns: int, nsid: int) -> bytes: ...


def _said(status: int, what: str) -> OpwatchError:
    name = _STATUS.get(status & 0x7FF, "see the NVMe specification")
    return OpwatchError(f"{what}: the drive refused it with status {status & 0x7FF:03X}h ({name})")


class KernelTransport:
    """Commands by ioctl to a controller or namespace node. Only those that read are possible."""

    def __init__(self, node: Path) -> None:
        from opwatch import _native

        self._native = _native
        try:
            self._fd = os.open(node, os.O_RDONLY | os.O_CLOEXEC)
        except PermissionError as error:
            raise PermissionMissing(f"{node} is for root only: log pages need CAP_SYS_ADMIN") from error
        except OSError as error:
            raise OpwatchError(f"{node}: {error.strerror}") from error

    def _done(self, call: Callable[[], tuple[int, bytes]], what: str) -> bytes:
        try:
            status, data = call()
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EPERM):
                raise PermissionMissing(f"{what} needs CAP_SYS_ADMIN") from error
            if error.errno == errno.ENOTTY:
                raise Unsupported(f"{what}: this device takes no NVMe commands") from error
            raise OpwatchError(f"{what}: {os.strerror(error.errno or 0)}") from error
        if status:
            raise _said(status, what)
        return data

    def get_log(self, lid: int, length: int, lsi: int = 0, uuid_index: int = 0) -> bytes:
        def call() -> tuple[int, bytes]:
            found: tuple[int, bytes] = self._native.nvme_get_log(self._fd, lid, length, lsi, uuid_index)
            return found

        return self._done(call, f"log page {lid:02X}h")

    def identify(self, cns: int, nsid: int) -> bytes:
        return self._done(lambda: self._native.nvme_identify(self._fd, cns, nsid), f"Identify {cns:02X}h")

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


_STRUCTURES = {identify.NAMESPACE: "identify-namespace", identify.CONTROLLER: "identify-controller"}


class FolderTransport:
    """A folder with `log-02`, `identify-controller` and so on, as the simulated drive has."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def _read(self, name: str, length: int) -> bytes:
        try:
            # One read is one command: what a page shows is of one moment.
            with (self.folder / name).open("rb", buffering=0) as page:
                return page.read(length) or b""
        except FileNotFoundError as error:
            raise OpwatchError(f"{name}: the drive has no such page") from error
        except PermissionError as error:
            raise PermissionMissing(f"{self.folder / name} is for root only") from error
        except OSError as error:
            raise OpwatchError(f"{name}: {error.strerror}") from error

    def get_log(self, lid: int, length: int, lsi: int = 0, uuid_index: int = 0) -> bytes:
        return self._read(f"log-{lid:02x}", length)

    def identify(self, cns: int, nsid: int) -> bytes:
        if cns not in _STRUCTURES:
            raise OpwatchError(f"Identify {cns:02X}h: the drive does not have it")
        return self._read(_STRUCTURES[cns], identify.LENGTH)


class _Collector:
    """Reads page after page. One that fails costs its own fields only."""

    def __init__(self, transport: Transport, catalogue: Catalogue, nsid: int) -> None:
        self._transport = transport
        self._catalogue = catalogue
        self._nsid = nsid
        self._failures: list[str] = []
        self._denied: PermissionMissing | None = None
        self._evidence = Evidence()

    def _add(self, read: Callable[[], Evidence], *, quietly: bool = False) -> None:
        try:
            self._evidence = merge(self._evidence, read())
        except PermissionMissing as error:
            self._denied = error
        except OpwatchError as error:
            if not quietly:
                self._failures.append(str(error))

    def _log(
        self, lid: int, length: int, lsi: int = 0, uuid_index: int = 0, *, quietly: bool = False
    ) -> None:
        def read() -> Evidence:
            return page_evidence(lid, self._transport.get_log(lid, length, lsi, uuid_index))

        self._add(read, quietly=quietly)

    def _controller(self) -> Controller:
        found = Controller()

        def read() -> Evidence:
            nonlocal found
            raw = self._transport.identify(identify.CONTROLLER, 0)
            found = identify.decode_controller(raw)
            return controller_evidence(raw)

        self._add(read)
        return found

    def _namespace(self) -> Namespace:
        found = Namespace()

        def read() -> Evidence:
            nonlocal found
            found = identify.decode_namespace(self._transport.identify(identify.NAMESPACE, self._nsid))
            return Evidence(namespace=found)

        self._add(read)
        return found

    def _uuid(self, controller: Controller, wanted: bytes) -> int:
        if controller.has_uuid_list:
            with contextlib.suppress(OpwatchError):
                return identify.uuid_index(self._transport.identify(identify.UUID_LIST, 0), wanted)
        return 0

    def collect(self) -> Evidence:
        controller, namespace = self._controller(), self._namespace()
        self._log(smart_log.LID, smart_log.LENGTH)
        # That a drive has no C0h, or another vendor's, is no failure.
        self._log(ocp.LID, ocp.LENGTH, uuid_index=self._uuid(controller, _OCP_UUID), quietly=True)
        group = namespace.endurance_group or 0
        if controller.has_endurance_groups:
            self._log(endurance.LID, endurance.LENGTH, lsi=group or 1)
        if controller.has_placement:
            self._log(fdp.LID, fdp.LENGTH, lsi=group or 1, quietly=True)
        for entry in self._catalogue.matching(self._evidence.drive, "nvme"):
            if entry.lid and not entry.fault:
                index = self._uuid(controller, _SOLIDIGM_UUID) if entry.layout == "kv12" else 0
                self._log(entry.lid, _VENDOR_LENGTH, uuid_index=index)
        if self._denied and not self._evidence.smart:
            raise self._denied
        return replace(self._evidence, failures=(*self._evidence.failures, *self._failures))


def collect_nvme(transport: Transport, catalogue: Catalogue, nsid: int = 1) -> Evidence:
    """All pages that the drive has and the catalogue knows. PermissionMissing when that forbids them all."""
    return _Collector(transport, catalogue, nsid).collect()
