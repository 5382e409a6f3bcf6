"""Read the block groups of a mounted ext4 from its superblock."""

from __future__ import annotations

import os

from opwatch.collectors.space.device_handle import open_device
from opwatch.errors import OpwatchError
from opwatch.host.device import Devices
from opwatch.host.usage import Mount
from opwatch.trim.filesystems.ext4 import make_default_groups
from opwatch.trim.space import ext4


def read_groups(mount: Mount, block_bytes: int) -> tuple[int, int]:
    """Return (size, offset) of the groups, or mke2fs's defaults if the device is not readable."""
    major, _, minor = mount.dev.partition(":")
    device = Devices().by_number(int(major), int(minor))
    if device:
        try:
            descriptor = open_device(device)
        except OpwatchError:
            return make_default_groups(block_bytes)
        try:
            return ext4.parse_groups(os.pread(descriptor, ext4.SUPERBLOCK_BYTES, ext4.SUPERBLOCK_AT))
        except (OSError, ValueError):
            return make_default_groups(block_bytes)
        finally:
            os.close(descriptor)
    return make_default_groups(block_bytes)
