"""Read little-endian fields of log pages. All page decoders are pure functions of the bytes."""

from __future__ import annotations

from opwatch.errors import OpwatchError


class BadPage(OpwatchError):
    """The bytes are not the expected page."""


def require_page(raw: bytes, length: int, what: str) -> bytes:
    """Return the page cut to `length`, or raise BadPage if too short, all zeroes or all ones."""
    if len(raw) < length:
        raise BadPage(f"{what} has {len(raw)} bytes, not {length}")
    page = raw[:length]
    if page.count(0xFF) == length:
        raise BadPage(f"{what} is all ones: the drive did not fill it")
    if page.count(0) == length:
        raise BadPage(f"{what} is all zeroes: the drive did not fill it")
    return page


def read_field(page: bytes, offset: int, width: int) -> int | None:
    """Return an unsigned field, or None for all ones, which means "not supported" at any width."""
    field = page[offset : offset + width]
    if len(field) < width or field.count(0xFF) == width:
        return None
    return int.from_bytes(field, "little")


def read_unsigned(page: bytes, offset: int, width: int = 8) -> int:
    """Return an unsigned field, all ones included. The caller has checked the page length."""
    return int.from_bytes(page[offset : offset + width], "little")
