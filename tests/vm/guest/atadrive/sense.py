"""Sense data with descriptors: the reason of an error, or an ATA drive's registers."""

from __future__ import annotations

from tests.vm.guest.atadrive.ata import Outcome
from tests.vm.guest.atadrive.ring import Answer

_CHECK_CONDITION = 2
_RECOVERED, _ILLEGAL, _PROTECTED, _ABORTED = 0x1, 0x5, 0x7, 0xB


def _make_answer(key: int, code: int, descriptor: bytes = b"", data: bytes = b"") -> Answer:
    sense = bytes([0x72, key, code >> 8, code & 0xFF, 0, 0, 0, len(descriptor)]) + descriptor
    return Answer(_CHECK_CONDITION, data, sense)


def make_unknown_command() -> Answer:
    return _make_answer(_ILLEGAL, 0x2000)


def make_out_of_range() -> Answer:
    return _make_answer(_ILLEGAL, 0x2100)


def make_no_access() -> Answer:
    """The answer of a locked drive to reads and writes."""
    return _make_answer(_PROTECTED, 0x7471)


def make_unknown_field() -> Answer:
    return _make_answer(_ILLEGAL, 0x2400)


def make_ata_answer(outcome: Outcome, *, is_asked: bool) -> Answer:
    """Return the drive's registers if the command failed or `is_asked` (CK_COND)."""
    if not outcome.error and not is_asked:
        return Answer(data=outcome.data)
    lba = outcome.lba.to_bytes(6, "little")
    middle = bytes([lba[3], lba[0], lba[4], lba[1], lba[5], lba[2]])
    head = bytes([0x09, 12, 1, outcome.error]) + outcome.count.to_bytes(2, "big")
    descriptor = head + middle + bytes([0x40, outcome.status])
    if outcome.error:
        return _make_answer(_ABORTED, 0, descriptor)
    return _make_answer(_RECOVERED, 0x001D, descriptor, outcome.data)
