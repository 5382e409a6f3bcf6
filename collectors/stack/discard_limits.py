"""Read the discard limits of a queue."""

from __future__ import annotations

from opwatch.host.alignment import read_discard_alignment
from opwatch.host.device import BlockDevice
from opwatch.trim.stack.limits import QueueLimits


def read_queue_limits(device: BlockDevice) -> QueueLimits:
    """Return the discard limits that the kernel applies: the whole disk's, with the partition's alignment."""
    disk = device.disk

    def read_number(path: str) -> int | None:
        value = disk.read_number(path)
        return None if value is None or value < 0 else value

    return QueueLimits(
        read_number("queue/discard_granularity"),
        read_discard_alignment(device),
        read_number("queue/discard_max_bytes"),
        read_number("queue/discard_max_hw_bytes"),
        read_number("queue/max_discard_segments"),
    )
