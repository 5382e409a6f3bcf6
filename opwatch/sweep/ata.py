"""What an ATA drive offers, by its IDENTIFY as the kernel keeps it (SAT's page 89h). Pure."""

from __future__ import annotations

from dataclasses import dataclass

from opwatch.errors import BadInput

_PAGE, _IDENTIFY_AT, _WORDS = 0x89, 60, 256
_IDENTIFY_COMMAND = 0xEC


@dataclass(frozen=True, slots=True)
class AtaOffers:
    """`has_protected_area` is the feature by which SET MAX ADDRESS lowers what it shows; `is_frozen` that its
    security takes no command until it was without power."""

    has_protected_area: bool
    has_security: bool
    is_frozen: bool


def decode_offers(page: bytes) -> AtaOffers:
    """The offers in SAT's page 89h. BadInput for what is none, or of no ATA disk."""
    if len(page) < _IDENTIFY_AT + 2 * _WORDS or page[1] != _PAGE:
        raise BadInput(f"page 89h of {len(page)} bytes")
    if page[56] != _IDENTIFY_COMMAND:
        raise BadInput(f"page 89h is of command {page[56]:02X}h, and so of no disk")

    def word(number: int) -> int:
        return int.from_bytes(page[_IDENTIFY_AT + 2 * number :][:2], "little")

    # Words 82 to 84 count where bits 14 and 15 of word 83 are 01.
    supported = word(82) if word(83) >> 14 == 1 else 0
    return AtaOffers(
        has_protected_area=bool(supported & 1 << 10),
        has_security=bool(supported & 1 << 1),
        is_frozen=bool(word(128) & 1 << 3),
    )
