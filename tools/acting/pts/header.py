"""Data about the drive and host for the report of a test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from opwatch import __version__
from opwatch.foreign import decode_text, split_lines
from opwatch.host.details import read_identity, read_queue
from opwatch.host.device import BlockDevice, Devices

_MAX_BYTES = 1 << 20


def read_header(devices: Devices, disk: BlockDevice) -> dict[str, str | None]:
    """Return the header fields by name, None where unknown."""
    identity = read_identity(devices, disk)
    return {
        "device": identity.model,
        "serial": identity.serial,
        "firmware": identity.firmware,
        "capacity": f"{disk.size_bytes} bytes",
        "interface": identity.transport,
        "kind": disk.read_kind(),
        "write_cache": read_queue(disk).write_cache,
        "platform": ", ".join(_describe_platform()),
        "software": f"opwatch {__version__}",
    }


def _describe_platform() -> Iterator[str]:
    machine = os.uname()
    processor = _read_value(Path("/proc/cpuinfo"), "model name")
    yield f"{processor or machine.machine}, {os.cpu_count()} CPUs"
    memory = (_read_value(Path("/proc/meminfo"), "MemTotal") or "").split()
    if memory and memory[0].isdigit():
        yield f"{int(memory[0]) / (1 << 20):.1f} GiB of memory"
    yield f"{machine.sysname} {machine.release}"


def _read_value(path: Path, key: str) -> str | None:
    """Return the first value of a key in a /proc file."""
    try:
        with path.open("rb") as file:
            text = decode_text(file.read(_MAX_BYTES))
    except OSError:
        return None
    for line in split_lines(text):
        name, colon, value = line.partition(":")
        if colon and name.strip() == key:
            return value.strip()
    return None
