"""SCSI GET LBA STATUS: which blocks a thinly provisioned disk has given up, by its own map. Pure."""

from __future__ import annotations

import struct
from typing import NamedTuple

_COMMAND = struct.Struct(">BBQI2x")
_DESCRIPTOR = struct.Struct(">QIB3x")
_HEADER_BYTES = 8
_MOST = 1 << 62


class Run(NamedTuple):
    """Bytes of the disk; `held` is False where they are deallocated, or merely anchored."""

    start: int
    end: int
    held: bool


def command(first_block: int, length: int) -> bytes:
    """The command for an answer of at most so many bytes about this block and those behind it."""
    return _COMMAND.pack(0x9E, 0x12, first_block, length)


def decode(answer: bytes, block_bytes: int) -> list[Run]:
    """The runs of an answer, which must follow each other. ValueError for what cannot be one."""
    if len(answer) < _HEADER_BYTES + _DESCRIPTOR.size:
        raise ValueError(f"an LBA status of {len(answer)} bytes")
    told = int.from_bytes(answer[:4], "big") + 4
    found: list[Run] = []
    for at in range(_HEADER_BYTES, min(told, len(answer)) - _DESCRIPTOR.size + 1, _DESCRIPTOR.size):
        block, count, status = _DESCRIPTOR.unpack_from(answer, at)
        start, end = block * block_bytes, (block + count) * block_bytes
        if end > _MOST or not count or (found and start != found[-1].end):
            raise ValueError(f"an LBA status with {count} blocks at {block}")
        found.append(Run(start, end, status & 0xF == 0))
    if not found:
        raise ValueError("an LBA status without a descriptor")
    return found
