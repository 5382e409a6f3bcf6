"""Where a device's granules of discards begin."""

from __future__ import annotations

from opwatch.host.device import BlockDevice

_BLOCK_LIMITS = 0xB0
_VALID = 1 << 31


def unmap_alignment(page: bytes) -> int | None:
    """Blocks before the first granule, by SCSI VPD page B0h; None where the page does not say. Pure."""
    if len(page) < 36 or page[1] != _BLOCK_LIMITS or int.from_bytes(page[2:4], "big") < 32:
        return None
    word = int.from_bytes(page[32:36], "big")
    return word & ~_VALID if word & _VALID else None


def discard_alignment(device: BlockDevice) -> int | None:
    """Bytes before the first granule, None when unknown. Of a whole disk Linux shows its alignment_offset in
    this place since 5.19 (4e1462ffe899), which is another thing; of a partition it shows what is meant."""
    number = device.number("discard_alignment")
    said = None if number is None or number < 0 else number
    if device.is_partition:
        return said
    blocks = unmap_alignment(device.raw("device/vpd_pgb0") or b"")
    block_bytes = device.number("queue/logical_block_size")
    return said if blocks is None or block_bytes is None else blocks * block_bytes
