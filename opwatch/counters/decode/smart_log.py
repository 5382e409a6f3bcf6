"""NVMe log page 02h, SMART / Health Information."""

from __future__ import annotations

from dataclasses import dataclass

from opwatch.counters.decode.pages import number, whole

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


def celsius(kelvin: int | None) -> int | None:
    """Return whole degrees Celsius the way drives count, or None for 0, which means "no sensor"."""
    return kelvin - _KELVIN if kelvin else None


def decode_smart_log(raw: bytes) -> SmartLog:
    """Decode log page 02h, or raise BadPage if too short or empty."""
    page = whole(raw, LENGTH, "log page 02h")
    return SmartLog(
        critical_warning=page[0],
        data_units_read=number(page, 32, 16),
        data_units_written=number(page, 48, 16),
        read_commands=number(page, 64, 16),
        write_commands=number(page, 80, 16),
        busy_minutes=number(page, 96, 16),
        power_cycles=number(page, 112, 16),
        power_on_hours=number(page, 128, 16),
        unsafe_shutdowns=number(page, 144, 16),
        media_errors=number(page, 160, 16),
        available_spare=page[3] if page[3] <= 100 else None,
        spare_threshold=page[4] if page[4] <= 100 else None,
        percentage_used=page[5],
        temperature_celsius=celsius(number(page, 1, 2)),
        error_entries=number(page, 176, 16),
        warm_minutes=number(page, 192, 4),
        hot_minutes=number(page, 196, 4),
    )
