"""Read the free space of a mounted btrfs, per device, from its trees."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from opwatch.collectors.space.btrfs import BtrfsGeometry, read_geometry, read_tree
from opwatch.errors import OpwatchError
from opwatch.trim.space import btrfs
from opwatch.trim.space.extents import Extents
from opwatch.trim.space.free import FreeSpace, Number


def read_btrfs_free(descriptor: int) -> FreeSpace:
    """Return the free space on each device."""
    geometry = read_geometry(descriptor)
    chunks = read_chunks(descriptor)
    free = _read_free_in_chunks(descriptor, chunks, geometry)
    dev_extents = [item for item in read_tree(descriptor, btrfs.DEV_TREE) if item.type == btrfs.DEV_EXTENT]
    sizes = {member.number: member.size_bytes for member in geometry.members}
    with _convert_errors():
        by_number = btrfs.find_free_by_device(chunks, free, dev_extents, sizes)
    extents, notes = {}, []
    for member in geometry.members:
        number = find_device_number(member.path)
        if number:
            extents[number] = by_number[member.number]
        else:
            notes.append(f"btrfs device {member.number} is missing; its free space is not included")
    if any(part.parity_count for part in chunks):
        notes.append("for RAID 5 and 6, only whole free stripes are included")
    return FreeSpace("btrfs", geometry.sector_bytes, extents, tuple(notes))


def read_chunks(descriptor: int) -> list[btrfs.Chunk]:
    """Return the chunks, which map logical addresses to devices."""
    items = [item for item in read_tree(descriptor, btrfs.CHUNK_TREE) if item.type == btrfs.CHUNK_ITEM]
    with _convert_errors():
        return [btrfs.parse_chunk(item) for item in items]


def _read_free_in_chunks(descriptor: int, chunks: list[btrfs.Chunk], geometry: BtrfsGeometry) -> Extents:
    try:
        items = list(read_tree(descriptor, btrfs.FREE_SPACE_TREE))
    except FileNotFoundError:  # Created without a free space tree: space outside the extent tree is free
        used = btrfs.find_used_addresses(read_tree(descriptor, btrfs.EXTENT_TREE), geometry.node_bytes)
        return Extents.from_pairs((part.start, part.end) for part in chunks) - used
    with _convert_errors():
        return btrfs.find_free_addresses(items, geometry.sector_bytes)


@contextmanager
def _convert_errors() -> Iterator[None]:
    """Convert decoder errors to OpwatchError."""
    try:
        yield
    except ValueError as error:
        raise OpwatchError(f"unexpected content in the btrfs trees: {error}") from error


def find_device_number(path: str) -> Number | None:
    """Return the device number of a block device node, or None."""
    try:
        status = Path(path).stat()
    except OSError:
        return None
    if not stat.S_ISBLK(status.st_mode):
        return None
    return os.major(status.st_rdev), os.minor(status.st_rdev)
