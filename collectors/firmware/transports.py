"""Read structures of an NVMe drive from the kernel or from a folder of files, as raw bytes."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from opwatch.counters.decode import identify
from opwatch.errors import OpwatchError, PermissionMissing, Unsupported

if TYPE_CHECKING:
    from opwatch.counters.looks.transport import Transport


_OCP_LID, _LENGTH = 0xC0, 512  # As in counters/ocp.py, and for all known vendor pages
_STATUS = {
    0x001: "invalid opcode",
    0x002: "invalid field",
    0x006: "internal error",
    0x00B: "invalid namespace",
    0x029: "flexible data placement is disabled",
    0x109: "invalid log page",
}


def make_status_error(status: int, what: str) -> OpwatchError:
    """Return an error for the NVMe status of the command `what`."""
    name = _STATUS.get(status & 0x7FF, "see the NVMe specification")
    return OpwatchError(f"{what}: the drive refused it with status {status & 0x7FF:03X}h ({name})")


def make_command_error(error: OSError, what: str) -> OpwatchError:
    """Return an error that says why the command `what` was not sent."""
    if error.errno in (errno.EACCES, errno.EPERM):
        return PermissionMissing(f"{what} needs CAP_SYS_ADMIN")
    if error.errno == errno.ENOTTY:
        return Unsupported(f"{what}: this device accepts no NVMe commands")
    return OpwatchError(f"{what}: {os.strerror(error.errno or 0)}")


class KernelTransport:
    """Sends read-only commands by ioctl to a controller or namespace.

    Takes ownership of an open descriptor, or opens a node.
    """

    def __init__(self, node: Path | int) -> None:
        # Imported late, because decoding pages works without the extension.
        from opwatch import _native

        self._native = _native
        try:
            self._fd = node if isinstance(node, int) else os.open(node, os.O_RDONLY | os.O_CLOEXEC)
        except PermissionError as error:
            raise PermissionMissing(f"only root can open {node}: log pages need CAP_SYS_ADMIN") from error
        except OSError as error:
            raise OpwatchError(f"{node}: {error.strerror}") from error

    def _run_command(self, call: Callable[[], tuple[int, bytes]], what: str) -> bytes:
        try:
            status, data = call()
        except OSError as error:
            raise make_command_error(error, what) from error
        if status:
            raise make_status_error(status, what)
        return data

    def get_log(self, lid: int, length: int, lsi: int = 0, uuid_index: int = 0) -> bytes:
        def request_log() -> tuple[int, bytes]:
            answer: tuple[int, bytes] = self._native.nvme_get_log(self._fd, lid, length, lsi, uuid_index)
            return answer

        return self._run_command(request_log, f"log page {lid:02X}h")

    def get_namespace_log(self, lid: int, length: int, nsid: int) -> bytes:
        """Read a page of one namespace. Allowed only for D0h, which Amazon provides per volume."""
        return self._run_command(
            lambda: self._native.nvme_get_log(self._fd, lid, length, 0, 0, nsid), f"log page {lid:02X}h"
        )

    def identify(self, cns: int, nsid: int) -> bytes:
        return self._run_command(
            lambda: self._native.nvme_identify(self._fd, cns, nsid), f"Identify {cns:02X}h"
        )

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


_STRUCTURES = {identify.NAMESPACE: "identify-namespace", identify.CONTROLLER: "identify-controller"}


class FolderTransport:
    """Folder with files `log-02`, `identify-controller` etc., as a simulated drive has.

    `asked` passes a request to the folder's server, which may not answer.
    """

    def __init__(
        self, folder: Path, asked: Callable[[Callable[[], bytes]], bytes] = lambda question: question()
    ) -> None:
        self.folder, self._asked = folder, asked

    def _read_page(self, name: str, length: int) -> bytes:
        def read_page() -> bytes:
            # One read is one command, so the page is consistent.
            with (self.folder / name).open("rb", buffering=0) as page:
                return page.read(length) or b""

        try:
            return self._asked(read_page)
        except FileNotFoundError as error:
            raise OpwatchError(f"{name}: the drive has no such page") from error
        except PermissionError as error:
            raise PermissionMissing(f"only root can read {self.folder / name}") from error
        except OSError as error:
            raise OpwatchError(f"{name}: {error.strerror}") from error

    def get_log(self, lid: int, length: int, lsi: int = 0, uuid_index: int = 0) -> bytes:
        return self._read_page(f"log-{lid:02x}", length)

    def get_namespace_log(self, lid: int, length: int, nsid: int) -> bytes:
        """Read the page; a simulated drive has only one namespace."""
        return self.get_log(lid, length)

    def identify(self, cns: int, nsid: int) -> bytes:
        if cns not in _STRUCTURES:
            raise OpwatchError(f"Identify {cns:02X}h: the drive does not support it")
        return self._read_page(_STRUCTURES[cns], identify.LENGTH)


class Snapshot:
    """Pages read at construction and decoded later. Other pages are reported as not read.

    `choose` names the vendor pages of this controller.
    """

    def __init__(
        self, transport: Transport, nsid: int, choose: Callable[[identify.Controller], Iterable[int]]
    ) -> None:
        self._transport = transport
        self._kept: dict[tuple[str, int], bytes] = {}
        self._read_identify(identify.NAMESPACE, nsid)
        raw = self._read_identify(identify.CONTROLLER, 0)
        controller = identify.decode_controller(raw) if raw else identify.Controller()
        uuids = self._read_identify(identify.UUID_LIST, 0) if controller.has_uuid_list else None
        self._read_log(_OCP_LID, identify.find_uuid_index(uuids, identify.OCP_UUID) if uuids else 0)
        for lid in choose(controller):
            self._read_log(lid, 0)

    def _read_identify(self, cns: int, nsid: int) -> bytes | None:
        with contextlib.suppress(OpwatchError):
            self._kept["Identify", cns] = self._transport.identify(cns, nsid)
        return self._kept.get(("Identify", cns))

    def _read_log(self, lid: int, uuid_index: int) -> None:
        with contextlib.suppress(OpwatchError):
            self._kept["log page", lid] = self._transport.get_log(lid, _LENGTH, 0, uuid_index)

    def _get_page(self, kind: str, number: int) -> bytes:
        try:
            return self._kept[kind, number]
        except KeyError as error:
            raise OpwatchError(f"{kind} {number:02X}h was not read") from error

    def get_log(self, lid: int, length: int, lsi: int = 0, uuid_index: int = 0) -> bytes:
        return self._get_page("log page", lid)[:length]

    def identify(self, cns: int, nsid: int) -> bytes:
        return self._get_page("Identify", cns)
