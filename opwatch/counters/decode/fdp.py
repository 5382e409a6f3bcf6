"""NVMe log page 22h, Flexible Data Placement Statistics, in bytes."""

from __future__ import annotations

from dataclasses import dataclass

from opwatch.counters.decode.pages import BadPage, read_field

LID, LENGTH = 0x22, 64


@dataclass(frozen=True, slots=True)
class FdpStatistics:
    """Log page 22h. Counts include metadata, start when placement is last enabled, and saturate."""

    host_bytes_written: int | None = None
    media_bytes_written: int | None = None
    media_bytes_erased: int | None = None


def decode_fdp_statistics(raw: bytes) -> FdpStatistics:
    """Decode log page 22h, or raise BadPage if too short. All zeroes are valid before the first write."""
    if len(raw) < LENGTH:
        raise BadPage(f"log page 22h has {len(raw)} bytes, not {LENGTH}")
    return FdpStatistics(read_field(raw, 0, 16), read_field(raw, 16, 16), read_field(raw, 32, 16))
