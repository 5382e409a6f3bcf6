"""Numbers in a page: three digits, with the unit spelled out."""

from __future__ import annotations

from opwatch import units

_UNITS = {"n": "ns", "u": "µs", "m": "ms", "s": "s"}
NOTHING = "-"


def format_latency(ns: float | None) -> str:
    """Return a latency: 17.4 µs, 1.02 ms."""
    if ns is None:
        return NOTHING
    short = units.format_ns(ns)
    return f"{short[:-1]} {_UNITS[short[-1]]}"


def format_rate(per_second: float) -> str:
    """Return events per second: 0.50, 12.3, 259,342."""
    return f"{per_second:,.0f}" if per_second >= 999.5 else units.format_rate(per_second)


def format_megabytes(bytes_per_second: float) -> str:
    """Return MB/s of 10^6 bytes, without the unit: 0.41, 3,512."""
    mega = bytes_per_second / 1e6
    return f"{mega:,.0f}" if mega >= 999.5 else units.format_megabytes(bytes_per_second)


def format_size(n_bytes: int | None) -> str:
    """Return a request size in powers of 1024: 4 KiB."""
    if n_bytes is None:
        return NOTHING
    short = units.format_size(n_bytes)
    return f"{short} B" if short[-1].isdigit() else f"{short[:-1]} {short[-1].upper()}iB"


def format_duration(seconds: float) -> str:
    """Return a duration: 12.3 s, 4 min 30 s, 2 h 5 min, 1 d 0 h."""
    if seconds < 120:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 120:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h" if hours else f"{days} d"


def format_percent(ratio: float | None) -> str:
    return NOTHING if ratio is None else f"{100 * ratio:.0f} %"
