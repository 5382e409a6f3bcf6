"""Columns of noisy changes such as clocks, with as few bits per value as possible.

A column has a middle value. Deviations from the middle are Rice-coded: the number without its low bits as a
count of ones and a zero, then the low bits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from opwatch.errors import BadInput
from opwatch.recording.coding.varints import MODULUS, Varints, decode_changes, put_change, put_number

_MASK = MODULUS - 1
_SIGN = 1 << 63
# Larger numbers are written as this many ones, followed by all bits.
_MAX_ONES = 24
_WHOLE_BITS = 64
# All values of the column equal the middle.
_CONSTANT = 64


class Changes:
    """Reads changes from numbers, with the interface of Varints."""

    def __init__(self, values: Iterable[int], where: str) -> None:
        self._values, self._where = iter(values), where
        self._next = next(self._values, None)

    @property
    def is_at_end(self) -> bool:
        return self._next is None

    def read_change(self) -> int:
        value = self._next
        if value is None:
            raise BadInput(f"{self._where} has too few values")
        self._next = next(self._values, None)
        return value


def pack_columns(raw: bytes, width: int) -> bytes:
    """Encode rows of `width` changes in put_change() format as columns."""
    values = decode_changes(raw)
    out, bits = bytearray(), []
    put_number(out, len(values) // width)
    for at in range(width):
        bits.append(_encode_column(out, values[at::width]))
    text = "".join(bits)
    return bytes(out) + _pack_bits(text)


def _pack_bits(bits: str) -> bytes:
    length = (len(bits) + 7) // 8
    return int(bits.ljust(8 * length, "0") or "0", 2).to_bytes(length)


def _encode_column(out: bytearray, values: Sequence[int]) -> str:
    """Return the bits of a column; append its parameters to `out`."""
    middle = _find_median(values)
    folded = [_fold_sign(value - middle) for value in values]
    usual = _find_median(folded).bit_length()
    near = range(max(usual - 2, 0), min(usual + 2, _WHOLE_BITS))
    low_bits = min(near, key=lambda bits: _encoded_bits(folded, bits)) if any(folded) else _CONSTANT
    put_number(out, low_bits)
    put_change(out, middle)
    return "" if low_bits == _CONSTANT else "".join(_encode_rice(value, low_bits) for value in folded)


def _find_median(values: Sequence[int]) -> int:
    return sorted(values)[len(values) // 2] if values else 0


def _fold_sign(change: int) -> int:
    """Return the change as a number from 0, small for small changes of either sign."""
    change &= _MASK
    return (MODULUS - change << 1) - 1 if change & _SIGN else change << 1


def _encoded_bits(folded: Sequence[int], low_bits: int) -> int:
    ones = [value >> low_bits for value in folded]
    if max(ones) < _MAX_ONES:
        return sum(ones) + len(ones) * (1 + low_bits)
    return sum(count + 1 + low_bits if count < _MAX_ONES else _MAX_ONES + _WHOLE_BITS for count in ones)


def _encode_rice(value: int, low_bits: int) -> str:
    ones = value >> low_bits
    if ones >= _MAX_ONES:
        return "1" * _MAX_ONES + f"{value:0{_WHOLE_BITS}b}"
    low = f"{value & ((1 << low_bits) - 1):0{low_bits}b}" if low_bits else ""
    return "1" * ones + "0" + low


def unpack_columns(raw: bytes, width: int, most_rows: int, where: str) -> list[list[int]]:
    """Decode the columns from the output of packed()."""
    numbers = Varints(raw, where)
    rows = numbers.number_up_to(most_rows, "the number of rows")
    heads = [
        (numbers.number_up_to(_CONSTANT, "the bits per column"), numbers.read_change()) for _ in range(width)
    ]
    rest = raw[numbers.bytes_read :]
    bits = _Bits(f"{int.from_bytes(rest):0{8 * len(rest)}b}" if rest else "", where)
    columns = [
        [middle] * rows
        if low_bits == _CONSTANT
        else [middle + bits.read_change(low_bits) for _ in range(rows)]
        for low_bits, middle in heads
    ]
    bits.check_end()
    return columns


def iterate_rows(columns: Sequence[Sequence[int]]) -> Iterator[int]:
    """Return all values, row by row."""
    return chain.from_iterable(zip(*columns, strict=True))


class _Bits:
    """A reader of bits."""

    def __init__(self, text: str, where: str) -> None:
        self._text, self._where, self._at = text, where, 0

    def read_change(self, low_bits: int) -> int:
        text, at = self._text, self._at
        zero = text.find("0", at, at + _MAX_ONES)
        if zero < 0:
            begin, end = at + _MAX_ONES, at + _MAX_ONES + _WHOLE_BITS
            ones = 0
        else:
            begin, end = zero + 1, zero + 1 + low_bits
            ones = zero - at
        if end > len(text):
            raise BadInput(f"{self._where} ends inside a column")
        self._at = end
        value = (ones << low_bits) | int(text[begin:end] or "0", 2)
        return -(value >> 1) - 1 if value & 1 else value >> 1

    def check_end(self) -> None:
        """Refuse trailing data other than padding of the last byte."""
        rest = self._text[self._at :]
        if len(rest) > 7 or "1" in rest:
            raise BadInput(f"{self._where}: extra data after its columns")
