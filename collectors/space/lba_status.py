"""A SCSI disk's own map of what it holds, by GET LBA STATUS."""

from __future__ import annotations

import ctypes
import fcntl
import os
import time

from opwatch.collectors.space.raw_disk import open_device
from opwatch.errors import BadInput
from opwatch.host.device import BlockDevice
from opwatch.trim.space import lba_status
from opwatch.trim.space.extents import Extents

_SG_IO, _FROM_DEVICE = 0x2285, -3
_ANSWER_BYTES = 64 << 10


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


def _ask(descriptor: int, first_block: int) -> bytes:
    """The answer to one command. OSError where this is no SCSI disk; BadInput where it refuses."""
    command = ctypes.create_string_buffer(lba_status.command(first_block, _ANSWER_BYTES), 16)
    answer = ctypes.create_string_buffer(_ANSWER_BYTES)
    sense = ctypes.create_string_buffer(64)
    header = _Header(
        interface_id=ord("S"),
        dxfer_direction=_FROM_DEVICE,
        cmd_len=16,
        mx_sb_len=64,
        dxfer_len=_ANSWER_BYTES,
        dxferp=ctypes.addressof(answer),
        cmdp=ctypes.addressof(command),
        sbp=ctypes.addressof(sense),
        timeout=5000,
    )
    fcntl.ioctl(descriptor, _SG_IO, header)
    if header.status or header.host_status or header.driver_status & 0xF:
        raise BadInput("the disk refuses GET LBA STATUS")
    return answer.raw[: _ANSWER_BYTES - header.resid]


def _held_runs(
    descriptor: int, block_bytes: int, start: int, stop: int, deadline: float
) -> list[tuple[int, int]]:
    """What is held from `start` to `stop`, and perhaps beyond. BadInput for an answer that is none or too
    late."""
    pairs: list[tuple[int, int]] = []
    at = start
    while at < stop:
        runs = lba_status.decode(_ask(descriptor, at // block_bytes), block_bytes)
        # The first run may begin before the block that was asked for.
        if runs[-1].end <= at or runs[0].start > at or time.monotonic() > deadline:
            raise BadInput("the disk's map does not go on, or takes too long")
        pairs += [(run.start, run.end) for run in runs if run.mapped]
        at = runs[-1].end
    return pairs


def held_by_map(device: BlockDevice, within_s: float = 3.0, where: Extents | None = None) -> Extents | None:
    """What the disk says it holds, in bytes, of `where` if that is given; None where it does not say, or not
    in time."""
    if not (device.sysfs / "device" / "scsi_disk").is_dir():
        return None
    block_bytes = device.number("queue/logical_block_size") or 512
    descriptor = open_device(device)
    deadline = time.monotonic() + within_s
    ranges = Extents.of([(0, device.size_bytes)]) if where is None else where
    try:
        parts = [_held_runs(descriptor, block_bytes, start, end, deadline) for start, end in ranges]
    except (OSError, ValueError):
        return None
    finally:
        os.close(descriptor)
    mapped = Extents.of(pair for some in parts for pair in some)
    return mapped if where is None else mapped & where
