"""Decode the block group layout from an ext4 superblock. Pure."""

from __future__ import annotations

import struct

from opwatch.errors import BadInput

SUPERBLOCK_AT, SUPERBLOCK_BYTES = 1024, 1024
_FIELDS = struct.Struct("<20x2I4xI20xH")  # first data block, log block size; blocks per group; magic
_MAGIC = 0xEF53


def parse_groups(superblock: bytes) -> tuple[int, int]:
    """Return (size, offset) of the block groups in bytes. ext4 splits free extents at group borders.
    Raise BadInput if the bytes are not an ext4 superblock."""
    if len(superblock) < SUPERBLOCK_BYTES:
        raise BadInput(f"not an ext4 superblock: {len(superblock)} bytes")
    first, log_block, blocks, magic = _FIELDS.unpack_from(superblock)
    if magic != _MAGIC or log_block > 6 or not blocks:
        raise BadInput("not an ext4 superblock")
    block_bytes = 1024 << log_block
    return blocks * block_bytes, first * block_bytes
