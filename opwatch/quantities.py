"""Parse sizes, percentages and counts, in the same form for every command.

Times are in opwatch/times.py.
"""

from __future__ import annotations

import re

from opwatch.errors import UsageError

_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_SIZE = r"([0-9]{1,20})(?:\.([0-9]{1,20}))?\s*([kmgt]?)(i?b)?"
_PERCENTAGE = r"([0-9]{1,12})(?:\.([0-9]{1,12}))?\s*%"
_COUNT = r"[0-9]{1,20}"


def parse_size(text: str) -> int:
    """Return the number of bytes. K, M, G, T (also KiB ...) are powers of 1024; KB, MB, GB, TB powers of
    1000."""
    size = re.fullmatch(_SIZE, text.strip().lower(), re.ASCII)
    if not size or (size[4] == "ib" and not size[3]):
        raise UsageError(
            f"{text!r} is not a valid size (e.g. 4G or 512M in powers of 1024, 4GB in powers of 1000)"
        )
    digits, scale = _parse_decimal(size)
    base = 1000 if size[4] == "b" else 1024
    n_bytes, rest = divmod(digits * int(base ** _POWERS[size[3]]), scale)
    if rest:
        raise UsageError(f"{text!r} is not a whole number of bytes")
    return n_bytes


def parse_percentage(text: str) -> tuple[int, int]:
    """Return the exact ratio as (numerator, denominator): (75, 1000) for 7.5%.

    The % sign is required, because a bare 1 is ambiguous.
    """
    percentage = re.fullmatch(_PERCENTAGE, text.strip(), re.ASCII)
    if not percentage:
        raise UsageError(f"{text!r} is not a percentage: write it with its sign, e.g. 7% or 0.5%")
    digits, scale = _parse_decimal(percentage)
    return digits, scale * 100


def parse_count(text: str) -> int:
    """Return a whole number, 0 included."""
    if not re.fullmatch(_COUNT, text.strip(), re.ASCII):
        raise UsageError(f"{text!r} is not a whole number")
    return int(text)


def _parse_decimal(written: re.Match[str]) -> tuple[int, int]:
    """Return (digits without the decimal point, divisor) from the first two groups."""
    fraction = written[2] or ""
    return int(written[1] + fraction), int("1" + "0" * len(fraction))
