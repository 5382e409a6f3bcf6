"""I/O that reaches a driver without a bio, so that no tracepoint of the block layer sees it."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from opwatch.collectors.block.diskstats import counts_refused_clones
from opwatch.host.device import Leaf

_SYMBOLS = Path("/proc/kallsyms")
# The drivers that had the callback.
_DRIVERS = re.compile(r"(?:ram|zram|pmem)[0-9]")
_CLONES = (
    "the kernel's count of requests: it counts those that this path of a multipath device refused; bytes are "
    "compared"
)
# Levels of md that send the bio they were given to a member.
_REMAPPING = ("raid0", "linear")
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


def unseen_remaps(leaf: Leaf, symbols: Path = _SYMBOLS) -> tuple[str, ...]:
    """Return what is not counted of a disk whose driver takes bios, because an array above passes on its own.

    The kernel traces a bio once, at the first device that it is sent to. Linux kernel commit 10764815ff47
    ("md: add io accounting for raid0 and raid5") (in v5.14) made RAID 0 send copies.
    """
    disk = leaf.device.disk
    if disk.is_request_based or _has_symbol(symbols, "md_account_bio"):
        return ()
    levels = {name: disk.attribute(f"holders/{name}/md/level") for name in disk.holders()}
    return tuple(
        f"I/O of {name} above: this kernel traces a bio only at the first device, "
        f"and {level} passes its bios on (until Linux 5.14)"
        for name, level in levels.items()
        if level in _REMAPPING
    )


def refused_clones(leaf: Leaf) -> tuple[str, ...]:
    """Return which kernel count is not compared for a path of request-based multipath; mostly nothing."""
    if not counts_refused_clones(leaf.device):
        return ()
    return (_CLONES,)


def _has_symbol(symbols: Path, name: str) -> bool:
    """Whether the kernel has a function. A list that cannot be read proves nothing: then it does not."""
    try:
        with symbols.open(errors="replace") as lines:
            return any(line.split()[2:3] == [name] for line in lines)
    except OSError:
        return False


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
