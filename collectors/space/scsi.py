"""Asks a SCSI disk, by SG_IO. Whoever asks knows that his command only reads."""

from __future__ import annotations

import ctypes
import fcntl

from opwatch.errors import OpwatchError

_SG_IO, _FROM_DEVICE = 0x2285, -3
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
    """The disk, or the way to it, gave no answer. `is_unknown` says that it does not know the command."""

    def __init__(self, status: int, sense: bytes) -> None:
        self.is_unknown = _sense_key(sense) == _ILLEGAL_REQUEST
        super().__init__(f"the disk refuses the command (status {status:02X}h, sense {sense[:18].hex()})")


def _sense_key(sense: bytes) -> int | None:
    """What kind of failure it is, by sense data of either form."""
    code = sense[0] & 0x7F if len(sense) > 2 else 0
    if code in (0x70, 0x71):
        return sense[2] & 0xF
    return sense[1] & 0xF if code in (0x72, 0x73) else None


def ask_scsi(descriptor: int, command: bytes, length: int) -> bytes:
    """The answer to one command, of at most so many bytes. OSError where this is no SCSI disk, or for want of
    a privilege; ScsiRefusal where the disk refuses."""
    sent = ctypes.create_string_buffer(command, len(command))
    answer, sense = ctypes.create_string_buffer(length), ctypes.create_string_buffer(_SENSE_BYTES)
    header = _Header(
        interface_id=ord("S"),
        dxfer_direction=_FROM_DEVICE,
        cmd_len=len(command),
        mx_sb_len=_SENSE_BYTES,
        dxfer_len=length,
        dxferp=ctypes.addressof(answer),
        cmdp=ctypes.addressof(sent),
        sbp=ctypes.addressof(sense),
        timeout=_TIMEOUT_MS,
    )
    fcntl.ioctl(descriptor, _SG_IO, header)
    if header.status or header.host_status or header.driver_status & 0xF:
        raise ScsiRefusal(header.status, sense.raw[: header.sb_len_wr])
    return answer.raw[: max(length - header.resid, 0)]
