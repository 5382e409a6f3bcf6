"""/sys/block/*/stat: the kernel's own counts, an independent witness of what the tracer saw."""

from __future__ import annotations

import time
from dataclasses import dataclass

from opwatch.device import BlockDevice

SECTOR = 512


@dataclass(frozen=True, slots=True)
class StatSample:
    """One reading of a stat file. Absolute; requests are counted when they complete."""

    begin_ns: int
    end_ns: int
    requests: dict[str, int]
    bytes: dict[str, int]


def decode_stat(text: str) -> tuple[dict[str, int], dict[str, int]]:
    """(requests, bytes) by group. Pure. Groups the kernel does not have are left out."""
    fields = [int(field) for field in text.split()]
    if len(fields) < 11:
        raise ValueError(f"a stat file has at least 11 fields, not {len(fields)}")
    requests = {"read": fields[0], "write": fields[4]}
    bytes_ = {"read": fields[2] * SECTOR, "write": fields[6] * SECTOR}
    if len(fields) >= 15:
        requests["discard"] = fields[11]
        bytes_["discard"] = fields[13] * SECTOR
    if len(fields) >= 17:
        requests["flush"] = fields[15]
    return requests, bytes_


def read_stat(device: BlockDevice) -> StatSample | None:
    """The counters now; None when the device is gone, has no stat file or keeps no statistics."""
    if device.disk.number("queue/iostats") == 0:
        return None
    begin = time.monotonic_ns()
    text = device.attribute("stat")
    end = time.monotonic_ns()
    if not text:
        return None
    return StatSample(begin, end, *decode_stat(text))
