"""Label values as the formats can carry them."""

from __future__ import annotations

import zlib

# Longer values, for example of control groups, are shortened in the middle.
MAX_LABEL_CHARACTERS = 256
_KEPT_HEAD, _KEPT_TAIL = 102, 144


def clean_label(value: str) -> str:
    """Return the value with characters that a format cannot carry written as escapes like `\\x1b`.

    Quotes, backslashes and line feeds stay: each format has its own escapes for them.
    """
    if value.isprintable():
        return value
    return "".join(
        char if char.isprintable() or char == "\n" else char.encode("unicode_escape").decode()
        for char in value
    )


def shorten_label(value: str) -> str:
    """Return the value, or its start and end with a checksum of the whole between them if it is too long."""
    if len(value) <= MAX_LABEL_CHARACTERS:
        return value
    checksum = zlib.crc32(value.encode("utf-8", "surrogatepass"))
    return f"{value[:_KEPT_HEAD]}~{checksum:08x}~{value[-_KEPT_TAIL:]}"
