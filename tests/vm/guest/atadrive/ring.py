"""The command ring that the kernel's target_core_user shares with a process."""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

# linux/target_core_user.h: struct tcmu_mailbox.
_VERSION, _FLAGS, _RING_AT, _RING_SIZE, _HEAD, _TAIL = 0, 2, 4, 8, 12, 64
_CAN_REPORT_LENGTH = 1 << 1
# struct tcmu_cmd_entry: the header, the request, and the response that overwrites the request.
_USER_FLAGS, _IOV_COUNT, _CDB_AT, _IOV = 7, 8, 24, 48
_STATUS, _READ_LENGTH, _SENSE, _SENSE_BYTES = 8, 12, 16, 96
_IS_COMMAND, _OPERATION = 1, 0x7
_UNKNOWN_OPERATION, _REPORTS_LENGTH = 0x1, 0x2
_CDB_BYTES = 16
_U32, _U64 = struct.Struct("<I"), struct.Struct("<Q")


@dataclass(frozen=True)
class Answer:
    """A disk's answer: SCSI status, read data, and sense data after an error."""

    status: int = 0
    data: bytes = b""
    sense: bytes = b""


@dataclass(frozen=True)
class Command:
    """A command of the ring. `pieces` are (offset, length) of the data buffers."""

    at: int
    cdb: bytes
    pieces: tuple[tuple[int, int], ...] = field(repr=False)

    @property
    def data_length(self) -> int:
        return sum(length for _, length in self.pieces)


class TcmuRing:
    """The open ring of one device."""

    def __init__(self, name: str) -> None:
        self._descriptor = os.open(f"/dev/{name}", os.O_RDWR | os.O_CLOEXEC)
        size = int(Path(f"/sys/class/uio/{name}/maps/map0/size").read_text(), 16)
        self._memory = mmap.mmap(self._descriptor, size)
        self._ring, self._size = self._read_u32(_RING_AT), self._read_u32(_RING_SIZE)
        self._tells_length = bool(self._memory[_FLAGS] & _CAN_REPORT_LENGTH)

    def _read_u32(self, at: int) -> int:
        value: int = _U32.unpack_from(self._memory, at)[0]
        return value

    def _read_u64(self, at: int) -> int:
        value: int = _U64.unpack_from(self._memory, at)[0]
        return value

    def iter_commands(self) -> Iterator[Command]:
        """Yield commands forever. The caller must answer each command before it asks for the next."""
        while True:
            while (tail := self._read_u32(_TAIL)) != self._read_u32(_HEAD):
                at = self._ring + tail
                length = self._read_u32(at) & ~_OPERATION
                operation = self._read_u32(at) & _OPERATION
                if operation == _IS_COMMAND:
                    yield self._read_command(at)
                elif operation:
                    self._memory[at + _USER_FLAGS] |= _UNKNOWN_OPERATION
                _U32.pack_into(self._memory, _TAIL, (tail + length) % self._size)
            os.write(self._descriptor, _U32.pack(0))
            if self._read_u32(_TAIL) == self._read_u32(_HEAD):
                os.read(self._descriptor, 4)

    def _read_command(self, at: int) -> Command:
        cdb_at = self._read_u64(at + _CDB_AT)
        places = [at + _IOV + 16 * number for number in range(self._read_u32(at + _IOV_COUNT))]
        pieces = tuple((self._read_u64(place), self._read_u64(place + 8)) for place in places)
        return Command(at, self._memory[cdb_at : cdb_at + _CDB_BYTES], pieces)

    def read_data(self, command: Command) -> bytes:
        """Return the data that the host sends with a command."""
        return b"".join(self._memory[at : at + length] for at, length in command.pieces)

    def complete_command(self, command: Command, answer: Answer) -> None:
        rest, at = memoryview(answer.data)[: command.data_length], command.at
        length = len(rest)
        for place, room in command.pieces:
            part, rest = rest[:room], rest[room:]
            self._memory[place : place + len(part)] = bytes(part)
        self._memory[at + _STATUS] = answer.status
        self._memory[at + _SENSE : at + _SENSE + _SENSE_BYTES] = answer.sense.ljust(_SENSE_BYTES, b"\0")
        if answer.data and self._tells_length:
            self._memory[at + _USER_FLAGS] |= _REPORTS_LENGTH
            _U32.pack_into(self._memory, at + _READ_LENGTH, length)
