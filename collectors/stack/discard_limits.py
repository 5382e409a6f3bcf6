"""Read the discard limits of a queue."""

from __future__ import annotations

from opwatch.host.alignment import discard_alignment
from opwatch.host.device import BlockDevice
from opwatch.trim.stack.limits import QueueLimits


def limits_of(device: BlockDevice) -> QueueLimits:
    """Return the discard limits that the kernel applies: the whole disk's, with the partition's alignment."""
    disk = device.disk

    def number(path: str) -> int | None:
        value = disk.number(path)
        return None if value is None or value < 0 else value

    return QueueLimits(
        number("queue/discard_granularity"),
        discard_alignment(device),
        number("queue/discard_max_bytes"),
        number("queue/discard_max_hw_bytes"),
        number("queue/max_discard_segments"),
    )
