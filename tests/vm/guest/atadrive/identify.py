"""IDENTIFY DEVICE of a drive, word by word."""

from __future__ import annotations

import struct
from typing import Protocol

from tests.vm.guest.atadrive.security import ENABLED, SUPPORTED, LockWishes

MODEL, FIRMWARE = "OPWATCH TEST DRIVE", "1.0"
# 28 bits of an address, and what words 60 and 61 say of a drive that needs more.
_MOST_28 = 0x0FFFFFFF
_AREA, _ACCESSIBLE, _HAS_48_BITS = 1 << 10, 1 << 8, 1 << 10
# Which words count: 82 to 84 by 83, 85 to 87 by 87, 119 by 119, 120 by 120, and those by bit 15 of 86.
_COUNTS, _HAS_119 = 0x4000, 1 << 15


class Identified(Protocol):
    """What IDENTIFY says of a drive beside its size."""

    @property
    def serial(self) -> str: ...
    @property
    def has_area(self) -> bool: ...
    @property
    def has_accessible(self) -> bool: ...
    @property
    def lock(self) -> LockWishes: ...


def identify_data(drive: Identified, sectors: int, security: int) -> bytes:
    """The 512 bytes, with their checksum. `security` is the state of its security now."""
    words = [0] * 256
    words[0], words[49], words[53], words[76], words[80] = 0x0040, 0x0F00, 0x0006, 0x0002, 0x07F0
    for first, last, text in ((10, 19, drive.serial), (23, 26, FIRMWARE), (27, 46, MODEL)):
        words[first : last + 1] = _text(text, last - first + 1)
    words[60:62] = _parts(min(sectors, _MOST_28), 2)
    words[100:104] = _parts(sectors, 4)
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


def _text(text: str, count: int) -> list[int]:
    """Characters as ATA has them: the first one of two in the upper byte."""
    raw = text.encode().ljust(2 * count)
    return [raw[at] << 8 | raw[at + 1] for at in range(0, 2 * count, 2)]


def _parts(number: int, count: int) -> list[int]:
    return [number >> 16 * place & 0xFFFF for place in range(count)]
