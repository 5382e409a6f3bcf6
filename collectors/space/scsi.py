"""Send commands to a SCSI disk by SG_IO. The caller is responsible for the command's effects."""

from __future__ import annotations

import ctypes
import fcntl
from dataclasses import dataclass

from opwatch.errors import OpwatchError

_SG_IO, _NO_DATA, _TO_DEVICE, _FROM_DEVICE = 0x2285, -1, -2, -3
_SENSE_BYTES, _TIMEOUT_MS = 64, 5000
_ILLEGAL_REQUEST = 5


class _Header(ctypes.Structure):
    """struct sg_io_hdr."""

    _fields_ = (
        ("interface_id", ctypes.c_int),
        ("dxfer_direction", ctypes.c_int),
        ("cmd_len", ctypes.c_ubyte),
        ("mx_sb_len", ctypes.c_ubyte),
        ("iovec_count", ctypes.c_ushort),
        ("dxfer_len", ctypes.c_uint),
        ("dxferp", ctypes.c_void_p),
        ("cmdp", ctypes.c_void_p),
        ("sbp", ctypes.c_void_p),
        ("timeout", ctypes.c_uint),
        ("flags", ctypes.c_uint),
        ("pack_id", ctypes.c_int),
        ("usr_ptr", ctypes.c_void_p),
        ("status", ctypes.c_ubyte),
        ("masked_status", ctypes.c_ubyte),
        ("msg_status", ctypes.c_ubyte),
        ("sb_len_wr", ctypes.c_ubyte),
        ("host_status", ctypes.c_ushort),
        ("driver_status", ctypes.c_ushort),
        ("resid", ctypes.c_int),
        ("duration", ctypes.c_uint),
        ("info", ctypes.c_uint),
    )


class ScsiRefusal(OpwatchError):
    """The disk or the path to it returned an error. `is_unknown`: the disk does not know the command."""

    def __init__(self, status: int, sense: bytes) -> None:
        self.is_unknown = _decode_sense_key(sense) == _ILLEGAL_REQUEST
        super().__init__(f"the disk rejects the command (status {status:02X}h, sense {sense[:18].hex()})")


def _decode_sense_key(sense: bytes) -> int | None:
    """Return the sense key, from fixed or descriptor format."""
    code = sense[0] & 0x7F if len(sense) > 2 else 0
    if code in (0x70, 0x71):
        return sense[2] & 0xF
    return sense[1] & 0xF if code in (0x72, 0x73) else None


@dataclass(frozen=True, slots=True)
class ScsiAnswer:
    """Answer of a command, successful (`is_good`) or not."""

    is_good: bool
    status: int
    data: bytes
    sense: bytes


def send_scsi(
    descriptor: int, command: bytes, length: int = 0, timeout_ms: int = _TIMEOUT_MS, data: bytes = b""
) -> ScsiAnswer:
    """Send one command and return the answer of at most `length` bytes, or send `data` to the disk.

    Raises OSError if not a SCSI disk or without privileges.
    """
    sent = ctypes.create_string_buffer(command, len(command))
    answer, sense = ctypes.create_string_buffer(max(length, 1)), ctypes.create_string_buffer(_SENSE_BYTES)
    if data:
        length, answer = len(data), ctypes.create_string_buffer(data, len(data))
    direction = _TO_DEVICE if data else _FROM_DEVICE
    header = _Header(
        interface_id=ord("S"),
        dxfer_direction=direction if length else _NO_DATA,
        cmd_len=len(command),
        mx_sb_len=_SENSE_BYTES,
        dxfer_len=length,
        dxferp=ctypes.addressof(answer) if length else None,
        cmdp=ctypes.addressof(sent),
        sbp=ctypes.addressof(sense),
        timeout=timeout_ms,
    )
    fcntl.ioctl(descriptor, _SG_IO, header)
    is_good = not (header.status or header.host_status or header.driver_status & 0xF)
    read = b"" if data or not length else answer.raw[: max(length - header.resid, 0)]
    return ScsiAnswer(is_good, header.status, read, sense.raw[: header.sb_len_wr])


def ask_scsi(descriptor: int, command: bytes, length: int) -> bytes:
    """Send a read-only command and return the answer of at most `length` bytes.

    Raises OSError if not a SCSI disk or without privileges, ScsiRefusal if the disk refuses.
    """
    answer = send_scsi(descriptor, command, length)
    if not answer.is_good:
        raise ScsiRefusal(answer.status, answer.sense)
    return answer.data
