"""Variable-length integers of up to 64 bits: seven bits per byte, the lowest first."""

from __future__ import annotations

from collections.abc import Sequence

from opwatch.errors import BadInput

MODULUS = 1 << 64
_MASK = MODULUS - 1
_SIGN = 1 << 63
_MAX_BYTES = 10
# The smallest change that takes two bytes.
_ONE_BYTE = 0x40


def put_number(out: bytearray, value: int) -> None:
    """Append a number from 0 to 2^64 - 1."""
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def put_change(out: bytearray, change: int) -> None:
    """Append a difference modulo 2^64. Small differences are short, positive or negative."""
    if 0 <= change < _ONE_BYTE:
        # Fast path for most changes.
        out.append(change << 1)
        return
    change &= _MASK
    put_number(out, (MODULUS - change << 1) - 1 if change & _SIGN else change << 1)


def decode_changes(raw: bytes) -> list[int]:
    """Decode the output of put_change(), without checks for invalid input."""
    changes = []
    value = shift = 0
    for byte in raw:
        value |= (byte & 0x7F) << shift
        if byte & 0x80:
            shift += 7
        else:
            changes.append(-(value >> 1) - 1 if value & 1 else value >> 1)
            value = shift = 0
    return changes


class Varints:
    """Reads the output of put() and put_change(). Raises BadInput with the position of invalid input."""

    __slots__ = ("_at", "_raw", "_where")

    def __init__(self, raw: bytes, where: str) -> None:
        self._raw, self._where, self._at = raw, where, 0

    @property
    def is_at_end(self) -> bool:
        return self._at == len(self._raw)

    @property
    def bytes_read(self) -> int:
        """Number of bytes read."""
        return self._at

    def read_number(self) -> int:
        raw, at = self._raw, self._at
        value = shift = 0
        try:
            while (byte := raw[at]) & 0x80:
                value |= (byte & 0x7F) << shift
                shift += 7
                at += 1
        except IndexError:
            raise BadInput(f"{self._where} ends inside a number, after {len(raw)} bytes") from None
        value |= byte << shift
        if at - self._at >= _MAX_BYTES or value >= MODULUS:
            raise BadInput(f"{self._where}: a number exceeds 64 bits at byte {self._at}")
        self._at = at + 1
        return value

    def read_numbers(self, count: int) -> Sequence[int]:
        """Return the next `count` numbers."""
        part = self._raw[self._at : self._at + count]
        if len(part) == count and part.isascii():
            # Fast path for numbers of one byte each.
            self._at += count
            return part
        return [self.read_number() for _ in range(count)]

    def read_change(self) -> int:
        value = self.read_number()
        return -(value >> 1) - 1 if value & 1 else value >> 1

    def number_up_to(self, most: int, what: str) -> int:
        """Return the next number; raise BadInput if larger than `most`."""
        value = self.read_number()
        if value > most:
            raise BadInput(f"{self._where}: {what} is {value}, but at most {most} is valid")
        return value
