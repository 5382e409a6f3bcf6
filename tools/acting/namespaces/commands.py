"""Admin commands to create, attach, detach and delete an NVMe namespace, and to sanitize a drive.

Sent by ioctl to an open controller. The caller must have checked the owner of the namespace and saved its
description.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os

from opwatch.errors import OpwatchError, PermissionMissing

# linux/nvme_ioctl.h
_ADMIN, _RESCAN = 0xC0484E41, 0x4E46
_MANAGEMENT, _ATTACHMENT, _SANITIZE = 0x0D, 0x15, 0x84
_CREATE, _DELETE = 0, 1
_ATTACH, _DETACH = 0, 1
_LIST_BYTES = 4096
# NSID of all namespaces. A delete with this NSID removes every namespace.
_BROADCAST = 0xFFFFFFFF
# A drive may erase a namespace before it reports the deletion.
_TIMEOUT_MS = 600_000


class CommandFailed(OpwatchError):
    """The drive refused a command. `status` holds the status code type above the low byte."""

    def __init__(self, what: str, status: int) -> None:
        super().__init__(f"{what}: the drive refused it with status {status:03X}h")
        self.status = status


class _AdminCommand(ctypes.Structure):
    """struct nvme_passthru_cmd."""

    _fields_ = (
        ("opcode", ctypes.c_uint8),
        ("flags", ctypes.c_uint8),
        ("rsvd1", ctypes.c_uint16),
        ("nsid", ctypes.c_uint32),
        ("cdw2", ctypes.c_uint32),
        ("cdw3", ctypes.c_uint32),
        ("metadata", ctypes.c_uint64),
        ("addr", ctypes.c_uint64),
        ("metadata_len", ctypes.c_uint32),
        ("data_len", ctypes.c_uint32),
        ("cdw10", ctypes.c_uint32),
        ("cdw11", ctypes.c_uint32),
        ("cdw12", ctypes.c_uint32),
        ("cdw13", ctypes.c_uint32),
        ("cdw14", ctypes.c_uint32),
        ("cdw15", ctypes.c_uint32),
        ("timeout_ms", ctypes.c_uint32),
        ("result", ctypes.c_uint32),
    )


def create_namespace(controller: int, page: bytes) -> int:
    """Return the id of a new namespace, not yet attached to a controller."""
    return _send_command(
        controller, "Create Namespace", _AdminCommand(opcode=_MANAGEMENT, cdw10=_CREATE), page
    )


def delete_namespace(controller: int, nsid: int) -> None:
    command = _AdminCommand(opcode=_MANAGEMENT, nsid=_check_single(nsid), cdw10=_DELETE)
    _send_command(controller, f"Delete Namespace {nsid}", command)


def attach_namespace(controller: int, nsid: int, number: int) -> None:
    """Attach a namespace to the controller with this id."""
    command = _AdminCommand(opcode=_ATTACHMENT, nsid=_check_single(nsid), cdw10=_ATTACH)
    _send_command(controller, f"Attach Namespace {nsid}", command, _make_controller_list(number))


def detach_namespace(controller: int, nsid: int, number: int) -> None:
    command = _AdminCommand(opcode=_ATTACHMENT, nsid=_check_single(nsid), cdw10=_DETACH)
    _send_command(controller, f"Detach Namespace {nsid}", command, _make_controller_list(number))


def sanitize_drive(controller: int, action: int) -> None:
    """Start to sanitize all namespaces of the drive.

    Restricted mode (AUSE is 0): after a failure, only another sanitize ends the failed state. The drive
    deallocates all blocks afterwards (NDAS is 0).
    """
    _send_command(controller, "Sanitize", _AdminCommand(opcode=_SANITIZE, cdw10=action))


def rescan_namespaces(controller: int) -> None:
    """Have the kernel rescan the namespaces."""
    try:
        fcntl.ioctl(controller, _RESCAN)
    except OSError as error:
        raise OpwatchError(f"the kernel cannot rescan the namespaces: {error.strerror}") from error


def _check_single(nsid: int) -> int:
    if not 0 < nsid < _BROADCAST - 1:
        raise OpwatchError(f"{nsid} is not the number of a single namespace")
    return nsid


def _make_controller_list(number: int) -> bytes:
    """Return a controller list with one entry."""
    return (b"\x01\x00" + number.to_bytes(2, "little")).ljust(_LIST_BYTES, b"\0")


def _send_command(controller: int, what: str, command: _AdminCommand, data: bytes = b"") -> int:
    """Send a command and return its result. Raise CommandFailed on refusal by the drive."""
    buffer = ctypes.create_string_buffer(data, len(data)) if data else None
    if buffer:
        command.addr, command.data_len = ctypes.addressof(buffer), len(data)
    command.timeout_ms = _TIMEOUT_MS
    try:
        status = fcntl.ioctl(controller, _ADMIN, command, True)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EPERM):
            raise PermissionMissing(f"{what} needs CAP_SYS_ADMIN") from error
        raise OpwatchError(f"{what}: {os.strerror(error.errno or 0)}") from error
    if status:
        raise CommandFailed(what, status & 0x7FF)
    return int(command.result)
