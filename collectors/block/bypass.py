"""I/O that bypasses the tracepoints of the block layer because the driver gets no bio."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from opwatch.collectors.block.diskstats import counts_refused_clones
from opwatch.host.device import Leaf

_SYMBOLS = Path("/proc/kallsyms")
# Drivers that had the callback.
_DRIVERS = re.compile(r"(?:ram|zram|pmem)[0-9]")
_CLONES = (
    "the kernel's request count: it includes requests that this path of a multipath device refused; only "
    "bytes are compared"
)
# md levels that send the original bio to a member.
_REMAPPING = ("raid0", "linear")
_WORDS = (
    "single pages read and written by swap and some filesystems: this kernel passes them to the driver "
    "without a bio (rw_page, before Linux 6.3), so they are not counted"
)


def find_uncounted_pages(leaf: Leaf, symbols: Path = _SYMBOLS) -> tuple[str, ...]:
    """Return I/O that is not counted because the driver may be called directly. Usually empty."""
    disk = leaf.device.disk
    if disk.is_request_based or not _DRIVERS.match(disk.name) or not _has_page_calls(symbols):
        return ()
    return (_WORDS,)


def find_uncounted_remaps(leaf: Leaf, symbols: Path = _SYMBOLS) -> tuple[str, ...]:
    """Return I/O that is not counted on a bio-based disk, because an array above passes its bios on.

    The kernel traces a bio once, at the first device that it is sent to. Linux kernel commit 10764815ff47
    ("md: add io accounting for raid0 and raid5") (in v5.14) made RAID 0 send copies.
    """
    disk = leaf.device.disk
    if disk.is_request_based or _has_symbol(symbols, "md_account_bio"):
        return ()
    levels = {name: disk.read_attribute(f"holders/{name}/md/level") for name in disk.list_holders()}
    return tuple(
        f"I/O through {name}: this kernel traces a bio only at the first device, "
        f"and {level} passes its bios on (before Linux 5.14)"
        for name, level in levels.items()
        if level in _REMAPPING
    )


def find_refused_clones(leaf: Leaf) -> tuple[str, ...]:
    """Return the kernel count that is not compared for a path of request-based multipath. Usually empty."""
    if not counts_refused_clones(leaf.device):
        return ()
    return (_CLONES,)


def _has_symbol(symbols: Path, name: str) -> bool:
    """Return whether the kernel has a function. An unreadable list counts as no."""
    try:
        with symbols.open(errors="replace") as lines:
            return any(line.split()[2:3] == [name] for line in lines)
    except OSError:
        return False


@cache
def _has_page_calls(symbols: Path) -> bool:
    """Return whether this kernel reads pages from a driver directly.

    Linux kernel commit 3222d8c2a7f8 ("block: remove ->rw_page") (in v6.3) removed the function. An unreadable
    list counts as yes.
    """
    try:
        with symbols.open(errors="replace") as lines:
            return any(line.split()[2:3] == ["bdev_read_page"] for line in lines)
    except OSError:
        return True
