"""Decode an ATA drive's features from IDENTIFY DEVICE, read directly or through SAT's VPD page 89h. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from opwatch.errors import BadInput
from opwatch.sweep.ata.security import AtaSecurity, decode_security

_PAGE, _IDENTIFY_AT, _BYTES = 0x89, 60, 512
_IDENTIFY_COMMAND = 0xEC
_SECTOR = 512


@dataclass(frozen=True, slots=True)
class AtaFeatures:
    """The features of an ATA drive.

    `has_protected_area` is the feature whose SET MAX ADDRESS EXT lowers the visible capacity;
    `has_accessible_max` is its replacement since ACS-3. `is_frozen` means that the security feature set
    accepts no command until a power cycle, `is_locked` that the drive needs a password. The drive shows
    `sectors` sectors of `sector_bytes`. `security` is the complete security status.
    """

    has_protected_area: bool
    has_security: bool
    is_frozen: bool
    has_accessible_max: bool = False
    is_locked: bool = False
    sectors: int = 0
    sector_bytes: int = _SECTOR
    serial: str = ""
    security: AtaSecurity = field(default_factory=AtaSecurity)


def decode_features(page: bytes) -> AtaFeatures:
    """Decode SAT's page 89h. Raises BadInput for another page or a device other than an ATA disk."""
    if len(page) < _IDENTIFY_AT + _BYTES or page[1] != _PAGE:
        raise BadInput(f"page 89h of {len(page)} bytes")
    if page[56] != _IDENTIFY_COMMAND:
        raise BadInput(f"page 89h is of command {page[56]:02X}h, so the device is not a disk")
    return decode_identify(page[_IDENTIFY_AT : _IDENTIFY_AT + _BYTES])


def decode_identify(raw: bytes) -> AtaFeatures:
    """Decode the data of IDENTIFY DEVICE. Raises BadInput if the data is too short."""
    if len(raw) < _BYTES:
        raise BadInput(f"IDENTIFY DEVICE of {len(raw)} bytes")

    def read_word(number: int) -> int:
        return int.from_bytes(raw[2 * number : 2 * number + 2], "little")

    def is_valid_word(number: int) -> bool:
        return read_word(number) >> 14 == 1

    # Words 82 to 84 are valid if bits 15:14 of word 83 are 01, and words 85 to 87 if bits 15:14 of word 87
    # are 01. Word 119 is valid if bit 15 of word 86 is set and bits 15:14 of word 119 are 01.
    supported = read_word(82) if is_valid_word(83) else 0
    enabled = read_word(85) if is_valid_word(87) else 0
    later = read_word(119) if is_valid_word(87) and read_word(86) & 1 << 15 and is_valid_word(119) else 0
    has_48_bits = is_valid_word(83) and bool(read_word(83) & 1 << 10)
    is_large = is_valid_word(106) and bool(read_word(106) & 1 << 12)
    return AtaFeatures(
        has_protected_area=bool(supported & enabled & 1 << 10),
        has_security=bool(supported & 1 << 1),
        is_frozen=bool(read_word(128) & 1 << 3),
        has_accessible_max=bool(later & 1 << 8),
        is_locked=bool(read_word(128) & 1 << 2),
        sectors=int.from_bytes(raw[200:208] if has_48_bits else raw[120:124], "little"),
        sector_bytes=2 * int.from_bytes(raw[234:238], "little") if is_large else _SECTOR,
        serial=_decode_text(raw[20:40]),
        security=decode_security(raw),
    )


def _decode_text(raw: bytes) -> str:
    """Decode an ATA string, whose bytes are swapped within each word."""
    swapped = bytes(raw[at ^ 1] for at in range(len(raw)))
    return swapped.decode("ascii", "replace").strip(" \0")
