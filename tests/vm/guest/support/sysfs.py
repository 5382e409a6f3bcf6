"""The kernel's view of block devices: lookup by serial number, attributes, statistics."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path

SYS_BLOCK = Path("/sys/block")
_SECTOR_BYTES = 512


def wait_for(what: str, ready: Callable[[], bool], timeout_s: float = 600.0) -> None:
    """Return as soon as `ready` is true; after the timeout, raise an error that names `what`."""
    deadline = time.monotonic() + timeout_s
    while not ready():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {timeout_s:g} s")
        time.sleep(0.05)


def _read_text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip(" \n\0")
    except OSError:
        return ""


def read_serial(name: str) -> str | None:
    """Return a disk's serial number from the driver's location, or None without a serial number."""
    folder = SYS_BLOCK / name
    for path in (folder / "serial", folder / "device/serial"):
        if _read_text(path):
            return _read_text(path)
    page = folder / "device/vpd_pg80"
    if page.exists():
        return page.read_bytes()[4:].decode(errors="replace").strip(" \0") or None
    for parent in folder.resolve().parents:
        if (parent / "idVendor").exists():
            return _read_text(parent / "serial") or None
    # A multipath node has the serial number of the subsystem's controllers.
    for controller in sorted((folder / "device").glob("nvme[0-9]*/serial")):
        return _read_text(controller)
    return None


def is_hidden(name: str) -> bool:
    """Return True for the path devices behind a multipath node."""
    return _read_text(SYS_BLOCK / name / "hidden") == "1"


def list_paths(name: str) -> list[str]:
    """Return the devices with the disk's requests: a multipath node's paths, or the disk itself."""
    match = re.fullmatch(r"nvme(\d+)n(\d+)", name)
    if not match:
        return [name]
    subsystem, namespace = match.groups()
    names = sorted(p.name for p in SYS_BLOCK.glob(f"nvme{subsystem}c*n{namespace}"))
    return names or [name]


def find_disks(serial_number: str) -> list[str]:
    """Return the visible whole disks with this serial number."""
    names = [path.name for path in sorted(SYS_BLOCK.iterdir())]
    return [name for name in names if not is_hidden(name) and read_serial(name) == serial_number]


def disk(serial_number: str) -> str:
    """Return the only disk with this serial number."""
    names = find_disks(serial_number)
    if len(names) != 1:
        raise LookupError(f"serial {serial_number!r} belongs to {names or 'no disk'}")
    return names[0]


def read_attribute(name: str, path: str) -> str:
    """Return a disk's attribute, such as "queue/discard_max_bytes"; a missing attribute is an error."""
    return (SYS_BLOCK / name / path).read_text().strip()


def read_number(name: str, path: str) -> int:
    """Return an attribute as a number."""
    return int(read_attribute(name, path))


def count_hardware_queues(name: str) -> int:
    """Return the number of hardware queues of a disk."""
    return len(list((SYS_BLOCK / name / "mq").iterdir()))


@dataclass(frozen=True)
class DiskStat:
    """Absolute counters of /sys/block/X/stat, with sizes in bytes."""

    reads: int
    read_merges: int
    read_bytes: int
    writes: int
    write_merges: int
    write_bytes: int
    discards: int
    discard_merges: int
    discard_bytes: int
    flushes: int

    def __sub__(self, before: DiskStat) -> DiskStat:
        """Return the growth between two samples; a counter that decreased is an error."""
        after = {f.name: getattr(self, f.name) - getattr(before, f.name) for f in fields(self)}
        backwards = [name for name, value in after.items() if value < 0]
        if backwards:
            raise ValueError(f"counters went backwards: {', '.join(backwards)}")
        return DiskStat(**after)


def parse_stat(text: str) -> DiskStat:
    """Return the record in the text of a stat file."""
    field = [int(word) for word in text.split()]
    sectors = _SECTOR_BYTES
    return DiskStat(
        reads=field[0],
        read_merges=field[1],
        read_bytes=field[2] * sectors,
        writes=field[4],
        write_merges=field[5],
        write_bytes=field[6] * sectors,
        discards=field[11],
        discard_merges=field[12],
        discard_bytes=field[13] * sectors,
        flushes=field[15],
    )


def read_stat(name: str) -> DiskStat:
    """Return a disk's current counters."""
    return parse_stat((SYS_BLOCK / name / "stat").read_text())
