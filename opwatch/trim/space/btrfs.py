"""Parse the trees of a btrfs and find the free bytes of its devices. Pure.

Items are (objectid, type, offset, data), as returned by BTRFS_IOC_TREE_SEARCH_V2.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from opwatch.errors import BadInput
from opwatch.trim.space.extents import Extents

CHUNK_TREE, DEV_TREE, EXTENT_TREE, FREE_SPACE_TREE = 3, 4, 2, 10
EXTENT_ITEM, METADATA_ITEM = 168, 169
FREE_SPACE_EXTENT, FREE_SPACE_BITMAP = 199, 200
DEV_EXTENT, DEV_ITEM, CHUNK_ITEM = 204, 216, 228

_HEADER = struct.Struct("=3Q2I")
_CHUNK = struct.Struct("<4Q3I2H")
_STRIPE = struct.Struct("<2Q16x")
_DEV_EXTENT = struct.Struct("<4Q16x")
_RAID0, _RAID10, _RAID5, _RAID6 = 1 << 3, 1 << 6, 1 << 7, 1 << 8
_STRIPED = _RAID0 | _RAID10 | _RAID5 | _RAID6
_STRIPE_BYTES = 65536
_RESERVED_BYTES = 1 << 20  # at the start of each device: btrfs allocates nothing there
_MIRRORS = (65536, 64 << 20, 256 << 30)  # copies of the superblock, each in a reserved stripe


@dataclass(frozen=True, slots=True)
class TreeItem:
    objectid: int
    type: int
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Chunk:
    """A range of logical addresses with its stripes: (device id, offset) each."""

    start: int
    length: int
    profile: int
    sub_stripes: int
    stripes: tuple[tuple[int, int], ...]

    @property
    def end(self) -> int:
        return self.start + self.length

    @property
    def parity_count(self) -> int:
        return 1 if self.profile & _RAID5 else 2 if self.profile & _RAID6 else 0

    @property
    def data_columns(self) -> int:
        """Number of stripes with different data per row."""
        if self.profile & _RAID10:
            return len(self.stripes) // self.sub_stripes
        return len(self.stripes) - self.parity_count if self.profile & _STRIPED else 1


def parse_items(buffer: bytes | bytearray | memoryview, count: int) -> Iterator[TreeItem]:
    """Yield the items of an answer. Raise BadInput if the answer is too short for the items."""
    at, view = 0, memoryview(buffer)
    for _ in range(count):
        if at + _HEADER.size > len(view):
            raise BadInput("truncated tree item header")
        _, objectid, offset, kind, length = _HEADER.unpack_from(view, at)
        at += _HEADER.size
        if at + length > len(view):
            raise BadInput(f"truncated tree item of {length} bytes")
        yield TreeItem(objectid, kind, offset, bytes(view[at : at + length]))
        at += length


def parse_chunk(item: TreeItem) -> Chunk:
    """Parse a CHUNK_ITEM. Raise BadInput if damaged."""
    if len(item.data) < _CHUNK.size:
        raise BadInput(f"invalid chunk size: {len(item.data)} bytes")
    length, _, stripe_bytes, profile, _, _, _, count, sub = _CHUNK.unpack_from(item.data)
    stripes = item.data[_CHUNK.size : _CHUNK.size + count * _STRIPE.size]
    made = Chunk(item.offset, length, profile, sub, tuple(_unpack_pairs(_STRIPE, stripes)))
    if len(made.stripes) != count or not 0 < length < 1 << 62 or item.offset + length > 1 << 62:
        raise BadInput(f"invalid chunk with {count} stripes and {length} bytes")
    if any(offset + length > 1 << 62 for _, offset in made.stripes):
        raise BadInput(f"a chunk beyond the end of its disks: {made.stripes}")
    if profile & _STRIPED and (
        stripe_bytes != _STRIPE_BYTES
        or (profile & _RAID10 and (not sub or count % sub))
        or made.data_columns < 1
        or length % (made.data_columns * _STRIPE_BYTES)
    ):
        raise BadInput(f"{count} stripes of {stripe_bytes} bytes do not fit a chunk of {length} bytes")
    return made


def _unpack_pairs(layout: struct.Struct, data: bytes) -> Iterator[tuple[int, int]]:
    for at in range(0, len(data) - layout.size + 1, layout.size):
        yield layout.unpack_from(data, at)[:2]


def find_used_addresses(tree_items: Iterable[TreeItem], node_bytes: int) -> Extents:
    """Return the logical addresses in use, from the extent tree."""
    return Extents.from_sorted(
        (item.objectid, item.objectid + (item.offset if item.type == EXTENT_ITEM else node_bytes))
        for item in tree_items
        if item.type in (EXTENT_ITEM, METADATA_ITEM) and item.objectid + item.offset < 1 << 62
    )


def find_free_addresses(tree_items: Iterable[TreeItem], sector_bytes: int) -> Extents:
    """Return the free logical addresses in block groups, from the free space tree."""
    return Extents.from_pairs(_parse_free_space(tree_items, sector_bytes))


def _parse_free_space(tree_items: Iterable[TreeItem], sector_bytes: int) -> Iterator[tuple[int, int]]:
    for item in tree_items:
        if item.objectid + item.offset > 1 << 62:
            raise BadInput(f"invalid free space of {item.offset} bytes at {item.objectid}")
        if item.type == FREE_SPACE_EXTENT:
            yield item.objectid, item.objectid + item.offset
        elif item.type == FREE_SPACE_BITMAP:
            yield from _find_bit_runs(item.objectid, item.data, sector_bytes)


def _find_bit_runs(start: int, bits: bytes, unit: int) -> Iterator[tuple[int, int]]:
    """Yield runs of set bits; the lowest bit of the first byte is the first unit."""
    number, at = int.from_bytes(bits, "little"), 0
    while number:
        zeros = (number & -number).bit_length() - 1
        at, number = at + zeros, number >> zeros
        ones = (~number & (number + 1)).bit_length() - 1
        yield start + at * unit, start + (at + ones) * unit
        at, number = at + ones, number >> ones


def map_to_devices(part: Chunk, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield (device id, start, end) for each copy of a logical range within a chunk. With parity only whole
    rows count: the parity of a row with used data also covers the row's free blocks."""
    low, high = start - part.start, end - part.start
    if not part.profile & _STRIPED:
        for device, offset in part.stripes:
            yield device, offset + low, offset + high
        return
    columns = part.data_columns
    row = columns * _STRIPE_BYTES
    if part.parity_count:
        first, last = -(-low // row), high // row
        if first < last:
            for device, offset in part.stripes:
                yield device, offset + first * _STRIPE_BYTES, offset + last * _STRIPE_BYTES
        return
    copies = part.sub_stripes if part.profile & _RAID10 else 1
    for column in range(columns):
        begin, stop = _count_column_bytes(low, column, columns), _count_column_bytes(high, column, columns)
        for device, offset in part.stripes[column * copies : (column + 1) * copies]:
            yield device, offset + begin, offset + stop


def _count_column_bytes(offset: int, column: int, columns: int) -> int:
    """Return the number of bytes of a column before a logical offset."""
    strip, inside = divmod(offset, _STRIPE_BYTES)
    row, at = divmod(strip, columns)
    if at == column:
        return row * _STRIPE_BYTES + inside
    return (row + (at > column)) * _STRIPE_BYTES


def find_free_by_device(
    chunks: Iterable[Chunk], free: Extents, dev_extents: Iterable[TreeItem], sizes: dict[int, int]
) -> dict[int, Extents]:
    """Return each device's free bytes by device id: free space in chunks, and unallocated space. `free` is in
    logical addresses; `sizes` are device sizes."""
    pieces: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for part in chunks:
        for start, end in free.clip(part.start, part.end):
            for device, low, high in map_to_devices(part, start, end):
                pieces[device].append((low, high))
    taken: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for item in dev_extents:
        taken[item.objectid].append((item.offset, item.offset + parse_dev_extent_bytes(item)))
    free_of = {}
    for device, size in sizes.items():
        kept = Extents.from_pairs([(0, _RESERVED_BYTES), *((at, at + _STRIPE_BYTES) for at in _MIRRORS)])
        unallocated = Extents.from_pairs(taken[device]).find_gaps(0, size)
        free_of[device] = (Extents.from_pairs(pieces[device]) | unallocated).clip(0, size) - kept
    return free_of


def parse_dev_extent_bytes(item: TreeItem) -> int:
    """Return the length of a DEV_EXTENT. Raise BadInput if damaged."""
    if item.type != DEV_EXTENT or len(item.data) < _DEV_EXTENT.size:
        raise BadInput(f"not a device extent: type {item.type}, {len(item.data)} bytes")
    length: int = _DEV_EXTENT.unpack_from(item.data)[3]
    if item.offset + length > 1 << 62:
        raise BadInput(f"invalid device extent of {length} bytes at {item.offset}")
    return length
