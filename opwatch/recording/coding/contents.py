"""Store the answers of drives: once while unchanged, and as a difference to an earlier answer of the same
length if most bytes are equal."""

from __future__ import annotations

import hashlib
import zlib
from dataclasses import dataclass

from opwatch.foreign import inflate_bytes

# A report of smartctl has 100 KiB.
MAX_BYTES = 4 << 20
_MAX_KNOWN, _MAX_BASES = 1024, 8
# A deflate stream without a header.
_RAW_DEFLATE = -15
# A difference longer than this share of the whole is stored whole, and becomes a base for later answers.
_MAX_DELTA_RATIO = 0.5


@dataclass(frozen=True, slots=True)
class Content:
    """A row of `contents`. `base` is the row whose bytes are the dictionary, or None if stored whole."""

    content: int
    base: int | None
    size: int
    body: bytes


class ContentWriter:
    """Numbers contents and creates their rows."""

    def __init__(self) -> None:
        self._known: dict[bytes, int] = {}
        self._bases: dict[int, list[tuple[int, bytes]]] = {}
        self._last = 0

    def add_content(self, raw: bytes) -> tuple[int, Content | None]:
        """Return (number, row to write, or None if already written)."""
        if len(raw) > MAX_BYTES:
            raise ValueError(f"an answer of {len(raw)} bytes is too large for a recording")
        digest = hashlib.sha256(raw).digest()
        if (number := self._known.get(digest)) is not None:
            return number, None
        self._last += 1
        if len(self._known) >= _MAX_KNOWN:
            del self._known[next(iter(self._known))]
        self._known[digest] = self._last
        return self._last, self._make_row(self._last, raw)

    def _make_row(self, number: int, raw: bytes) -> Content:
        whole = deflate_content(raw)
        bases = self._bases.setdefault(len(raw), [])
        against = [(deflate_content(raw, base), at) for at, base in bases]
        shortest, at = min(against, default=(whole, 0), key=lambda body_and_base: len(body_and_base[0]))
        if against and len(shortest) < _MAX_DELTA_RATIO * len(whole):
            return Content(number, at, len(raw), shortest)
        bases.append((number, raw))
        del bases[:-_MAX_BASES]
        if len(self._bases) > _MAX_BASES:
            del self._bases[next(iter(self._bases))]
        return Content(number, None, len(raw), whole)


def deflate_content(raw: bytes, base: bytes = b"") -> bytes:
    """Return a raw deflate stream. SQLite stores the length, and returns a blob whole or not at all."""
    writer = zlib.compressobj(9, zlib.DEFLATED, _RAW_DEFLATE, 9, zdict=base)
    return writer.compress(raw) + writer.flush()


def inflate_content(raw: bytes, most: int, where: str, base: bytes = b"") -> bytes:
    """Decompress the output of deflate_content()."""
    return inflate_bytes(raw, most, where, wbits=_RAW_DEFLATE, base=base)
