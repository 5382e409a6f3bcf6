"""Parse numbers as tools print them. Strict, because a partly parsed number would be wrong."""

from __future__ import annotations

import re

# Thousands separators of many locales; Indian locales group the leading digits in pairs.
_GROUPED = re.compile(
    r"\d{1,3}(?:([,.'\u2019\u00a0\u2009\u202f ])\d{3})(?:\1\d{3})*|\d{1,2}(?:,\d\d)+,\d{3}", re.ASCII
)
_PLAIN = re.compile(r"[0-9]{1,39}")
# 39 digits and their separators.
_LONGEST = 60
_HEX = re.compile(r"0[xX][0-9a-fA-F]{1,32}")


def parse_integer(text: str) -> int | None:
    """Return a non-negative integer (plain, hex, or with one kind of thousands separator), else None."""
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


def parse_json_number(value: object) -> int | None:
    """Return a counter in a JSON document (an integer, its text, or its halves), else None."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value if 0 <= value < 1 << 128 else None
    if isinstance(value, float):
        # Some tools print integers as floats. Beyond 2^53 they are rounded.
        return int(value) if value.is_integer() and 0 <= value <= 1 << 53 else None
    if isinstance(value, str):
        return parse_integer(value)
    if isinstance(value, dict) and set(value) == {"hi", "lo"}:
        high, low = parse_json_number(value["hi"]), parse_json_number(value["lo"])
        return None if high is None or low is None or low >> 64 or high >> 64 else high << 64 | low
    return None


def parse_fixed_point(text: str, digits: int) -> int | None:
    """Return a decimal fraction times 10^digits as an exact integer, or None if longer or invalid."""
    fraction = re.fullmatch(r"(\d{1,20})(?:[.,](\d+))?", text.strip(), re.ASCII)
    if not fraction or len(fraction[2] or "") > digits:
        return None
    return int(fraction[1] + (fraction[2] or "").ljust(digits, "0"))
