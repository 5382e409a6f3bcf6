"""Little-endian fields of log pages. Every decoder of a page is pure: bytes in, numbers out."""

from __future__ import annotations

from opwatch.errors import OpwatchError


class BadPage(OpwatchError):
    """The bytes are not the page that they should be."""


def whole(raw: bytes, length: int, what: str) -> bytes:
    """The page, checked: long enough, and neither all zeroes nor all ones."""
    if len(raw) < length:
        raise BadPage(f"{what} has {len(raw)} bytes, not {length}")
    page = raw[:length]
    if page.count(0xFF) == length:
        raise BadPage(f"{what} is all ones: the drive did not fill it")
    if page.count(0) == length:
        raise BadPage(f"{what} is all zeroes: the drive did not fill it")
    return page


def number(page: bytes, offset: int, width: int) -> int | None:
    """An unsigned field; None for all ones, which stands for "not supported" at any width."""
    field = page[offset : offset + width]
    if len(field) < width or field.count(0xFF) == width:
        return None
    return int.from_bytes(field, "little")


def unsigned(page: bytes, offset: int, width: int = 8) -> int:
    """A field in which all ones are a number like any other. The page has it: `whole` has checked that."""
    return int.from_bytes(page[offset : offset + width], "little")
