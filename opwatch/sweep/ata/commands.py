"""Build ATA commands wrapped in SCSI (SAT: ATA PASS-THROUGH) and decode the returned registers. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from opwatch.errors import BadInput

_PASS_THROUGH = 0x85
_NO_DATA, _PIO_IN, _PIO_OUT = 3, 4, 5
_EXTENDED = 0x1
# CK_COND requests the registers even after success. A read transfers the sectors given by the count.
_CHECK, _ONE_SECTOR_IN = 1 << 5, 1 << 3 | 1 << 2 | 2
_ONE_SECTOR_OUT = 1 << 2 | 2
_IDENTIFY, _READ_NATIVE, _SET_MAX, _ACCESSIBLE = 0xEC, 0x27, 0x37, 0x78
_GET_NATIVE, _SET_ACCESSIBLE = 0, 1
_LBA_MODE = 1 << 6
_DESCRIPTORS, _RETURNED, _RETURNED_BYTES = (0x72, 0x73), 0x09, 14
_FAILED, _FAULT, _BUSY = 0x01, 0x20, 0x80
_MEANINGS = {0x04: "command aborted", 0x10: "address not found, or already set once"}


SET_PASSWORD, UNLOCK, ERASE_PREPARE, ERASE_UNIT, DISABLE_PASSWORD = 0xF1, 0xF2, 0xF3, 0xF4, 0xF6


@dataclass(frozen=True, slots=True)
class AtaRegisters:
    """The drive's registers after a command."""

    status: int
    error: int
    lba: int

    @property
    def is_failed(self) -> bool:
        return bool(self.status & (_FAILED | _FAULT | _BUSY))

    def __str__(self) -> str:
        reasons = [text for bit, text in _MEANINGS.items() if self.error & bit]
        why = f": {', '.join(reasons)}" if reasons else ""
        return f"status {self.status:02X}h, error {self.error:02X}h{why}"


def make_identify_command() -> bytes:
    return _wrap_command(_IDENTIFY, _PIO_IN << 1, _ONE_SECTOR_IN, count=1)


def make_read_native_command(*, is_accessible: bool) -> bytes:
    """Return READ NATIVE MAX ADDRESS EXT or GET NATIVE MAX ADDRESS EXT. Their answer is in the registers."""
    if is_accessible:
        return _wrap_command(_ACCESSIBLE, _NO_DATA << 1 | _EXTENDED, _CHECK, features=_GET_NATIVE)
    return _wrap_command(_READ_NATIVE, _NO_DATA << 1 | _EXTENDED, _CHECK)


def make_set_max_command(lba: int, *, is_accessible: bool) -> bytes:
    """Return SET MAX ADDRESS EXT or SET ACCESSIBLE MAX ADDRESS EXT.

    A power cycle undoes the former; the latter persists.
    """
    if is_accessible:
        return _wrap_command(
            _ACCESSIBLE, _NO_DATA << 1 | _EXTENDED, _CHECK, features=_SET_ACCESSIBLE, lba=lba
        )
    return _wrap_command(_SET_MAX, _NO_DATA << 1 | _EXTENDED, _CHECK, lba=lba)


def make_security_command(command: int) -> bytes:
    """Return a security command. All but ERASE PREPARE transfer a sector with a password."""
    if command == ERASE_PREPARE:
        return _wrap_command(command, _NO_DATA << 1, _CHECK)
    return _wrap_command(command, _PIO_OUT << 1, _CHECK | _ONE_SECTOR_OUT, count=1)


def _wrap_command(
    command: int, protocol: int, flags: int, *, features: int = 0, count: int = 0, lba: int = 0
) -> bytes:
    low = lba.to_bytes(6, "little")
    middle = (low[3], low[0], low[4], low[1], low[5], low[2])
    return bytes(
        (
            *(_PASS_THROUGH, protocol, flags),
            *features.to_bytes(2, "big"),
            *count.to_bytes(2, "big"),
            *middle,
            *(_LBA_MODE, command, 0),
        )
    )


def decode_registers(sense: bytes) -> AtaRegisters:
    """Decode the registers from sense data of either format.

    Raises BadInput if registers are missing or truncated: fixed-format sense data has room for only the lower
    half of an address.
    """
    code = sense[0] & 0x7F if sense else 0
    if code in _DESCRIPTORS:
        at = 8
        end = min(len(sense), 8 + sense[7]) if len(sense) > 7 else 0
        while at + 2 <= end:
            length = 2 + sense[at + 1]
            if sense[at] == _RETURNED and length == _RETURNED_BYTES and at + length <= end:
                return _decode_descriptor(sense[at : at + length])
            at += length
    elif code in (0x70, 0x71) and len(sense) >= 14 and sense[12:14] == b"\0\x1d":
        if sense[8] & 1 << 5:
            raise BadInput("the returned address is truncated")
        return AtaRegisters(status=sense[4], error=sense[3], lba=int.from_bytes(sense[9:12], "little"))
    raise BadInput("its registers are not returned")


def _decode_descriptor(raw: bytes) -> AtaRegisters:
    # The low, middle and high byte of the lower half, each after the corresponding byte of the upper half.
    lba = bytes((raw[7], raw[9], raw[11], raw[6], raw[8], raw[10]))
    return AtaRegisters(status=raw[13], error=raw[3], lba=int.from_bytes(lba, "little"))
