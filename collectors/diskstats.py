"""/sys/block/*/stat: the kernel's own counts, an independent witness of what the tracer saw."""

from __future__ import annotations

import time
from dataclasses import dataclass

from opwatch.device import BlockDevice, LiveAttribute

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


def no_witness(device: BlockDevice) -> str | None:
    """Why the kernel's statistics of a device cannot be held against the tracer's, None when they can."""
    if not device.disk.is_request_based:
        return "a bio-based driver keeps its own statistics"
    if device.disk.number("queue/iostats") == 0:
        return f"statistics are off: echo 1 > /sys/block/{device.disk.name}/queue/iostats"
    return None


def is_idle(device: BlockDevice) -> bool:
    """Whether the kernel says that nothing is in flight. False as well where it does not count."""
    return device.number("queue/iostats") == 1 and (device.attribute("inflight") or "1").split() == ["0", "0"]


class StatReader:
    """The stat file of one device. `reason` says why there is nothing to read, None when there is."""

    def __init__(self, device: BlockDevice) -> None:
        self.reason = no_witness(device)
        self._file = LiveAttribute(device.sysfs / "stat")
        self._switch = LiveAttribute(device.disk.sysfs / "queue" / "iostats")
        self._looks = False

    def read(self) -> StatSample | None:
        """The counters now; None when they mean nothing or the device is gone."""
        # Every other time is enough: a sample lies between two readings.
        self._looks = not self._looks
        if self._looks and not self.reason and (self._switch.read() or "").strip() == "0":
            # For good: what is counted after they are switched on again has a hole in it.
            self.reason = "statistics were switched off meanwhile"
        if self.reason:
            return None
        begin = time.monotonic_ns()
        text = self._file.read()
        end = time.monotonic_ns()
        return StatSample(begin, end, *decode_stat(text)) if text else None

    def close(self) -> None:
        self._file.close()
        self._switch.close()
