"""Find the addresses of kernel functions."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

_SYMBOLS = Path("/proc/kallsyms")


def find_function_addresses(names: Collection[str], symbols: Path = _SYMBOLS) -> dict[str, list[int]]:
    """Return the addresses of the functions that the kernel or its modules have, by name.

    Empty if the kernel hides addresses (kptr_restrict) or has no symbols.
    """
    found: dict[str, list[int]] = {}
    try:
        with symbols.open(errors="replace") as file:
            for line in file:
                fields = line.split(None, 3)
                # A compiler's copy of a function has a suffix; a cold part is never called by address.
                name, _, suffix = fields[2].partition(".") if len(fields) > 2 else ("", "", "")
                if name in names and fields[1] in "tTwW" and not suffix.startswith("cold"):
                    _add_address(found, name, fields[0])
    except OSError:
        return {}
    return found


def _add_address(found: dict[str, list[int]], name: str, text: str) -> None:
    """Add an address, unless it is hidden or malformed."""
    try:
        address = int(text, 16)
    except ValueError:
        return
    if address:
        found.setdefault(name, []).append(address)
