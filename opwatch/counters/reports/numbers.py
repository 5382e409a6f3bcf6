"""Numbers as tools print them: strict, because half a number is a wrong one."""

from __future__ import annotations

import re

# Thousands as languages have them; in India the groups before the last are pairs.
_GROUPED = re.compile(
    r"\d{1,3}(?:([,.'\u2019\u00a0\u2009\u202f ])\d{3})(?:\1\d{3})*|\d{1,2}(?:,\d\d)+,\d{3}", re.ASCII
)
_PLAIN = re.compile(r"[0-9]{1,39}")
# 39 digits and the separators between them.
_LONGEST = 60
_HEX = re.compile(r"0[xX][0-9a-fA-F]{1,32}")


def whole_number(text: str) -> int | None:
    """A non-negative integer: plain, in hex, or with one kind of separator between thousands; else None."""
    text = text.strip()
    if len(text) > _LONGEST:
        return None
    if _PLAIN.fullmatch(text):
        return int(text)
    if _HEX.fullmatch(text):
        return int(text, 16)
    if _GROUPED.fullmatch(text):
        return int("".join(char for char in text if char.isdigit()))
    return None


def json_number(value: object) -> int | None:
    """A counter in a JSON document: an integer, a string of one, or the halves of one; None for all else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value if 0 <= value < 1 << 128 else None
    if isinstance(value, float):
        # Some tools print whole numbers so. Beyond 2^53 it is a rounded one.
        return int(value) if value.is_integer() and 0 <= value <= 1 << 53 else None
    if isinstance(value, str):
        return whole_number(value)
    if isinstance(value, dict) and set(value) == {"hi", "lo"}:
        high, low = json_number(value["hi"]), json_number(value["lo"])
        return None if high is None or low is None or low >> 64 or high >> 64 else high << 64 | low
    return None


def scaled(text: str, digits: int) -> int | None:
    """A decimal fraction times 10^digits as an exact integer; None when it has more digits, or is none."""
    fraction = re.fullmatch(r"(\d{1,20})(?:[.,](\d+))?", text.strip(), re.ASCII)
    if not fraction or len(fraction[2] or "") > digits:
        return None
    return int(fraction[1] + (fraction[2] or "").ljust(digits, "0"))
