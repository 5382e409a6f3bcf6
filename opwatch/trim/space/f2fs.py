"""Decode the f2fs superblock and the map of valid blocks in /proc/fs/f2fs. Pure."""

from __future__ import annotations

import re
import struct
from array import array
from dataclasses import dataclass

from opwatch.errors import BadInput
from opwatch.foreign import split_lines
from opwatch.trim.space.extents import Extents

SUPERBLOCK_AT, SUPERBLOCK_BYTES = 1024, 3072
_MAGIC = 0xF2F52010
_HEAD = struct.Struct("<I2H4I")
_AREAS_AT = 68  # segment_count_main and the six fields after it
_AREAS = struct.Struct("<7I")
_DEVICES_AT, _DEVICE_BYTES, _PATH_BYTES, _MAX_DEVICES = 2201, 68, 64, 8
# A segment's map has 64 bytes for every block size.
_SEGMENT_LOG = 9
_SEGMENT_BLOCKS = 1 << _SEGMENT_LOG
_SEGMENT = r"(\d+) +\d+\|(\d+) *\| ?((?:[0-9a-f]{2} ?){64})(?:\|.*)?"
_NOT_VALID = "0+"


@dataclass(frozen=True, slots=True)
class F2fsGeometry:
    """Location of the main area, which holds file blocks; the rest is metadata. `devices` are the device
    paths at mkfs time; empty for a file system on a single device."""

    block_bytes: int
    main_bytes: int
    segments: int
    devices: tuple[str, ...]


def parse_superblock(raw: bytes) -> F2fsGeometry:
    """Return the superblock's geometry. Raise BadInput if the bytes are not an f2fs superblock."""
    if len(raw) < SUPERBLOCK_BYTES:
        raise BadInput(f"not an f2fs superblock: {len(raw)} bytes")
    magic, _, _, _, _, log_block, log_segment = _HEAD.unpack_from(raw)
    segments, *_, main = _AREAS.unpack_from(raw, _AREAS_AT)
    if magic != _MAGIC or not 12 <= log_block <= 16 or log_segment != _SEGMENT_LOG:
        raise BadInput("not an f2fs superblock")
    places = (_DEVICES_AT + number * _DEVICE_BYTES for number in range(_MAX_DEVICES))
    paths = [raw[at : at + _PATH_BYTES].split(b"\0")[0].decode(errors="surrogateescape") for at in places]
    devices = tuple(path for path in paths if path) if paths[1] else ()
    return F2fsGeometry(1 << log_block, main << log_block, segments, devices)


def find_free_blocks(text: str, geometry: F2fsGeometry) -> tuple[Extents, int]:
    """Return (blocks of the main area that segment_bits marks as not valid, number of segments that changed
    while they were read). Changed segments are skipped. Raise BadInput if a segment is missing."""
    starts, ends = array("q"), array("q")
    length = _SEGMENT_BLOCKS * geometry.block_bytes
    changed = number = 0
    for line in split_lines(text):
        row = re.fullmatch(_SEGMENT, line.rstrip())
        if not row:
            continue
        if int(row[1]) != number:
            break
        valid = int.from_bytes(bytes.fromhex(row[3]))
        at, number = geometry.main_bytes + number * length, number + 1
        if valid.bit_count() != int(row[2]):
            changed += 1
            continue
        for run in re.finditer(_NOT_VALID, f"{valid:0{_SEGMENT_BLOCKS}b}"):
            starts.append(at + run.start() * geometry.block_bytes)
            ends.append(at + run.end() * geometry.block_bytes)
    if number != geometry.segments:
        raise BadInput(f"segment_bits lists {number} of {geometry.segments} segments in order")
    return Extents.from_sorted(zip(starts, ends, strict=True)), changed
