"""Bytes that others wrote: the kernel, drives, tools, users. One decoder with bounds for all of them.

Whatever the bytes are, reading them ends soon, takes little memory, and fails with BadInput or not at all.
"""

from __future__ import annotations

import json
import os
import re
import stat
import zlib
from itertools import accumulate
from pathlib import Path

from opwatch.errors import BadInput

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Protocol
else:
    Protocol = object

# A report of everything that a drive knows has 100 KiB; 10,000 mounts have 2 MiB.
MOST_BYTES = 64 << 20
# Four paths of 4096 bytes, each byte escaped as four, make the longest line of mountinfo.
LONGEST_LINE = 1 << 16
DEEPEST = 64
# What the values of a document may take in memory: `[{},{},...]` takes 25 times its own size.
MOST_MEMORY = 512 << 20
# Bytes that Python takes for a table, a list and a member, at most but for the texts themselves.
_COSTS = {b"{": 160, b"[": 80, b",": 80}
# 2^128 has 39 digits: no counter has more.
_MOST_DIGITS = 40
_PART = 1 << 16
_DEPTH = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_OTHERS = bytes(byte for byte in range(256) if byte not in _DEPTH)
_STRING = rb'(?s)"[^"\\]*(?:\\.[^"\\]*)*"'
_BLANKS = re.compile(r"[ \t]+")
_ESCAPED = r"\\([0-7]{3})"


class Reader(Protocol):
    """An open file of bytes; None is the answer of one that has nothing now."""

    def read(self, size: int, /) -> bytes | None: ...


def text_of(raw: bytes) -> str:
    """What people read: a byte that is no UTF-8 is replaced, for it is worth less than the rest."""
    return raw.decode("utf-8", "replace")


def names_of(raw: bytes) -> str:
    """What names files: a byte that is no UTF-8 is kept as os.fsdecode() does, so that it can be opened."""
    return raw.decode("utf-8", "surrogateescape")


def lines_of(text: str, longest: int = LONGEST_LINE) -> list[str]:
    """The lines, without those that are too long to be meant. str.splitlines() would end them at U+2028 too,
    which names may contain."""
    return [line.removesuffix("\r") for line in text.split("\n") if len(line) <= longest]


def fields_of(line: str) -> list[str]:
    """What stands between blanks and tabs. str.split() would split names at U+2028 and U+0085 too."""
    return [field for field in _BLANKS.split(line) if field]


def unescaped(text: str) -> str:
    """A name of mountinfo, swaps or fstab: the kernel writes blanks and backslashes as three octal digits."""
    return re.sub(_ESCAPED, lambda octal: chr(int(octal[1], 8)), text) if "\\" in text else text


def read_bytes(path: Path, most: int = MOST_BYTES) -> bytes:
    """A whole file; OSError as the kernel says, BadInput where it is none or larger than it can be."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise BadInput(f"{path} is no regular file")
        return read_all(file, str(path), most)


def begins_with(path: Path, head: bytes) -> bool:
    """Whether a file begins so. False for what is none, or cannot be read: whoever reads it says why."""
    # A pipe is not even opened: its writer would see a reader come and go.
    if not path.is_file():
        return False
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return False
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        return stat.S_ISREG(os.fstat(descriptor).st_mode) and file.read(len(head)) == head


def read_all(file: Reader, where: str, most: int = MOST_BYTES) -> bytes:
    """All of an open file. Read in parts: to ask for the most at once would need the memory for it."""
    parts: list[bytes] = []
    size = 0
    while part := file.read(_PART):
        parts.append(part)
        size += len(part)
        if size > most:
            raise BadInput(f"{where} has more than {most} bytes: it is not what it should be")
    return b"".join(parts)


def read_text(path: Path, most: int = MOST_BYTES) -> str:
    """A file of /proc or /sys, or another that tools wrote."""
    return text_of(read_bytes(path, most))


def read_names(path: Path) -> str:
    """A file of /proc whose names have to lead back to files: mountinfo, swaps."""
    return names_of(read_bytes(path))


def inflated(raw: bytes, most: int, where: str, *, wbits: int = zlib.MAX_WBITS, base: bytes = b"") -> bytes:
    """What was compressed, within a bound: a few bytes can stand for very many. `wbits` and `base` are those
    that it was compressed with."""
    expander = zlib.decompressobj(wbits, zdict=base) if base else zlib.decompressobj(wbits)
    try:
        expanded = expander.decompress(raw, most)
    except zlib.error as error:
        raise BadInput(f"{where} is damaged: {error}") from error
    if not expander.eof or expander.unused_data:
        raise BadInput(f"{where} is cut, or has more than {most} bytes")
    return expanded


def parse_json(raw: bytes | str, where: str, most_memory: int = MOST_MEMORY) -> Any:  # noqa: ANN401
    """A JSON document; BadInput where it is none, goes deeper than any that is meant, or has values that take
    more than `most_memory` bytes."""
    encoded = raw.encode("utf-8", "replace") if isinstance(raw, str) else raw
    if len(encoded) > MOST_BYTES:
        raise BadInput(f"{where} has more than {MOST_BYTES} bytes: it is not what it should be")
    if _cost(encoded) > most_memory:
        raise BadInput(
            f"{where} has so many values that they take more than {most_memory >> 20} MiB of memory: it is "
            "not what it should be"
        )
    if _depth(encoded) > DEEPEST and _depth(re.sub(_STRING, b"", encoded)) > DEEPEST:
        raise BadInput(f"{where}: its values lie more than {DEEPEST} deep in each other")
    try:
        return json.loads(text_of(encoded), parse_int=_integer)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{where}: no whole JSON: {error}") from error


def table_of(document: Any, where: str) -> dict[str, Any]:  # noqa: ANN401
    """A document that has to be a table of names."""
    if not isinstance(document, dict):
        raise BadInput(f"{where} is no table of names and values")
    return document


def _cost(encoded: bytes) -> int:
    """The memory that a document takes at most; signs within texts are counted too, to be quick."""
    return sum(encoded.count(sign) * cost for sign, cost in _COSTS.items())


def _depth(encoded: bytes) -> int:
    brackets = encoded.translate(None, _OTHERS)
    return max(accumulate(map(_DEPTH.__getitem__, brackets)), default=0)


def _integer(digits: str) -> int | str:
    """A number that no counter can have stays a text: int() takes minutes for some, and refuses others."""
    return int(digits) if len(digits) <= _MOST_DIGITS else digits


def whole(text: str, most_digits: int = 20) -> int | None:
    """A number of the kernel's, or None."""
    digits = text.strip()
    good = len(digits) <= most_digits and digits.isascii() and digits.isdecimal()
    return int(digits) if good else None


def numbers(words: list[str], most_digits: int = 20) -> list[int] | None:
    """Numbers of the kernel's, None when any of them is none: all are looked at as one."""
    digits = "".join(words)
    lengths = [*map(len, words)] or [0]
    good = digits.isascii() and digits.isdecimal() and min(lengths) > 0 and max(lengths) <= most_digits
    return [int(word) for word in words] if good or not words else None
