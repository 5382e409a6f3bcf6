"""Zone management operations of a disk."""

from __future__ import annotations

import fcntl
import struct

from tests.kernel.support.load import open_direct, writes

ZONE_BYTES = 4 << 20
# linux/blkzoned.h; each takes the first sector and the number of sectors.
_RESET, _OPEN, _CLOSE, _FINISH = (0x40101283, 0x40101286, 0x40101287, 0x40101288)


def _manage_zone(node: str, request: int, zone: int) -> None:
    with open_direct(node) as descriptor:
        fcntl.ioctl(descriptor, request, struct.pack("=QQ", zone * ZONE_BYTES >> 9, ZONE_BYTES >> 9))


def manage_zones(node: str, count: int) -> None:
    """Open, write seven blocks to, close, finish and reset each of the first zones."""
    for zone in range(count):
        _manage_zone(node, _OPEN, zone)
        writes(node, 7, start=zone * ZONE_BYTES)
        _manage_zone(node, _CLOSE, zone)
        _manage_zone(node, _FINISH, zone)
        _manage_zone(node, _RESET, zone)
