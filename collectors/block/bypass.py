"""I/O that reaches a driver without a bio, so that no tracepoint of the block layer sees it."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from opwatch.host.device import Leaf

_SYMBOLS = Path("/proc/kallsyms")
# The drivers that had the callback.
_DRIVERS = re.compile(r"(?:ram|zram|pmem)[0-9]")
_WORDS = (
    "single pages that swap and some filesystems read and write: this kernel passes them to the driver "
    "without a bio (rw_page, until Linux 6.3), so they are in no count"
)


def unseen_pages(leaf: Leaf, symbols: Path = _SYMBOLS) -> tuple[str, ...]:
    """Return what is not counted of this disk because its driver may be called directly; mostly nothing."""
    disk = leaf.device.disk
    if disk.is_request_based or not _DRIVERS.match(disk.name) or not _has_page_calls(symbols):
        return ()
    return (_WORDS,)


@cache
def _has_page_calls(symbols: Path) -> bool:
    """Whether this kernel reads pages from a driver directly.

    Linux kernel commit 3222d8c2a7f8 ("block: remove ->rw_page") (in v6.3) removed the function. A list that
    cannot be read proves nothing: then it is taken to be there.
    """
    try:
        with symbols.open(errors="replace") as lines:
            return any(line.split()[2:3] == ["bdev_read_page"] for line in lines)
    except OSError:
        return True
