"""Formats a VDO without a deduplication index: Debian 12 has the target but no formatting tool.

The format follows drivers/md/dm-vdo/encodings.c of 6.12: a geometry block with the start of the data
region, where a sector holds the super block with the state of each part. The rest of a new VDO is zeroes.
vdoformat of VDO 8.3.1 writes the same, with an index before the data.
"""

from __future__ import annotations

import contextlib
import struct
import uuid
import zlib
from collections.abc import Iterator
from pathlib import Path

from tests.vm.guest.support.stacked import Mapped, count_sectors, create_mapped
from tests.vm.requirements import need_module

BLOCK = 4096
# Sizes in blocks: vdoformat's defaults except for smaller slabs.
_SLAB, _ROOTS, _JOURNAL, _SUMMARY, _SLAB_JOURNAL = 8192, 60, 32768, 64, 224
_REFERENCES_PER_BLOCK = 504 * 8
_NEW = 1
# Part numbers; on disk the parts are in a different order.
_BLOCK_MAP, _SLAB_DEPOT, _RECOVERY_JOURNAL, _SLAB_SUMMARY = range(4)
_NONCE = 0x6F7077617463


def _pack_header(part: int, major: int, size: int) -> bytes:
    return struct.pack("<IIIQ", part, major, 0, size)


def _pack_part(part: int, major: int, body: bytes) -> bytes:
    return _pack_header(part, major, len(body)) + body


def _add_checksum(data: bytes) -> bytes:
    return (data + struct.pack("<I", zlib.crc32(data, 0xFFFFFFFF))).ljust(BLOCK, b"\0")


def _build_geometry() -> bytes:
    # An empty index region and the data region start after the geometry block.
    volume = struct.pack("<IQ16sQ", 0, _NONCE, uuid.uuid4().bytes, 0)
    regions = struct.pack("<IQIQ", 0, 1, 1, 1)
    body = volume + regions + bytes(9)
    magic = b"dmvdo001"
    return _add_checksum(magic + _pack_header(5, 5, len(magic) + 20 + len(body) + 4) + body)


def _build_layout(physical: int) -> tuple[bytes, int, int]:
    """Return (the layout, first block of the slabs, first block of the block map's roots)."""
    begin = 2
    roots, slabs = begin, begin + _ROOTS
    summary = physical - _SUMMARY
    journal = summary - _JOURNAL
    # Slabs take the remaining space in between.
    body = struct.pack("<QQB", journal, journal, 4)
    for part, first, count in (
        (_SLAB_DEPOT, slabs, journal - slabs),
        (_RECOVERY_JOURNAL, journal, _JOURNAL),
        (_SLAB_SUMMARY, summary, _SUMMARY),
        (_BLOCK_MAP, roots, _ROOTS),
    ):
        body += struct.pack("<BQQQ", part, first, 0, count)
    return _pack_part(1, 3, body), slabs, roots


def _build_slab_depot(slabs: int, end: int) -> bytes:
    references = -(-(_SLAB - _SLAB_JOURNAL) // _REFERENCES_PER_BLOCK)
    data = _SLAB - _SLAB_JOURNAL - references
    flushing = (_SLAB_JOURNAL * 3 + 3) // 4
    blocking = flushing + (_SLAB_JOURNAL - flushing) * 5 // 7
    scrubbing = _SLAB_JOURNAL - 2
    last = slabs + (end - slabs) // _SLAB * _SLAB
    sizes = (_SLAB, data, references, _SLAB_JOURNAL, flushing, blocking, scrubbing)
    return _pack_part(3, 2, struct.pack("<9QB", *sizes, slabs, last, 0))


def build_super_block(physical: int, logical: int) -> bytes:
    """Return the super block of a new VDO with these numbers of physical and logical blocks."""
    layout, slabs, roots = _build_layout(physical)
    component = struct.pack("<IQQ5QQ", _NEW, 0, 0, logical, physical, _SLAB, _JOURNAL, _SLAB_JOURNAL, _NONCE)
    states = struct.pack("<IIIII", 0, 67, 0, 41, 0) + component + layout
    states += _pack_part(2, 7, struct.pack("<3Q", 1, 0, 0))
    states += _build_slab_depot(slabs, physical - _SUMMARY - _JOURNAL)
    states += _pack_part(4, 2, struct.pack("<4Q", 1, 0, roots, _ROOTS))
    return _add_checksum(_pack_header(0, 12, len(states) + 4) + states)


@contextlib.contextmanager
def create_vdo(below: str, logical_bytes: int) -> Iterator[Mapped]:
    """Yield a new VDO on a zeroed device, without deduplication and compression."""
    need_module("dm_vdo")
    physical = count_sectors(below) * 512 // BLOCK
    with Path("/dev", below).open("r+b") as disk:
        disk.write(_build_geometry() + build_super_block(physical, logical_bytes // BLOCK))
    table = f"0 {logical_bytes // 512} vdo V4 /dev/{below} {physical} 4096 32768 16380 deduplication off"
    with create_mapped("vdo", table, "dm_vdo") as top:
        yield top
