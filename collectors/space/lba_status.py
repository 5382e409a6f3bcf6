"""Read a SCSI disk's map of allocated blocks by GET LBA STATUS."""

from __future__ import annotations

import os
import time

from opwatch.collectors.space.device_handle import open_device
from opwatch.collectors.space.scsi import ScsiRefusal, ask_scsi
from opwatch.errors import BadInput
from opwatch.host.device import BlockDevice
from opwatch.trim.space import lba_status
from opwatch.trim.space.extents import Extents

_ANSWER_BYTES = 64 << 10


def _get_lba_status(descriptor: int, first_block: int) -> bytes:
    """Return the answer to one command. Raise OSError if not a SCSI disk, BadInput if refused."""
    try:
        return ask_scsi(descriptor, lba_status.encode_command(first_block, _ANSWER_BYTES), _ANSWER_BYTES)
    except ScsiRefusal as error:
        raise BadInput("the disk does not support GET LBA STATUS") from error


def _read_mapped_runs(
    descriptor: int, block_bytes: int, start: int, stop: int, deadline: float
) -> list[tuple[int, int]]:
    """Return the mapped runs from `start` to at least `stop`. Raise BadInput for a bad or late answer."""
    pairs: list[tuple[int, int]] = []
    at = start
    while at < stop:
        runs = lba_status.decode_runs(_get_lba_status(descriptor, at // block_bytes), block_bytes)
        # The first run may start before the requested block.
        if runs[-1].end <= at or runs[0].start > at or time.monotonic() > deadline:
            raise BadInput("the disk's map is incomplete, or reading it takes too long")
        pairs += [(run.start, run.end) for run in runs if run.mapped]
        at = runs[-1].end
    return pairs


def read_mapped_extents(
    device: BlockDevice, within_s: float = 3.0, where: Extents | None = None
) -> Extents | None:
    """Return the mapped bytes, limited to `where` if given. None if the disk does not report them in time."""
    if not (device.sysfs / "device" / "scsi_disk").is_dir():
        return None
    block_bytes = device.read_number("queue/logical_block_size") or 512
    descriptor = open_device(device)
    deadline = time.monotonic() + within_s
    ranges = Extents.from_pairs([(0, device.size_bytes)]) if where is None else where
    try:
        parts = [_read_mapped_runs(descriptor, block_bytes, start, end, deadline) for start, end in ranges]
    except (OSError, ValueError):
        return None
    finally:
        os.close(descriptor)
    mapped = Extents.from_pairs(pair for some in parts for pair in some)
    return mapped if where is None else mapped & where
