"""The block groups of ext4, by its superblock. Pure."""

from __future__ import annotations

import struct

from opwatch.errors import BadInput

SUPERBLOCK_AT, SUPERBLOCK_BYTES = 1024, 1024
_FIELDS = struct.Struct("<20x2I4xI20xH")  # first block of the groups, log of the block; blocks a group; magic
_MAGIC = 0xEF53


def groups(superblock: bytes) -> tuple[int, int]:
    """(size, offset) of the groups, at whose borders ext4 cuts free extents. BadInput for what is no
    superblock of ext4."""
    if len(superblock) < SUPERBLOCK_BYTES:
        raise BadInput(f"{len(superblock)} bytes are no superblock of ext4")
    first, log_block, blocks, magic = _FIELDS.unpack_from(superblock)
    if magic != _MAGIC or log_block > 6 or not blocks:
        raise BadInput("this is no superblock of ext4")
    block_bytes = 1024 << log_block
    return blocks * block_bytes, first * block_bytes
