"""NVMe over TCP on the wire: its PDUs, a command, and a completion."""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass
from enum import IntEnum

HEADER = struct.Struct("<BBBBI")
_COMMAND = struct.Struct("<BBHI16x8s4s3xB6I")
_COMPLETION = struct.Struct("<QHHHH")
_DATA = struct.Struct("<HHIII")
_INITIALIZE = struct.Struct("<HBBI112x")
_LAST = 1 << 2
# A command that is refused is not to be tried again.
_NOT_AGAIN = 1 << 14
# What the host may send in one PDU of data.
MOST_DATA = 1 << 20


class Pdu(IntEnum):
    INITIALIZE = 0
    INITIALIZED = 1
    COMMAND = 4
    RESPONSE = 5
    FROM_HOST = 6
    TO_HOST = 7
    READY = 9


@dataclass(frozen=True)
class NvmeCommand:
    """One command as it came. `fields` are dwords 10 to 15; `raw` is all of it, for what is laid out
    otherwise; `data` what came with it, and `length` how much data it has in all."""

    opcode: int
    tag: int
    namespace: int
    length: int
    is_in_capsule: bool
    fields: tuple[int, ...]
    raw: bytes
    data: bytes


def received(connection: socket.socket, length: int) -> bytes:
    """So many bytes; EOFError where the other side has closed."""
    parts = bytearray()
    while len(parts) < length:
        part = connection.recv(min(length - len(parts), 1 << 20))
        if not part:
            raise EOFError
        parts += part
    return bytes(parts)


def next_pdu(connection: socket.socket) -> tuple[int, bytes, bytes]:
    """(type, what follows the common header, the data behind it)."""
    kind, _, header_length, data_offset, length = HEADER.unpack(received(connection, HEADER.size))
    body = received(connection, length - HEADER.size)
    begin = (data_offset or header_length) - HEADER.size
    return kind, body[: header_length - HEADER.size], body[begin:] if data_offset else b""


def command_of(body: bytes, data: bytes) -> NvmeCommand:
    opcode, _, tag, namespace, _, length, kind, *fields = _COMMAND.unpack(body)
    return NvmeCommand(
        opcode=opcode,
        tag=tag,
        namespace=namespace,
        length=int.from_bytes(length, "little"),
        # A data block by its offset lies in the capsule.
        is_in_capsule=kind == 0x01,
        fields=tuple(fields),
        raw=body,
        data=data,
    )


def initialized() -> bytes:
    return HEADER.pack(Pdu.INITIALIZED, 0, 128, 0, 128) + _INITIALIZE.pack(0, 0, 0, MOST_DATA)


def completion(tag: int, queue: int, status: int = 0, result: int = 0) -> bytes:
    field = status | _NOT_AGAIN if status else 0
    entry = _COMPLETION.pack(result, 0, queue, tag, field << 1)
    return HEADER.pack(Pdu.RESPONSE, 0, 24, 0, 24) + entry


def data_to_host(tag: int, data: bytes) -> bytes:
    header = HEADER.pack(Pdu.TO_HOST, _LAST, 24, 24, 24 + len(data))
    return header + _DATA.pack(tag, 0, 0, len(data), 0) + data


def ready_for(tag: int, length: int) -> bytes:
    """Ask the host for all data of a write."""
    return HEADER.pack(Pdu.READY, 0, 24, 0, 24) + _DATA.pack(tag, 1, 0, length, 0)


def place_of_data(body: bytes) -> tuple[int, int]:
    """(tag of the command, where in its data) of a PDU of data from the host."""
    tag, _, offset, _, _ = _DATA.unpack(body)
    return tag, offset
