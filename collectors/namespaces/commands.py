"""The admin commands that make, attach, detach and delete an NVMe namespace, and the one that sanitizes all
of a drive, by ioctl on an open controller.
Whoever sends one has looked before whose the namespace is, and has written down what it was.
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
# Of all namespaces: to delete this one is to delete them all.
_BROADCAST = 0xFFFFFFFF
# A drive may erase what it deletes before it answers.
_TIMEOUT_MS = 600_000


class CommandFailed(OpwatchError):
    """The drive has refused a command; `status` has its type above the lower byte."""

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
    """The number of a new namespace, which no controller has yet."""
    return _send(controller, "Create Namespace", _AdminCommand(opcode=_MANAGEMENT, cdw10=_CREATE), page)


def delete_namespace(controller: int, nsid: int) -> None:
    command = _AdminCommand(opcode=_MANAGEMENT, nsid=_single(nsid), cdw10=_DELETE)
    _send(controller, f"Delete Namespace {nsid}", command)


def attach_namespace(controller: int, nsid: int, number: int) -> None:
    """Give a namespace to the controller of this number."""
    command = _AdminCommand(opcode=_ATTACHMENT, nsid=_single(nsid), cdw10=_ATTACH)
    _send(controller, f"Attach Namespace {nsid}", command, _controllers(number))


def detach_namespace(controller: int, nsid: int, number: int) -> None:
    command = _AdminCommand(opcode=_ATTACHMENT, nsid=_single(nsid), cdw10=_DETACH)
    _send(controller, f"Detach Namespace {nsid}", command, _controllers(number))


def sanitize_drive(controller: int, action: int) -> None:
    """Begin to sanitize all namespaces of the drive, which ends at some time. It is restricted (AUSE is 0):
    should it fail, nothing but another one ends that; and all is deallocated behind it (NDAS is 0)."""
    _send(controller, "Sanitize", _AdminCommand(opcode=_SANITIZE, cdw10=action))


def rescan(controller: int) -> None:
    """Have the kernel look which namespaces there are by now."""
    try:
        fcntl.ioctl(controller, _RESCAN)
    except OSError as error:
        raise OpwatchError(f"the kernel does not look for namespaces again: {error.strerror}") from error


def _single(nsid: int) -> int:
    if not 0 < nsid < _BROADCAST - 1:
        raise OpwatchError(f"{nsid} is no number of a single namespace")
    return nsid


def _controllers(number: int) -> bytes:
    """A controller list of one."""
    return (b"\x01\x00" + number.to_bytes(2, "little")).ljust(_LIST_BYTES, b"\0")


def _send(controller: int, what: str, command: _AdminCommand, data: bytes = b"") -> int:
    """Send it and return what it answers; CommandFailed where the drive refuses it."""
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
