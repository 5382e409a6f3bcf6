"""Decoders for foreign data from the kernel, drives, tools and users, all with bounds.

For any input, reading ends soon, takes little memory, and either succeeds or raises BadInput.
"""

from __future__ import annotations

import json
import os
import re
import stat
import zlib
from itertools import accumulate
from pathlib import Path
from typing import Any, Protocol

from opwatch.errors import BadInput

# A full report from a drive has 100 KiB; 10,000 mounts have 2 MiB.
MAX_BYTES = 64 << 20
# The longest line of mountinfo: four paths of 4096 bytes, with each byte escaped as four.
MAX_LINE_BYTES = 1 << 16
MAX_DEPTH = 64
# Memory limit for the values of a document: `[{},{},...]` takes 25 times its own size.
MAX_MEMORY = 512 << 20
# Maximum memory in Python per table, list and member, excluding the text.
_COSTS = {b"{": 160, b"[": 80, b",": 80}
# 2^128 has 39 digits, and no counter has more.
_MAX_DIGITS = 40
_READ_BYTES = 1 << 16
_DEPTH = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_NOT_BRACKETS = bytes(byte for byte in range(256) if byte not in _DEPTH)
_STRING = rb'(?s)"[^"\\]*(?:\\.[^"\\]*)*"'
_BLANKS = re.compile(r"[ \t]+")
_OCTAL_ESCAPE = r"\\([0-7]{3})"


class Reader(Protocol):
    """An open binary file. read() returns None if no data are available at the moment."""

    def read(self, size: int, /) -> bytes | None: ...


def decode_text(raw: bytes) -> str:
    """Decode text for display; bytes that are not UTF-8 are replaced."""
    return raw.decode("utf-8", "replace")


def decode_names(raw: bytes) -> str:
    """Decode file names; bytes that are not UTF-8 are kept as in os.fsdecode(), so that the file can be
    opened."""
    return raw.decode("utf-8", "surrogateescape")


def split_lines(text: str, longest: int = MAX_LINE_BYTES) -> list[str]:
    """Return the lines, without overlong ones.

    str.splitlines() would also split at U+2028, which file names may contain.
    """
    return [line.removesuffix("\r") for line in text.split("\n") if len(line) <= longest]


def split_fields(line: str) -> list[str]:
    """Split at blanks and tabs. str.split() would also split at U+2028 and U+0085."""
    return [field for field in _BLANKS.split(line) if field]


def unescape_octal(text: str) -> str:
    """Decode a name in mountinfo, swaps or fstab, where blanks and backslashes are three octal digits."""
    return re.sub(_OCTAL_ESCAPE, lambda octal: chr(int(octal[1], 8)), text) if "\\" in text else text


def read_bytes(path: Path, most: int = MAX_BYTES) -> bytes:
    """Return the content of a regular file. Raise OSError from the kernel, or BadInput if not a file or too
    large."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise BadInput(f"{path} is not a regular file")
        return read_all(file, str(path), most)


def starts_with(path: Path, head: bytes) -> bool:
    """Return whether a file starts with `head`. False if not a file or unreadable; the actual reader reports
    the error."""
    # Do not even open a pipe: its writer would see a reader come and go.
    if not path.is_file():
        return False
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return False
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        return stat.S_ISREG(os.fstat(descriptor).st_mode) and file.read(len(head)) == head


def read_all(file: Reader, where: str, most: int = MAX_BYTES) -> bytes:
    """Return all data of an open file. Reads in parts, because one large read would allocate the maximum
    size."""
    parts: list[bytes] = []
    size = 0
    while part := file.read(_READ_BYTES):
        parts.append(part)
        size += len(part)
        if size > most:
            raise BadInput(f"{where} has more than {most} bytes, too many for this kind of file")
    return b"".join(parts)


def read_text(path: Path, most: int = MAX_BYTES) -> str:
    """Return the text of a file in /proc or /sys, or of a file written by tools."""
    return decode_text(read_bytes(path, most))


def read_names(path: Path) -> str:
    """Return the text of a /proc file with file names, such as mountinfo or swaps."""
    return decode_names(read_bytes(path))


def inflate_bytes(
    raw: bytes, most: int, where: str, *, wbits: int = zlib.MAX_WBITS, base: bytes = b""
) -> bytes:
    """Decompress with a size limit, because a few bytes can expand to very many.

    `wbits` and `base` (the dictionary) must match the compression.
    """
    expander = zlib.decompressobj(wbits, zdict=base) if base else zlib.decompressobj(wbits)
    try:
        expanded = expander.decompress(raw, most)
    except zlib.error as error:
        raise BadInput(f"{where} is damaged: {error}") from error
    if not expander.eof or expander.unused_data:
        raise BadInput(f"{where} is truncated, or has more than {most} bytes when decompressed")
    return expanded


def parse_json(raw: bytes | str, where: str, most_memory: int = MAX_MEMORY) -> Any:  # noqa: ANN401
    """Parse a JSON document.

    Raise BadInput if invalid, too deeply nested, or with values that take more than `most_memory` bytes.
    """
    encoded = raw.encode("utf-8", "replace") if isinstance(raw, str) else raw
    if len(encoded) > MAX_BYTES:
        raise BadInput(f"{where} has more than {MAX_BYTES} bytes, the limit for JSON")
    if _estimate_memory(encoded) > most_memory:
        raise BadInput(
            f"{where} has too many values: they could take more than {most_memory >> 20} MiB of memory"
        )
    if _measure_depth(encoded) > MAX_DEPTH and _measure_depth(re.sub(_STRING, b"", encoded)) > MAX_DEPTH:
        raise BadInput(f"{where}: its values are nested more than {MAX_DEPTH} levels deep")
    try:
        return json.loads(decode_text(encoded), parse_int=_parse_integer)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{where}: invalid JSON: {error}") from error


def require_table(document: Any, where: str) -> dict[str, Any]:  # noqa: ANN401
    """Return the document if it is a table; raise BadInput otherwise."""
    if not isinstance(document, dict):
        raise BadInput(f"{where} is not a table of names and values")
    return document


def _estimate_memory(encoded: bytes) -> int:
    """Return an upper bound of the document's memory. Characters within strings are counted too, for
    speed."""
    return sum(encoded.count(sign) * cost for sign, cost in _COSTS.items())


def _measure_depth(encoded: bytes) -> int:
    brackets = encoded.translate(None, _NOT_BRACKETS)
    return max(accumulate(map(_DEPTH.__getitem__, brackets)), default=0)


def _parse_integer(digits: str) -> int | str:
    """Keep a number too large for a counter as text: int() takes minutes for some, and rejects others."""
    return int(digits) if len(digits) <= _MAX_DIGITS else digits


def parse_unsigned(text: str, most_digits: int = 20) -> int | None:
    """Parse an unsigned number from the kernel, or return None."""
    digits = text.strip()
    good = len(digits) <= most_digits and digits.isascii() and digits.isdecimal()
    return int(digits) if good else None


def parse_all_unsigned(words: list[str], most_digits: int = 20) -> list[int] | None:
    """Parse unsigned numbers from the kernel, or return None if any is invalid. Checks all digits at once,
    for speed."""
    digits = "".join(words)
    lengths = [*map(len, words)] or [0]
    good = digits.isascii() and digits.isdecimal() and min(lengths) > 0 and max(lengths) <= most_digits
    return [int(word) for word in words] if good or not words else None
