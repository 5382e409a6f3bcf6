"""Read the counters that a file system keeps of its own writes."""

from __future__ import annotations

from pathlib import Path

from opwatch.errors import BadInput
from opwatch.foreign import read_text
from opwatch.host.device import BlockDevice
from opwatch.writes.witnesses import FilesystemCounters, parse_f2fs_iostat, parse_xfs_stats

_SYS, _PROC = Path("/sys"), Path("/proc")


def read_filesystem_counters(
    kind: str, device: BlockDevice, sys: Path = _SYS, proc: Path = _PROC
) -> FilesystemCounters:
    """Return the counters of the file system on a device, or the reason why there are none.

    `kind` is the type of the file system in mountinfo.
    """
    try:
        if kind == "xfs":
            return parse_xfs_stats(read_text(sys / "fs" / "xfs" / device.name / "stats" / "stats"))
        if kind == "f2fs":
            return _read_f2fs(device, sys, proc)
    except (OSError, BadInput) as error:
        return FilesystemCounters(reason=f"{kind}'s own counters: {error}")
    return FilesystemCounters()


def _read_f2fs(device: BlockDevice, sys: Path, proc: Path) -> FilesystemCounters:
    switch = sys / "fs" / "f2fs" / device.name / "iostat_enable"
    if read_text(switch).strip() != "1":
        return FilesystemCounters(reason=f"f2fs counts its writes only after: echo 1 > {switch}")
    return parse_f2fs_iostat(read_text(proc / "fs" / "f2fs" / device.name / "iostat_info"))


def read_dirty_bytes(proc: Path = _PROC) -> int | None:
    """Return the memory of this machine that waits to be written, or None if unreadable."""
    try:
        lines = read_text(proc / "meminfo").splitlines()
    except (OSError, BadInput):
        return None
    for line in lines:
        name, _, rest = line.partition(":")
        words = rest.split()
        if name == "Dirty" and words and words[0].isdecimal():
            return int(words[0]) * 1024
    return None
