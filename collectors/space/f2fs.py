"""Read the free blocks of a mounted f2fs from /proc, the only source."""

from __future__ import annotations

import os
from pathlib import Path

from opwatch.collectors.space.device_handle import open_device
from opwatch.errors import OpwatchError, Unsupported
from opwatch.foreign import read_text
from opwatch.host.device import BlockDevice
from opwatch.trim.space import f2fs
from opwatch.trim.space.extents import Extents

# The file has 200 bytes per 2 MiB, so this suffices for 16 TiB.
_MAX_BYTES = 2 << 30


def read_free(device: BlockDevice) -> tuple[int, Extents, tuple[str, ...]]:
    """Return (block size, free bytes, notes on excluded space) of the f2fs on a device."""
    geometry = read_geometry(device)
    if geometry.devices:
        raise Unsupported(f"{device.name}: this f2fs is on several devices, but reports only the first")
    path = Path("/proc/fs/f2fs") / device.name / "segment_bits"
    try:
        free, changed = f2fs.find_free_blocks(read_text(path, _MAX_BYTES), geometry)
    except FileNotFoundError as error:
        raise Unsupported(f"{path} is missing: f2fs lists its free blocks only there") from error
    except ValueError as error:
        raise OpwatchError(f"{path} has an unexpected content: {error}") from error
    notes = [f"{changed} f2fs segments changed while they were read and are not included"] if changed else []
    return geometry.block_bytes, free, tuple(notes)


def read_geometry(device: BlockDevice) -> f2fs.F2fsGeometry:
    """Return the geometry in the superblock."""
    descriptor = open_device(device)
    try:
        return f2fs.parse_superblock(os.pread(descriptor, f2fs.SUPERBLOCK_BYTES, f2fs.SUPERBLOCK_AT))
    except ValueError as error:
        raise OpwatchError(f"{device.name}: {error}") from error
    finally:
        os.close(descriptor)
