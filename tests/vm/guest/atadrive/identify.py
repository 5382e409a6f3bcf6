"""IDENTIFY DEVICE data of a drive, word by word."""

from __future__ import annotations

import struct
from typing import Protocol

from tests.vm.guest.atadrive.security import ENABLED, SUPPORTED, LockConfig

MODEL, FIRMWARE = "OPWATCH TEST DRIVE", "1.0"
# Largest 28-bit address; words 60 and 61 hold this value for larger drives.
_MAX_LBA_28 = 0x0FFFFFFF
_AREA, _ACCESSIBLE, _HAS_48_BITS = 1 << 10, 1 << 8, 1 << 10
# Validity bits: word 83 covers words 82 to 84, word 87 covers 85 to 87, words 119 and 120 cover themselves.
# Bit 15 of word 86 announces words 119 and 120.
_COUNTS, _HAS_119 = 0x4000, 1 << 15


class IdentifyProperties(Protocol):
    """Properties that IDENTIFY reports in addition to the size."""

    @property
    def serial(self) -> str: ...
    @property
    def has_area(self) -> bool: ...
    @property
    def has_accessible(self) -> bool: ...
    @property
    def lock(self) -> LockConfig: ...


def build_identify_data(drive: IdentifyProperties, sectors: int, security: int) -> bytes:
    """Return the 512 bytes with their checksum. `security` is the current security state (word 128)."""
    words = [0] * 256
    words[0], words[49], words[53], words[76], words[80] = 0x0040, 0x0F00, 0x0006, 0x0002, 0x07F0
    for first, last, text in ((10, 19, drive.serial), (23, 26, FIRMWARE), (27, 46, MODEL)):
        words[first : last + 1] = _encode_text(text, last - first + 1)
    words[60:62] = _split_number(min(sectors, _MAX_LBA_28), 2)
    words[100:104] = _split_number(sectors, 4)
    area = _AREA if drive.has_area else 0
    words[82] = area | bool(security & SUPPORTED) << 1
    words[85] = area | bool(security & ENABLED) << 1
    words[83], words[84], words[87] = _COUNTS | _HAS_48_BITS, _COUNTS, _COUNTS
    words[86] = _HAS_48_BITS | _HAS_119
    words[119] = words[120] = _COUNTS | (_ACCESSIBLE if drive.has_accessible else 0)
    words[89], words[90] = drive.lock.normal_word, drive.lock.enhanced_word
    words[128], words[169], words[217] = security, 1, 1
    raw = struct.pack("<256H", *words)[:-2] + b"\xa5"
    return raw + bytes([-sum(raw) & 0xFF])


def _encode_text(text: str, count: int) -> list[int]:
    """Return the text as ATA words, with the first of two characters in the upper byte."""
    raw = text.encode().ljust(2 * count)
    return [raw[at] << 8 | raw[at + 1] for at in range(0, 2 * count, 2)]


def _split_number(number: int, count: int) -> list[int]:
    return [number >> 16 * place & 0xFFFF for place in range(count)]
