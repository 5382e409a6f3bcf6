"""Read loop devices and their backing files."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from opwatch.collectors.firmware.drive_folder import find_drive_folder
from opwatch.collectors.stack.reading import LayerReading
from opwatch.host.device import BlockDevice, Devices
from opwatch.host.usage import Mount, find_mount
from opwatch.trim.layers.loop import LoopFacts
from opwatch.trim.stack.facts import Unread
from opwatch.trim.stack.layers import Kind


def read_loop(device: BlockDevice, devices: Devices, mounts: Sequence[Mount]) -> LayerReading:
    """Return the backing file's facts. A backing block device becomes the lower layer."""
    file = device.read_attribute("loop/backing_file")
    if not file:
        # For a file without a name, the kernel reports an empty name.
        layer = LayerReading(Kind.LOOP, (), LoopFacts(backing_file=file))
        if file is None:
            layer.unknown[Unread.BACKING_FILE] = "no file is attached"
        return layer
    facts = LoopFacts(
        backing_file=file,
        simulated_drive=True if find_drive_folder(device) else None,
        offset_bytes=device.read_number("loop/offset") or None,
    )
    layer = LayerReading(Kind.LOOP, (), facts)
    try:
        status = Path(file).stat()
    except OSError as error:
        layer.unknown[Unread.BACKING_FILESYSTEM] = f"{file}: {error.strerror}"
        return layer
    if stat.S_ISBLK(status.st_mode):
        layer.facts = replace(facts, backing_is_device=True)
        layer.below = (devices.resolve(file).name,)
    elif mount := find_mount(os.path.realpath(file), mounts):
        layer.facts = replace(facts, backing_filesystem=mount.filesystem, backing_mount=mount.point)
    return layer
