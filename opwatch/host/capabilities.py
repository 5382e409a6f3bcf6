"""The capabilities of the current process."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from opwatch.foreign import read_text

# From linux/capability.h, part of the kernel's stable interface.
_NUMBERS = {"CAP_SYS_PTRACE": 19, "CAP_SYS_ADMIN": 21, "CAP_PERFMON": 38, "CAP_BPF": 39}
TRACING = ("CAP_BPF", "CAP_PERFMON")


def parse_effective(status: str) -> int:
    """Return the effective set from the text of /proc/self/status; 0 if the text has none."""
    mask = re.search(r"^CapEff:\s*([0-9a-f]+)", status, re.MULTILINE)
    return int(mask[1], 16) if mask else 0


def list_missing(wanted: Iterable[str] = TRACING) -> list[str]:
    """Return the wanted capabilities that are missing. CAP_SYS_ADMIN implies the tracing capabilities."""
    mask = parse_effective(read_text(Path("/proc/self/status")))
    if mask >> _NUMBERS["CAP_SYS_ADMIN"] & 1:
        return []
    return [name for name in wanted if not mask >> _NUMBERS[name] & 1]


def has_capability(name: str) -> bool:
    """Return True if the process holds the capability directly."""
    return bool(parse_effective(read_text(Path("/proc/self/status"))) >> _NUMBERS[name] & 1)
