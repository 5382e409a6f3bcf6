"""Data about the drive and host for the report of a test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from opwatch import __version__
from opwatch.foreign import lines_of, text_of
from opwatch.host.details import read_identity, read_queue
from opwatch.host.device import BlockDevice, Devices

_MOST_BYTES = 1 << 20


def header_of(devices: Devices, disk: BlockDevice) -> dict[str, str | None]:
    """Return the header fields by name, None where unknown."""
    identity = read_identity(devices, disk)
    return {
        "device": identity.model,
        "serial": identity.serial,
        "firmware": identity.firmware,
        "capacity": f"{disk.size_bytes} bytes",
        "interface": identity.transport,
        "kind": disk.kind(),
        "write_cache": read_queue(disk).write_cache,
        "platform": ", ".join(_platform()),
        "software": f"opwatch {__version__}",
    }


def _platform() -> Iterator[str]:
    machine = os.uname()
    processor = _value(Path("/proc/cpuinfo"), "model name")
    yield f"{processor or machine.machine}, {os.cpu_count()} CPUs"
    memory = (_value(Path("/proc/meminfo"), "MemTotal") or "").split()
    if memory and memory[0].isdigit():
        yield f"{int(memory[0]) / (1 << 20):.1f} GiB of memory"
    yield f"{machine.sysname} {machine.release}"


def _value(path: Path, key: str) -> str | None:
    """Return the first value of a key in a /proc file."""
    try:
        with path.open("rb") as file:
            text = text_of(file.read(_MOST_BYTES))
    except OSError:
        return None
    for line in lines_of(text):
        name, colon, value = line.partition(":")
        if colon and name.strip() == key:
            return value.strip()
    return None
