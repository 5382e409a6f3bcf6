"""SCSI persistent reservations: hosts registered with a disk, and the holder of a reservation. Pure.

Clusters use reservations to keep other hosts off a disk. No mount or process on this host shows them.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from opwatch.errors import BadInput

ANSWER_BYTES = 4096
_COMMAND = struct.Struct(">BB5xHx")
_READ_KEYS, _READ_RESERVATION = 0x00, 0x01
_HEADER, _KEY = struct.Struct(">II"), struct.Struct(">Q")
_RESERVATION = struct.Struct(">Q5xBxx")
_TYPES = {
    0x1: "write exclusive",
    0x3: "exclusive access",
    0x5: "write exclusive, registrants only",
    0x6: "exclusive access, registrants only",
    0x7: "write exclusive, all registrants",
    0x8: "exclusive access, all registrants",
}


@dataclass(frozen=True, slots=True)
class Reservation:
    """A reservation: its holder's registered key, and the type."""

    key: int
    kind: str


def build_keys_command() -> bytes:
    return _COMMAND.pack(0x5E, _READ_KEYS, ANSWER_BYTES)


def build_reservation_command() -> bytes:
    return _COMMAND.pack(0x5E, _READ_RESERVATION, ANSWER_BYTES)


def decode_keys(answer: bytes) -> tuple[int, ...]:
    """Return all registered keys; a host may have several, one per path. Raise BadInput if the answer is
    malformed."""
    body = _extract_body(answer, _KEY.size)
    return tuple(key for (key,) in _KEY.iter_unpack(body))


def decode_reservation(answer: bytes) -> Reservation | None:
    """Return the reservation; None if the disk is not reserved. Raise BadInput if the answer is malformed."""
    body = _extract_body(answer, _RESERVATION.size)
    if not body:
        return None
    key, way = _RESERVATION.unpack_from(body)
    kind = way & 0xF
    return Reservation(key, _TYPES.get(kind, f"type {kind:X}h"))


def _extract_body(answer: bytes, step: int) -> bytes:
    """Return the whole entries after the header, as many as fit in the answer."""
    if len(answer) < _HEADER.size:
        raise BadInput(f"persistent reservation data of {len(answer)} bytes")
    _, length = _HEADER.unpack_from(answer)
    if length % step:
        raise BadInput(f"persistent reservation data with {length} bytes of entries of {step} bytes")
    body = answer[_HEADER.size : _HEADER.size + length]
    return body[: len(body) - len(body) % step]
