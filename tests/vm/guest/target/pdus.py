"""NVMe over TCP on the wire: PDUs, commands and completions."""

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
# Do Not Retry: set for every refused command.
_DO_NOT_RETRY = 1 << 14
# Maximum data that the host may send in one PDU.
MAX_DATA = 1 << 20


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
    """A received command. `fields` are dwords 10 to 15; `raw` is the whole command, for other layouts; `data`
    arrived with the command, and `length` is its total data length."""

    opcode: int
    tag: int
    namespace: int
    length: int
    is_in_capsule: bool
    fields: tuple[int, ...]
    raw: bytes
    data: bytes


def receive_bytes(connection: socket.socket, length: int) -> bytes:
    """Return this many bytes; raise EOFError if the other side has closed."""
    parts = bytearray()
    while len(parts) < length:
        part = connection.recv(min(length - len(parts), 1 << 20))
        if not part:
            raise EOFError
        parts += part
    return bytes(parts)


def receive_pdu(connection: socket.socket) -> tuple[int, bytes, bytes]:
    """Return (type, the rest of the header, the data)."""
    kind, _, header_length, data_offset, length = HEADER.unpack(receive_bytes(connection, HEADER.size))
    body = receive_bytes(connection, length - HEADER.size)
    begin = (data_offset or header_length) - HEADER.size
    return kind, body[: header_length - HEADER.size], body[begin:] if data_offset else b""


def parse_command(body: bytes, data: bytes) -> NvmeCommand:
    opcode, _, tag, namespace, _, length, kind, *fields = _COMMAND.unpack(body)
    return NvmeCommand(
        opcode=opcode,
        tag=tag,
        namespace=namespace,
        length=int.from_bytes(length, "little"),
        # A data block descriptor with an offset means that the data is in the capsule.
        is_in_capsule=kind == 0x01,
        fields=tuple(fields),
        raw=body,
        data=data,
    )


def encode_initialized() -> bytes:
    return HEADER.pack(Pdu.INITIALIZED, 0, 128, 0, 128) + _INITIALIZE.pack(0, 0, 0, MAX_DATA)


def encode_completion(tag: int, queue: int, status: int = 0, result: int = 0) -> bytes:
    field = status | _DO_NOT_RETRY if status else 0
    entry = _COMPLETION.pack(result, 0, queue, tag, field << 1)
    return HEADER.pack(Pdu.RESPONSE, 0, 24, 0, 24) + entry


def encode_data(tag: int, data: bytes) -> bytes:
    header = HEADER.pack(Pdu.TO_HOST, _LAST, 24, 24, 24 + len(data))
    return header + _DATA.pack(tag, 0, 0, len(data), 0) + data


def encode_ready(tag: int, length: int) -> bytes:
    """Return a request to the host for all data of a write."""
    return HEADER.pack(Pdu.READY, 0, 24, 0, 24) + _DATA.pack(tag, 1, 0, length, 0)


def parse_data_header(body: bytes) -> tuple[int, int]:
    """Return (command tag, data offset) of a PDU with data from the host."""
    tag, _, offset, _, _ = _DATA.unpack(body)
    return tag, offset
