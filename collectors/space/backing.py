"""Map the allocated blocks of the file behind a loop device."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from opwatch.collectors.space.device_handle import open_device
from opwatch.errors import OpwatchError
from opwatch.host.device import BlockDevice
from opwatch.host.loop import find_backing_file
from opwatch.trim.space import fiemap
from opwatch.trim.space.extents import Extents
from opwatch.trim.space.fiemap import FileExtent

_FIEMAP = 0xC020660B
_AT_ONCE = 2048
_NO_FIEMAP = (errno.EOPNOTSUPP, errno.ENOTTY, errno.EINVAL)


@dataclass(frozen=True, slots=True)
class BackingMap:
    """Allocated blocks of a file in bytes of the loop device, and the blocks shared with other files."""

    mapped: Extents
    shared: Extents


def read_backing_map(device: BlockDevice) -> BackingMap | None:
    """Return the map of a loop device's backing file, or None if inaccessible or replaced."""
    try:
        file = _open_backing(device)
    except (OSError, OpwatchError):
        return None
    if file is None:
        return None
    try:
        mapped, shared = _read_maps(file)
    except (OSError, OpwatchError):
        return None
    finally:
        os.close(file)
    offset = device.read_number("loop/offset") or 0
    return BackingMap(*(part.shift_by(-offset).clip(0, device.size_bytes) for part in (mapped, shared)))


def _open_backing(device: BlockDevice) -> int | None:
    """Return a descriptor of the loop device's backing file, after checking its identity."""
    path = device.read_attribute("loop/backing_file")
    if not path or not stat.S_ISREG(Path(path).stat().st_mode):
        return None
    node = open_device(device)
    try:
        backing = find_backing_file(node)
    finally:
        os.close(node)
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    status = os.fstat(file)
    if backing == (status.st_dev, status.st_ino):
        return file
    os.close(file)
    return None


def _read_maps(file: int) -> tuple[Extents, Extents]:
    """Return (allocated extents, shared extents) in bytes of the file."""
    try:
        extents = list(_iterate_extents(file))
    except OSError as error:
        if error.errno not in _NO_FIEMAP:
            raise
        return Extents.from_pairs(_find_data(file)), Extents()  # Files in memory do not share blocks
    mapped, shared = (
        Extents.from_pairs((extent.logical, extent.logical + extent.length) for extent in some)
        for some in (extents, [extent for extent in extents if extent.flags & fiemap.SHARED])
    )
    return mapped, shared


def _iterate_extents(file: int) -> Iterator[FileExtent]:
    at = 0
    while True:
        buffer = fiemap.encode_request(_AT_ONCE, at)
        fcntl.ioctl(file, _FIEMAP, buffer)
        extents = fiemap.decode_extents(buffer)
        yield from extents
        if not extents or extents[-1].flags & fiemap.LAST:
            return
        at = extents[-1].logical + extents[-1].length


def _find_data(file: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges of the file that are not holes."""
    end = 0
    while True:
        try:
            start = os.lseek(file, end, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return  # Only a hole until the end
            raise
        end = os.lseek(file, start, os.SEEK_HOLE)
        yield start, end
