"""SCSI GET LBA STATUS: the blocks that a thinly provisioned disk reports as deallocated. Pure."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import NamedTuple

from opwatch.errors import BadInput

_COMMAND = struct.Struct(">BBQI2x")
_DESCRIPTOR = struct.Struct(">QIB3x")
_HEADER_BYTES = 8
_MAX_BYTES = 1 << 62


class LbaRange(NamedTuple):
    """A byte range of the disk. `mapped` is False if the range is deallocated or anchored."""

    start: int
    end: int
    mapped: bool


@dataclass(frozen=True, slots=True)
class SentinelMap:
    """Sentinel bytes that the disk's map reports as mapped before and after the trim, in whole granules.
    `after_bytes` is None if the map could not be read again."""

    judged_bytes: int
    before_bytes: int
    after_bytes: int | None

    @property
    def reason(self) -> str | None:
        """Why the map proves nothing; None if it is reliable."""
        if not self.judged_bytes:
            return "no sentinel covers a whole granule of the map"
        if self.before_bytes < self.judged_bytes:
            missing = self.judged_bytes - self.before_bytes
            return f"{missing} B of the sentinels were not in the map before the trim, so it ignores writes"
        return "the map could not be read again" if self.after_bytes is None else None

    @property
    def gone_bytes(self) -> int | None:
        """Bytes that the trim unmapped; None if the map proves nothing."""
        if self.reason or self.after_bytes is None:
            return None
        return self.judged_bytes - self.after_bytes


def encode_command(first_block: int, length: int) -> bytes:
    """Return the CDB that asks for at most `length` bytes of status, starting at `first_block`."""
    return _COMMAND.pack(0x9E, 0x12, first_block, length)


def decode_runs(answer: bytes, block_bytes: int) -> list[LbaRange]:
    """Return the runs in an answer. Raise BadInput if it is malformed or its runs are not contiguous."""
    if len(answer) < _HEADER_BYTES + _DESCRIPTOR.size:
        raise BadInput(f"truncated LBA status of {len(answer)} bytes")
    length = int.from_bytes(answer[:4], "big") + 4
    runs: list[LbaRange] = []
    for at in range(_HEADER_BYTES, min(length, len(answer)) - _DESCRIPTOR.size + 1, _DESCRIPTOR.size):
        block, count, status = _DESCRIPTOR.unpack_from(answer, at)
        start, end = block * block_bytes, (block + count) * block_bytes
        if end > _MAX_BYTES or not count or (runs and start != runs[-1].end):
            raise BadInput(f"invalid LBA status with {count} blocks at {block}")
        runs.append(LbaRange(start, end, status & 0xF == 0))
    if not runs:
        raise BadInput("an LBA status without a descriptor")
    return runs
