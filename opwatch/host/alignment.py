"""The offset of a device's first discard granule."""

from __future__ import annotations

from opwatch.host.device import BlockDevice

_BLOCK_LIMITS = 0xB0
_VALID = 1 << 31


def parse_unmap_alignment(page: bytes) -> int | None:
    """Return the number of blocks before the first granule from SCSI VPD page B0h, or None if not reported.
    Pure."""
    if len(page) < 36 or page[1] != _BLOCK_LIMITS or int.from_bytes(page[2:4], "big") < 32:
        return None
    word = int.from_bytes(page[32:36], "big")
    return word & ~_VALID if word & _VALID else None


def read_discard_alignment(device: BlockDevice) -> int | None:
    """Return the number of bytes before the first granule, or None if unknown.

    For whole disks, the attribute is wrong since Linux 5.19 (4e1462ffe899), which reports alignment_offset in
    its place. For partitions the attribute is correct.
    """
    number = device.read_number("discard_alignment")
    said = None if number is None or number < 0 else number
    if device.is_partition:
        return said
    blocks = parse_unmap_alignment(device.read_raw("device/vpd_pgb0") or b"")
    block_bytes = device.read_number("queue/logical_block_size")
    return said if blocks is None or block_bytes is None else blocks * block_bytes
