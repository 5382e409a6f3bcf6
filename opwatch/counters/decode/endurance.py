"""NVMe log page 09h, Endurance Group Information."""

from __future__ import annotations

from dataclasses import dataclass

from opwatch.counters.decode.pages import read_field, require_page

LID, LENGTH = 0x09, 512
# 10^9 bytes, rounded up.
UNIT_BYTES = 10**9


@dataclass(frozen=True, slots=True)
class EnduranceGroup:
    """Log page 09h, in units of 10^9 bytes. A `media_units_written` of 0 means "not reported"."""

    data_units_read: int | None = None
    data_units_written: int | None = None
    media_units_written: int | None = None
    endurance_estimate: int | None = None
    available_spare: int | None = None
    percentage_used: int | None = None
    capacity_bytes: int | None = None


def decode_endurance_group(raw: bytes) -> EnduranceGroup:
    """Decode log page 09h, or raise BadPage if too short or empty."""
    page = require_page(raw, LENGTH, "log page 09h")
    return EnduranceGroup(
        available_spare=page[3] if page[3] <= 100 else None,
        percentage_used=page[5],
        endurance_estimate=read_field(page, 32, 16),
        data_units_read=read_field(page, 48, 16),
        data_units_written=read_field(page, 64, 16),
        media_units_written=read_field(page, 80, 16),
        capacity_bytes=read_field(page, 160, 16),
    )
