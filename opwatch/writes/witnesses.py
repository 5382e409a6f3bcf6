"""Counters that file systems keep of their own writes, to compare with ours. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from opwatch.errors import BadInput
from opwatch.foreign import parse_all_unsigned, parse_unsigned

# XFS counts its log in basic blocks.
_XFS_BLOCK = 512


@dataclass(frozen=True, slots=True)
class FilesystemCounters:
    """Absolute counters of a file system; None where it has none. `source` names them.

    `application` includes direct and asynchronous I/O, but not stores to mapped files.
    """

    source: str | None = None
    application: int | None = None
    data: int | None = None
    journal: int | None = None
    metadata: int | None = None
    node: int | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Witness:
    """The growth of a class by our count and by the file system's own."""

    source: str
    counted_bytes: int
    reported_bytes: int

    @property
    def agrees(self) -> bool:
        return self.counted_bytes == self.reported_bytes


def parse_xfs_stats(text: str) -> FilesystemCounters:
    """Parse /sys/fs/xfs/DEV/stats/stats. Raise BadInput if a field that we need is missing."""
    numbers: dict[str, list[int]] = {}
    for line in text.splitlines():
        name, *words = line.split()[:16] or [""]
        parsed = parse_all_unsigned(words)
        if parsed is not None:
            numbers[name] = parsed
    log, bytes_ = numbers.get("log", []), numbers.get("xpc", [])
    if len(log) < 2 or len(bytes_) < 2:
        raise BadInput("XFS statistics without the fields of log and xpc")
    return FilesystemCounters("XFS's own counters", application=bytes_[1], journal=log[1] * _XFS_BLOCK)


def parse_f2fs_iostat(text: str) -> FilesystemCounters:
    """Parse /proc/fs/f2fs/DEV/iostat_info. Raise BadInput if a field that we need is missing.

    The counters of compressed data are parts of the others.
    """
    sizes: dict[str, int] = {}
    for line in text.splitlines():
        if line.startswith("[READ]"):
            break
        name, _, rest = line.partition(":")
        size = parse_unsigned((rest.split() or [""])[0])
        if size is not None:
            # Old kernels call app's counters "app buffered", and list reads later under the same names.
            old = name.startswith("app ") and not name.endswith("data")
            sizes.setdefault(f"{name.strip()} data" if old else name.strip(), size)
    needed = ("app buffered data", "app direct data", "fs data", "fs node", "fs meta")
    if missing := [name for name in needed if name not in sizes]:
        raise BadInput(f"f2fs statistics without {', '.join(missing)}")

    def add_up(*names: str) -> int:
        return sum(sizes.get(name, 0) for name in names)

    return FilesystemCounters(
        "f2fs's own counters",
        application=add_up("app buffered data", "app direct data"),
        data=add_up("app direct data", "fs data", "fs gc data", "fs cp data"),
        metadata=add_up("fs meta", "fs cp meta"),
        node=add_up("fs node", "fs gc node", "fs cp node"),
    )
