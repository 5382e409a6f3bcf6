"""NVMe log page 02h, SMART / Health Information."""

from __future__ import annotations

from dataclasses import dataclass

from opwatch.counters.decode.pages import read_field, require_page

LID, LENGTH = 0x02, 512
# Thousands of 512 bytes, rounded up, regardless of the logical block size.
UNIT_BYTES = 512_000
_KELVIN = 273


@dataclass(frozen=True, slots=True)
class SmartLog:
    """Log page 02h. Fields not reported by the drive, or by the tool that printed the page, are None."""

    critical_warning: int | None = None
    data_units_read: int | None = None
    data_units_written: int | None = None
    read_commands: int | None = None
    write_commands: int | None = None
    power_cycles: int | None = None
    power_on_hours: int | None = None
    unsafe_shutdowns: int | None = None
    media_errors: int | None = None
    busy_minutes: int | None = None
    available_spare: int | None = None
    spare_threshold: int | None = None
    percentage_used: int | None = None
    temperature_celsius: int | None = None
    error_entries: int | None = None
    warm_minutes: int | None = None
    hot_minutes: int | None = None


def to_celsius(kelvin: int | None) -> int | None:
    """Return whole degrees Celsius the way drives count, or None for 0, which means "no sensor"."""
    return kelvin - _KELVIN if kelvin else None


def decode_smart_log(raw: bytes) -> SmartLog:
    """Decode log page 02h, or raise BadPage if too short or empty."""
    page = require_page(raw, LENGTH, "log page 02h")
    return SmartLog(
        critical_warning=page[0],
        data_units_read=read_field(page, 32, 16),
        data_units_written=read_field(page, 48, 16),
        read_commands=read_field(page, 64, 16),
        write_commands=read_field(page, 80, 16),
        busy_minutes=read_field(page, 96, 16),
        power_cycles=read_field(page, 112, 16),
        power_on_hours=read_field(page, 128, 16),
        unsafe_shutdowns=read_field(page, 144, 16),
        media_errors=read_field(page, 160, 16),
        available_spare=page[3] if page[3] <= 100 else None,
        spare_threshold=page[4] if page[4] <= 100 else None,
        percentage_used=page[5],
        temperature_celsius=to_celsius(read_field(page, 1, 2)),
        error_entries=read_field(page, 176, 16),
        warm_minutes=read_field(page, 192, 4),
        hot_minutes=read_field(page, 196, 4),
    )
